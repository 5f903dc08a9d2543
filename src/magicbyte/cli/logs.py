"""Format the log messages of a long-running command: as text, or as a JSON object per line."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from magicbyte.engine.printable import printable

F = TypeVar("F", bound=Callable[..., object])

LEVELS: Final = ("debug", "info", "warning", "error")
_TEXT: Final = "%(asctime)s %(levelname)s %(message)s"


class TextFormatter(logging.Formatter):
    """Formats each record on one line, with names from the network escaped. A traceback follows on further lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the name in the base class)
        """Return the line without a traceback."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 (the name in the base class)
        """Return the traceback, indented, because its last lines may look like log lines."""
        return "\n".join(f"    {printable(line)}" for line in super().formatException(ei).splitlines())


class JsonFormatter(logging.Formatter):
    """Formats each record as a line of JSON: time (UTC), level, logger, message, fields, and any traceback.

    Fields are logged with `extra={"fields": {...}}`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {
            "time": f"{moment}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str).replace("\x7f", "\\u007f")


def log_options(command: F) -> F:
    """Add --log-level and --log-format, for `set_up`."""
    command = click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True,
                           help="The format of log messages on stderr.")(command)  # fmt: skip
    return click.option("--log-level", type=click.Choice(LEVELS), default="warning", show_default=True,
                        help="The least severe level to log.")(command)  # fmt: skip


def set_up(level: str, form: str) -> None:
    """Configure logging to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
