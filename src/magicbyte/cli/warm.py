"""`magicbyte warm`: compile the kernels before their first use."""

import importlib
import pkgutil

import click

from magicbyte.cli.base import Command
from magicbyte.cli.output import say


@click.command(cls=Command, examples=("magicbyte warm",))
def warm() -> None:
    """Compile the kernels now instead of at their first use.

    Takes some seconds, once per machine and version: for set-up scripts, images and Spark workers. If the package
    includes machine code for this processor (wheels on Linux, x86-64 and arm64), nothing is compiled.
    """
    from magicbyte.engine import extras
    from magicbyte.engine.compiled import kernel, shipped

    if shipped.library() is None:
        extras.require("fast", "machine code of the kernels")
    for room in ("magicbyte.engine.codecs", "magicbyte.engine.records", "magicbyte.engine.log"):
        for module in pkgutil.walk_packages(importlib.import_module(room).__path__, f"{room}."):
            if module.name.endswith("kernels") or ".kernels." in module.name:
                importlib.import_module(module.name)
    count = kernel.warm()
    where = shipped.FOLDER if shipped.library() is not None else kernel.cache_directory()
    say(f"{count} kernels are ready in {where or 'memory only: no folder can be written'}")
