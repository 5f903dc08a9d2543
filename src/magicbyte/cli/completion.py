"""`magicbyte completion`: print the script with which a shell completes command lines."""

import click
from click.shell_completion import get_completion_class

from magicbyte.cli.base import Command
from magicbyte.cli.output import say_text


@click.command(
    cls=Command,
    examples=(
        'eval "$(magicbyte completion bash)"',
        "magicbyte completion fish > ~/.config/fish/completions/magicbyte.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that lets a shell complete commands and options."""
    found = get_completion_class(shell)
    assert found is not None, "click has a class for each of the shells that are offered"
    root = click.get_current_context().find_root().command
    say_text(found(root, {}, "magicbyte", "_MAGICBYTE_COMPLETE").source())
