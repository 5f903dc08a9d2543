"""The base classes of all commands: examples in the help, and the option --color."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from magicbyte.cli.output import say_text

COLOR: Final[Mapping[str, bool | None]] = {"auto": None, "always": True, "never": False}
"""The values of --color, as click's: None depends on the terminal."""


def color_of_environment() -> bool | None:
    """Return the color setting of NO_COLOR or else FORCE_COLOR, None if neither is set."""
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def _set_color(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    # The outermost context, too, because errors are printed after the command's own context is closed.
    context.color = context.find_root().color = COLOR[value]


def _color_option() -> click.Option:
    return click.Option(
        ["--color"],
        type=click.Choice(list(COLOR)),
        is_eager=True,
        expose_value=False,
        callback=_set_color,
        help="Whether to print in color. NO_COLOR and FORCE_COLOR set the default.  [default: auto, on a terminal]",
    )


class _Number(click.IntRange):
    """A number in a range, whose errors say which numbers are expected."""

    def __init__(self, given: click.IntRange) -> None:
        super().__init__(given.min, given.max, given.min_open, given.max_open, given.clamp)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            ends = [f"{word} {end}" for word, end in (("from", self.min), ("to", self.max)) if end is not None]
            self.fail(f"expected a number {' '.join(ends)}, found {str(value)!r}", param, ctx)


class Command(click.Command):
    """A command with `examples`, lines as typed, at the end of its help, and the option --color."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **named: Any) -> None:
        super().__init__(*args, **named)
        self.examples = tuple(examples)
        for parameter in self.params:
            if isinstance(parameter.type, click.IntRange):
                parameter.type = _Number(parameter.type)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with the common option before --help."""
        *own, last = super().get_params(ctx)
        return [*own, _color_option(), last]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, then the epilog."""
        write_examples(formatter, self.examples)
        super().format_epilog(ctx, formatter)


class CommandGroup(click.Group):
    """A group of commands. Its help has the first example of each. Without a command it prints its help."""

    command_class = Command

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options, with the common option before --help."""
        *own, last = super().get_params(ctx)
        return [*own, _color_option(), last]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the group's options. Without a command, print the help."""
        if not args and not ctx.resilient_parsing:
            say_text(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write an example of each command, then the epilog."""
        found = [each.examples[0] for each in self.commands.values() if isinstance(each, Command) and each.examples]
        write_examples(formatter, found)
        super().format_epilog(ctx, formatter)


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    """Write lines unchanged, neither wrapped nor cut."""
    if examples:
        with formatter.section("Examples"):
            for each in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{each}\n")
