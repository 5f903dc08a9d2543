"""`magicbyte schema`: the commands of the schema compiler."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from magicbyte.cli.base import CommandGroup
from magicbyte.cli.options import OutputPath, format_option
from magicbyte.cli.output import complain, say, say_json, say_text
from magicbyte.cli.render import many, table_lines
from magicbyte.engine.log.files.filesystem import read_bounded, read_regular

if TYPE_CHECKING:
    from magicbyte.schema import Advice, Change, FieldSize, MessageSchema, MessageSize, SchemaError

Json = dict[str, Any]

_FAILED = 1

_file = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


@click.group(cls=CommandGroup, epilog="Exit status: 0 sound or compatible, 1 faulty or incompatible, 2 wrong use.")
def schema() -> None:
    """Compile message schemas: Kafka's JSON, and an encoding for each integer.

    A MESSAGE is a schema file, or the name of a message that comes with magicbyte, such as MetadataResponse.
    docs/schema has a tutorial and the grammar.
    """


# ---- list, show


@schema.command("list", examples=("magicbyte schema list",))
@format_option
def list_(form: str) -> None:
    """List the messages included in magicbyte: Kafka's, its stored records, and our extensions."""
    from magicbyte.schema import bundled

    found = [{"name": name, "kind": path.parent.name} for name, path in bundled().items()]
    if form == "json":
        say_json(found)
    else:
        say(*table_lines([["MESSAGE", "KIND"], *([each["name"], each["kind"]] for each in found)], {0, 1}))


@schema.command(examples=("magicbyte schema show FetchRequest",))
@click.argument("message")
def show(message: str) -> None:
    """Print the schema file of MESSAGE."""
    say_text(_text_of(_file_of(message)).rstrip("\n"))


# ---- check


@schema.command(examples=("magicbyte schema check schemas",))
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path), metavar="FILE|DIR…")
@format_option
def check(paths: tuple[Path, ...], form: str) -> None:
    """Check schema files, and report all errors at once.

    In a folder, all .json files are checked, including those in subfolders. Exit status 1 if any has an error.
    """
    from magicbyte.schema import read

    files = [file for path in paths for file in _schema_files(path)]
    findings = [error for file in files for error in read(file)[1]]
    errors = [error for error in findings if not error.warning]
    if form == "json":
        report = {"files": len(files), "errors": len(errors), "findings": [error.to_json() for error in findings]}
        say_json(report)
    else:
        for error in findings:
            say(*_error_text(error))
        bad = len({error.path for error in errors})
        warnings = f", {many(len(findings) - len(errors), 'warning')}" if len(findings) > len(errors) else ""
        verdict = f"{many(len(errors), 'error')} in {bad} of" if errors else "no errors in"
        say(f"{verdict} {many(len(files), 'file')}{warnings}")
    if errors:
        click.get_current_context().exit(_FAILED)


def _schema_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(path.rglob("*.json"))
    if not files:
        raise click.UsageError(f"{path} has no .json file")
    return files


def _error_text(error: SchemaError) -> list[str]:
    place = f"{error.path}:{error.line}:{error.column}"
    field = f" in {error.field}" if error.field else ""
    return [
        f"{place}: {'warning: ' if error.warning else ''}{error.rule}{field}",
        f"    expected {error.expected}, found {error.found}",
        f"    {error.mend}",
    ]


# ---- size


@schema.command(examples=("magicbyte schema size MetadataRequest --version 1 --values values.json",))
@click.argument("message")
@click.option("--version", "version", type=int, required=True, help="The version to write.")
@click.option("--values", "values_path", type=_file, required=True, help="Values in Kafka's JSON form; - reads stdin.")
@click.option("--proposed", "proposed_path", type=_file, help="A schema to compare with: same fields, other encodings.")
@click.option("--proposed-version", type=int, help="The version of it to compare with. [default: that of --version]")
@format_option
def size(
    message: str, version: int, values_path: Path, proposed_path: Path | None, proposed_version: int | None, form: str
) -> None:
    """Print the bytes of each field of MESSAGE.

    The row of an array or struct has its own bytes: the count and the null marker. Its fields have rows of their own.
    Headers are not counted.
    """
    from magicbyte.schema import measure
    from magicbyte.schema.values import parse_json

    if proposed_version is not None and proposed_path is None:
        raise click.UsageError("--proposed-version needs --proposed")
    today = _message(message)
    values = parse_json(_text_of(values_path))
    sizes = measure(today, version, values)
    other, other_version = None, version if proposed_version is None else proposed_version
    if proposed_path is not None:
        other = measure(_loaded(proposed_path), other_version, values)
    if form == "json":
        proposed = None if other is None else (other_version, other)
        say_json({"message": today.name, **sizes.to_json(version, proposed)})
    else:
        say(*_size_text(today.name, version, sizes, other_version, other))


