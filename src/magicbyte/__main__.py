"""`magicbyte` and `python -m magicbyte`: the command line."""

import gc
import signal

_GC_THRESHOLD = 100_000
"""Objects between two garbage collections. Imported objects are permanent, and scanning them takes 15 ms."""


def main() -> None:
    """Run the command line and exit.

    Until it can answer Ctrl-C itself, the system does: the process ends, without a traceback.
    """
    gc.set_threshold(_GC_THRESHOLD)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from magicbyte.cli.main import main as run

    run(prog_name="magicbyte")


if __name__ == "__main__":
    main()
