"""`python -m magicbyte`: the command line."""

from magicbyte.cli.main import main

main(prog_name="magicbyte")