def _size_text(name: str, version: int, today: MessageSize, other_version: int, other: MessageSize | None) -> list[str]:
    ways = list(dict.fromkeys([*today.fields, *(other.fields if other is not None else ())]))
    table = [["field", "form", "values", "bytes"]]
    if other is not None:
        table[0] += ["proposed", "bytes", "change"]
    for way in ways:
        row = today.fields.get(way)
        cells = [way or "(message)", *_size_cells(row), str(row.bytes if row else 0)]
        if other is not None:
            then = other.fields.get(way)
            difference = (then.bytes if then else 0) - (row.bytes if row else 0)
            cells += [then.form if then else "-", str(then.bytes if then else 0), _signed(difference)]
        table.append(cells)
    head = f"{name} version {version}: {many(today.bytes, 'byte')}"
    if other is not None:
        share = 100 * (other.bytes - today.bytes) / max(today.bytes, 1)
        head += f"; proposed version {other_version}: {many(other.bytes, 'byte')} ({share:+.1f} %)"
    return [head, "", *table_lines(table, left={0, 1, 4})]


def _size_cells(row: FieldSize | None) -> list[str]:
    return [row.form, str(row.values)] if row else ["-", "0"]


# ---- diff


@schema.command(examples=("magicbyte schema diff FetchRequest FetchRequest",))
@click.argument("old")
@click.argument("new")
@format_option
def diff(old: str, new: str, form: str) -> None:
    """Check whether the schema NEW may replace OLD.

    Each is a MESSAGE. Exit status 1 if peers would misunderstand each other in a common version, or if old versions are
    gone.
    """
    from magicbyte.schema import compare

    changes = compare(_message(old), _message(new))
    broken = [change for change in changes if not change.compatible]
    if form == "json":
        report = {"compatible": not broken, "changes": [change.to_json() for change in changes]}
        say_json(report)
    else:
        for change in changes:
            say(*_change_text(change))
        if broken:
            say(f"incompatible: {len(broken)} of {many(len(changes), 'change')}")
        else:
            say(f"compatible: {many(len(changes), 'change')}")
    if broken:
        click.get_current_context().exit(_FAILED)


def _change_text(change: Change) -> list[str]:
    one = len(change.versions) == 1 and change.versions[0].lowest == change.versions[0].highest
    versions = f", version{'' if one else 's'} {', '.join(map(str, change.versions))}" if change.versions else ""
    mark = "ok" if change.compatible else "INCOMPATIBLE"
    return [f"{mark}: {change.kind}: {change.field}{versions}", f"    {change.reason}"]


# ---- advise


@schema.command(examples=("magicbyte schema advise MetadataRequest --samples samples.jsonl",))
@click.argument("message")
@click.option("--samples", "samples_path", type=_file, required=True, help="Values of a message as JSON, one per line.")
@click.option("--version", "version", type=int, help="The version to write. [default: the newest]")
@format_option
def advise(message: str, samples_path: Path, version: int | None, form: str) -> None:
    """Find the encoding that gives the integers of MESSAGE the fewest bytes.

    From sample values, for each int16, int32 and int64 field and for arrays of them: the range, the present and the
    smallest size, and by how much one value can exceed the fixed encoding.
    """
    from magicbyte.schema import advise as advise_on
    from magicbyte.schema import measure

    tree = _message(message)
    chosen = tree.valid_versions.highest if version is None else version
    samples = _samples(samples_path)
    advice = advise_on(tree, chosen, samples)
    whole = sum(measure(tree, chosen, sample).bytes for sample in samples)
    if form == "json":
        report = {
            "message": tree.name,
            "version": chosen,
            "samples": len(samples),
            "bytes": whole,
            "saved": sum(each.saved for each in advice),
            "fields": [each.to_json() for each in advice],
        }
        say_json(report)
    else:
        say(*_advice_text(tree.name, chosen, len(samples), whole, advice))


