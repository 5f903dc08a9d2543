"""Mistakes that are made on purpose, and whether it is them that a history finds."""

from __future__ import annotations

import logging
from collections.abc import Iterable

_OF_PYTHON = (AttributeError, NameError, TypeError)


def faults_of_plants(records: Iterable[logging.LogRecord]) -> list[str]:
    """Return the logged errors of Python's own: a plant that raises one breaks every history, whatever it is for."""
    errors = [each.exc_info[1] for each in records if each.exc_info]
    return [repr(each) for each in errors if isinstance(each, _OF_PYTHON)]
