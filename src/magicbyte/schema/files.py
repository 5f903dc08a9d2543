"""Load schema files from disk, and those that come with the package: all of Kafka's messages."""

from __future__ import annotations

from pathlib import Path

from magicbyte.engine.log.files.filesystem import read_regular
from magicbyte.schema.check import check
from magicbyte.schema.errors import Rule, SchemaError, SchemaErrors, UnknownMessageError
from magicbyte.schema.objects import did_you_mean
from magicbyte.schema.tree import MessageSchema

INSTALLED = Path(__file__).parent / "bundled"  # the wheel's copy of the repository's `schemas/`
_REPOSITORY = Path(__file__).parents[3] / "schemas"


def read(path: Path | str) -> tuple[MessageSchema | None, list[SchemaError]]:
    """Parse a file; return its schema and errors as `check` does. Raises OSError."""
    raw = read_regular(path)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode()
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        found = f"the byte {raw[error.start]:#04x}"
        return None, [SchemaError(str(path), line, column, "", Rule.JSON, "UTF-8", found, "save the file as UTF-8")]
    return check(text, str(path))


def load(path: Path | str) -> MessageSchema:
    """Return the schema in a file. Raises SchemaErrors with all of its errors, and OSError."""
    message, errors = read(path)
    if message is None:
        raise SchemaErrors(errors)
    return message


def load_directory(directory: Path | str, warnings: list[SchemaError] | None = None) -> dict[str, MessageSchema]:
    """Return the schemas of all `.json` files of a folder by name, sorted; subfolders are ignored.

    Warnings are appended to `warnings`. Raises SchemaErrors with the errors of all files, also for two schemas of one
    name, and OSError.
    """
    messages: dict[str, MessageSchema] = {}
    errors: list[SchemaError] = []  # and warnings
    for path in sorted(Path(directory).iterdir()):
        if path.suffix != ".json":
            continue
        message, wrong = read(path)
        errors += wrong
        if message is not None and message.name in messages:
            found_path = messages[message.name].path
            expected, mend = "messages of different names", "rename one of them"
            twice = f"the name of {found_path}"
            errors.append(SchemaError(str(path), 1, 1, message.name, Rule.SAME_NAME, expected, twice, mend))
        elif message is not None:
            messages[message.name] = message
    if any(not error.warning for error in errors):
        raise SchemaErrors(errors)
    if warnings is not None:
        warnings += errors
    return dict(sorted(messages.items()))


def bundled() -> dict[str, Path]:
    """Return the schema files that come with the package, by the names of their messages, sorted."""
    directory = INSTALLED if INSTALLED.is_dir() else _REPOSITORY
    return {path.stem: path for path in sorted(directory.glob("*/*.json"), key=lambda each: each.stem)}


def load_bundled(name: str) -> MessageSchema:
    """Return a schema of the package, such as `MetadataResponse`. Raises UnknownMessageError."""
    return load(bundled_file(name))


def bundled_file(name: str) -> Path:
    """Return the file of a schema of the package. Raises UnknownMessageError."""
    files = bundled()
    if name not in files:
        hint = did_you_mean(name, files) or f"there are {len(files)} messages, from {min(files)} to {max(files)}"
        raise UnknownMessageError(f"no message {name!r} comes with magicbyte: {hint}")
    return files[name]