def _samples(path: Path) -> list[object]:
    from magicbyte.schema import SchemaValueError
    from magicbyte.schema.values import parse_json

    samples = []
    for number, line in enumerate(_text_of(path).splitlines(), 1):
        if line.strip():
            try:
                samples.append(parse_json(line))
            except SchemaValueError as error:
                raise click.UsageError(f"{path}, line {number}: {error}") from error
    if not samples:
        raise click.UsageError(f"{path} has no sample: one message as JSON on each line")
    return samples


def _advice_text(name: str, version: int, samples: int, whole: int, advice: list[Advice]) -> list[str]:
    table = [["field", "values", "range", "today", "bytes", "best", "bytes", "saved", "at worst"]]
    for each in advice:
        range_ = f"{each.lowest}..{each.highest}" if each.lowest != each.highest else str(each.lowest)
        today, best = each.bytes[each.today], each.bytes[each.best]
        growth = f"+{each.worst_growth} each" if each.worst_growth else "-"
        row = [each.way, str(each.values), range_, str(each.today), str(today), str(each.best), str(best)]
        table.append([*row, str(each.saved), growth])
    saved = sum(each.saved for each in advice)
    head = f"{name} version {version}: {many(samples, 'sample')}, {many(whole, 'byte')}; "
    head += f"the best encodings save {saved} ({100 * saved / max(whole, 1):.1f} %)"
    return [head, "", *table_lines(table, left={0, 3, 5})]


# ---- generate


@schema.command(examples=("magicbyte schema generate schemas --out generated",))
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", type=OutputPath(folder=True), required=True, metavar="DIR", help="The folder for the code.")
@click.option("--check", "check_only", is_flag=True, help="Write nothing; exit status 1 if the code is stale.")
def generate(directory: Path, out: Path, check_only: bool) -> None:
    """Write Python for the schemas in DIR.

    One module for each API, with a dataclass for all versions of a message. The code needs nothing of magicbyte but
    magicbyte.engine.protocol. Modules generated for removed schemas are deleted.
    """
    from magicbyte.engine.log.files.outputs import refuse_overlap
    from magicbyte.schema import load_directory
    from magicbyte.schema.output import stale, write
    from magicbyte.schema.python import modules

    warnings: list[SchemaError] = []
    schemas = load_directory(directory, warnings)
    if not schemas:
        raise click.UsageError(f"{directory} has no .json file")
    if warnings:
        complain(
            f"warning: {many(len(warnings), 'warning')} in {directory}: magicbyte schema check lists what was assumed"
        )
    refuse_overlap(out, [directory])
    files = modules(schemas)
    changed = stale(out, files) if check_only else write(out, files)
    for name in changed:
        say(f"{'stale' if check_only else 'written' if name in files else 'removed'}: {out / name}")
    outcome = f"{len(changed)} {'stale' if check_only else 'changed'}"
    say(f"{many(len(schemas), 'schema')}, {many(len(files), 'module')}, {outcome}")
    if check_only and changed:
        click.get_current_context().exit(_FAILED)


# ---- what they share


def _message(name: str) -> MessageSchema:
    """Return the schema in a file, or of a message that is included in magicbyte."""
    return _loaded(_file_of(name))


def _loaded(path: Path) -> MessageSchema:
    """Return the schema in a file, and report what was assumed. Raises SchemaErrors."""
    from magicbyte.schema import SchemaErrors, read

    message, findings = read(path)
    if message is None:
        raise SchemaErrors(findings)
    for finding in findings:
        complain(finding)
    return message


def _file_of(name: str) -> Path:
    """Return the path of a schema file, or of that of an included message."""
    from magicbyte.schema import bundled_file

    path = Path(name)
    return path if path.suffix == ".json" or path.is_file() else bundled_file(name)


def _text_of(path: Path) -> str:
    try:
        given = str(path) == "-"
        text = (read_bounded(sys.stdin.buffer, "stdin") if given else read_regular(path)).decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{path}: expected UTF-8, found the byte {error.object[error.start]:#04x}") from error
    return text


def _signed(number: int) -> str:
    return f"{number:+}" if number else "0"
