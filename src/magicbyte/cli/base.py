"""The classes of all commands: what each has in its help and takes besides its own options."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from magicbyte.cli.output import say_text

COLOR: Final[Mapping[str, bool | None]] = {"auto": None, "always": True, "never": False}
"""The values of --color, and what click makes of them: with None a terminal decides."""


def color_of_environment() -> bool | None:
    """Return what NO_COLOR and FORCE_COLOR say, the first of them first; None where neither is set."""
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def _set_color(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    # The outermost context, too: errors of a command are printed after its own context is closed.
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


class Command(click.Command):
    """A command with `examples`, lines as they are typed, at the end of its help. It takes --color."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **named: Any) -> None:
        super().__init__(*args, **named)
        self.examples = tuple(examples)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options and arguments, and before --help the option that all commands have."""
        *own, last = super().get_params(ctx)
        return [*own, _color_option(), last]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, and after them what else there is to say."""
        write_examples(formatter, self.examples)
        super().format_epilog(ctx, formatter)


class CommandGroup(click.Group):
    """A group of commands. Its help has the first example of each. Without a command it prints its help."""

    command_class = Command

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options, and before --help the option that all commands have."""
        *own, last = super().get_params(ctx)
        return [*own, _color_option(), last]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read what belongs to the group; without a command print the help."""
        if not args and not ctx.resilient_parsing:
            say_text(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write an example of each command, and after them what else there is to say."""
        found = [each.examples[0] for each in self.commands.values() if isinstance(each, Command) and each.examples]
        write_examples(formatter, found)
        super().format_epilog(ctx, formatter)


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    """Write lines as they are, neither wrapped nor cut."""
    if examples:
        with formatter.section("Examples"):
            for each in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{each}\n")
