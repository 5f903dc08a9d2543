"""`magicbyte` and `python -m magicbyte`: the command line."""

import signal


def main() -> None:
    """Run the command line and exit.

    Until it can answer Ctrl-C itself, the system does: the process ends, without a traceback.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from magicbyte.cli.main import main as run

    run(prog_name="magicbyte")


if __name__ == "__main__":
    main()
