"""The packages that not everybody needs: which extra brings which, and what is said, or done, where one is missing."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable

from magicbyte.errors import MissingExtraError

EXTRAS = {
    "arrow": "pyarrow",
    "fast": "numba",
    "spark": "pyspark",
    "s3": "s3fs",
    "cluster": "kazoo",
    "security": "cryptography",
}
"""Each extra of the distribution, and the package that tells whether it is there."""

_tried: set[str] = set()
_installer: Callable[[str], None] | None = None


def install_by(installer: Callable[[str], None] | None) -> None:
    """Have extras that are missing installed by `installer`, which takes a name: the command of a clone does that."""
    global _installer
    _installer = installer
    _tried.clear()


def present(extra: str) -> bool:
    """Say whether the package of an extra can be imported. Nothing is imported for it."""
    package = EXTRAS[extra]
    return package in sys.modules or importlib.util.find_spec(package) is not None


def obtain(extra: str) -> bool:
    """Say whether an extra is there, after it was installed where that can be done: tried once in a process."""
    if _installer is not None and extra not in _tried and not present(extra):
        _tried.add(extra)
        _installer(extra)
        importlib.invalidate_caches()
    return present(extra)


def require(extra: str, what: str) -> None:
    """Return when an extra is there, or could be installed. Raises MissingExtraError: `what` needs it."""
    if not obtain(extra):
        raise MissingExtraError(extra, EXTRAS[extra], what)


def missing_extra(error: ModuleNotFoundError) -> MissingExtraError | None:
    """Return what to say of a failed import, None when no extra would have brought the module."""
    package = (error.name or "").partition(".")[0]
    extra = next((extra for extra, each in EXTRAS.items() if each == package), None)
    return None if extra is None else MissingExtraError(extra, package, "this")
