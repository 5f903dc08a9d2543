"""`magicbyte warm`: compile the kernels ahead of their first use."""

import click


@click.command()
def warm() -> None:
    """Compile the fast paths now, not at their first use.

    Takes some seconds, once per machine and version: for set-up scripts, images and Spark workers.
    """
    import magicbyte.records.kernels  # noqa: F401 (compiled because it is imported)
    from magicbyte.wire import kernel

    count = kernel.warm()
    click.echo(f"{count} kernels are ready in {kernel.cache_directory() or 'memory only: no folder can be written'}")
