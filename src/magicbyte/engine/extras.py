"""The optional packages: which extra brings which, and the error message or installation if one is missing."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable

from magicbyte.engine.errors import MissingExtraError

EXTRAS = {
    "arrow": "pyarrow",
    "fast": "numba",
    "spark": "pyspark",
    "s3": "s3fs",
    "cluster": "kazoo",
    "security": "cryptography",
    "capture": "dpkt",
}
"""Each extra of the distribution, and the package whose presence indicates it."""

_tried: set[str] = set()
_advised: set[str] = set()
_installer: Callable[[str], None] | None = None
_adviser: Callable[[str, str], None] | None = None


def install_by(installer: Callable[[str], None] | None) -> None:
    """Install missing extras with `installer`, which takes an extra's name: used by the command of a clone."""
    global _installer
    _installer = installer
    _tried.clear()


def advise_by(adviser: Callable[[str, str], None] | None) -> None:
    """Pass advice about a missing extra to `adviser`, which takes the extra's name and what is slow without it."""
    global _adviser
    _adviser = adviser
    _advised.clear()


def advise(extra: str, what: str) -> None:
    """Say that `what` would be faster with an extra that is missing: once per process. Nothing is installed for it."""
    if _adviser is not None and extra not in _advised and not present(extra):
        _advised.add(extra)
        _adviser(extra, what)


def present(extra: str) -> bool:
    """Return whether the package of an extra can be imported, without importing it."""
    package = EXTRAS[extra]
    return package in sys.modules or importlib.util.find_spec(package) is not None


def obtain(extra: str) -> bool:
    """Return whether an extra is present, installing it first if possible: tried once per process."""
    if _installer is not None and extra not in _tried and not present(extra):
        _tried.add(extra)
        _installer(extra)
        importlib.invalidate_caches()
    return present(extra)


def require(extra: str, what: str) -> None:
    """Return if an extra is present or could be installed. Otherwise raise MissingExtraError: `what` needs it."""
    if not obtain(extra):
        raise MissingExtraError(extra, EXTRAS[extra], what)


def missing_extra(error: ModuleNotFoundError) -> MissingExtraError | None:
    """Return the error for a failed import, or None if no extra would have brought the module."""
    package = (error.name or "").partition(".")[0]
    extra = next((extra for extra, each in EXTRAS.items() if each == package), None)
    return None if extra is None else MissingExtraError(extra, package, "this")
