"""Write the man pages of all commands from their help: `python tools/man_pages.py FOLDER`.

magicbyte.1 lists the commands; magicbyte-COMMAND.1 has a command with all of its options and examples. tools/build.sh
puts them into the wheel, which installs them under share/man/man1.
"""

import datetime
import os
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))  # of the tree that is built

import click  # noqa: E402

from magicbyte import __version__  # noqa: E402
from magicbyte.cli.base import Command  # noqa: E402
from magicbyte.cli.main import COMMANDS, GROUPS, main  # noqa: E402
from magicbyte.cli.mirror import mirror  # noqa: E402
from magicbyte.cli.mirror_translate import translate  # noqa: E402

STATUS = {
    "0": "Done; sound; the same.",
    "1": "Damage or a difference was found and is reported.",
    "2": "Wrong use, or the command could not do its work; one line on stderr says why.",
    "130": "Ended by Ctrl-C.",
}


def write(folder: Path) -> None:
    """Write a page for the program and for each of its commands."""
    folder.mkdir(parents=True, exist_ok=True)
    context = click.Context(main, info_name="magicbyte")
    pages = {"magicbyte": program(context)}
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        pages[f"magicbyte-{name}"] = [*page(click.Context(command, info_name=name, parent=context)), *statuses()]
    for name, lines in pages.items():
        (folder / f"{name}.1").write_text("\n".join([head(name), *lines]) + "\n", encoding="ascii", newline="\n")


def head(name: str) -> str:
    """Return the title line. The date is that of the commit which is built."""
    made = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.UTC)
    return f'.TH "{name.upper()}" "1" "{made:%Y-%m-%d}" "magicbyte {__version__}" "magicbyte"'


def program(context: click.Context) -> Iterator[str]:
    """Yield the page of the program: what it is for, and its commands in groups."""
    summary = "read, verify, convert, compact, mirror and serve every Kafka message format"
    yield from [".SH NAME", f"magicbyte \\- {summary}", ".SH SYNOPSIS"]
    yield from [".B magicbyte", escaped("[OPTIONS] COMMAND [ARGS]..."), ".SH DESCRIPTION"]
    yield from paragraphs(context.command.help or "")
    yield ".SH OPTIONS"
    yield from options(context)
    for title, group in GROUPS.items():
        yield f".SH {escaped(title.upper())}"
        for name, text in group.items():
            yield from item(f"magicbyte-{name}(1)", text)
    yield from statuses()
    yield ".SH FILES"
    yield from ["Data goes to stdout, all else to stderr. An output file gets its name only when it is complete."]


def statuses() -> Iterator[str]:
    """Yield the exit statuses."""
    yield ".SH EXIT STATUS"
    for number, text in STATUS.items():
        yield from item(number, text)


def page(context: click.Context) -> Iterator[str]:
    """Yield what a man page has of a command, and of the commands inside it."""
    command = context.command
    first = (command.help or "").strip().partition("\n")[0]
    yield from [".SH NAME", f"{escaped(context.command_path.replace(' ', '-'))} \\- {escaped(first.rstrip('.'))}"]
    yield from [".SH SYNOPSIS", *synopsis(context), ".SH DESCRIPTION", *paragraphs(command.help or "")]
    yield ".SH OPTIONS"
    yield from options(context)
    yield from examples(command, ".SH EXAMPLES")
    yield from commands_inside(context)


def commands_inside(context: click.Context) -> Iterator[str]:
    """Yield the sections of the commands inside a group, and inside these."""
    group = context.command
    inside = group.commands if isinstance(group, click.Group) else {"translate": translate} if group is mirror else {}
    for name, command in inside.items():
        below = click.Context(command, info_name=name, parent=context)
        yield f".SH {escaped(below.command_path.upper())}"
        yield from [*synopsis(below), ".PP", *paragraphs(command.help or ""), ".SS Options", *options(below)]
        yield from examples(command, ".SS Examples")
        yield from commands_inside(below)


def synopsis(context: click.Context) -> Iterator[str]:
    """Yield how a command is called."""
    yield f".B {escaped(context.command_path)}"
    yield escaped(" ".join(context.command.collect_usage_pieces(context)))


def options(context: click.Context) -> Iterator[str]:
    """Yield each option with its explanation, as the help has it."""
    for parameter in context.command.get_params(context):
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and record is not None:
            yield from item(*record)


def examples(command: click.Command, title: str) -> Iterator[str]:
    """Yield the examples of a command, unchanged."""
    if isinstance(command, Command) and command.examples:
        yield from [title, ".nf", *map(escaped, command.examples), ".fi"]


def item(name: str, text: str) -> Iterator[str]:
    """Yield an entry of a list."""
    yield from [".TP", f".B {escaped(name)}", escaped(" ".join(text.split()))]


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text. One behind a line with only a backspace keeps its lines, as click has it."""
    for each in text.replace("\r", "").strip().split("\n\n"):
        lines = [line.strip() if "\b" not in each else line for line in each.splitlines() if line.strip("\b ")]
        if "\b" in each:
            yield from [".PP", ".nf", *map(escaped, lines), ".fi"]
        else:
            yield from [".PP", escaped(" ".join(lines))]


def escaped(text: str) -> str:
    """Return text as roff prints it unchanged: no escape, no hyphen that becomes another sign, no request."""
    safe = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq")
    safe = "".join(each if each.isascii() else f"\\[u{ord(each):04X}]" for each in safe)
    return f"\\&{safe}" if safe.startswith(".") else safe


if __name__ == "__main__":
    write(Path(sys.argv[1]))
