"""Runs the command line inside the test's process."""

from pathlib import Path

from click.testing import CliRunner, Result

from magicbyte.cli.main import main


def run(*arguments: str | Path) -> Result:
    """What a command line does: `exit_code`, `stdout`, `stdout_bytes`, `stderr`. No exception may leave it."""
    result = CliRunner().invoke(main, [str(each) for each in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result
