"""Draw docs/images/inventory.svg: what `magicbyte inventory` prints of the bundled logs.

Run: .venv/bin/python tools/picture.py
"""

import contextlib
import os
import re
import tempfile
from pathlib import Path

from click.testing import CliRunner
from rich.console import Console
from rich.text import Text

from magicbyte.cli.main import main

PICTURE = Path(__file__).parent.parent / "docs/images/inventory.svg"


def picture() -> str:
    """Return the picture as SVG."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        CliRunner().invoke(main, ["tour", "--unpack", "tour"])
        printed = CliRunner().invoke(main, ["inventory", "tour/logs"]).stdout
    with open(os.devnull, "w", encoding="utf-8") as sink:
        console = Console(record=True, width=100, file=sink, color_system="truecolor")
        console.print(Text("$ magicbyte inventory logs", style="bold"))
        console.print(Text(printed.rstrip()))
    drawn = console.export_svg(title="magicbyte", unique_id="magicbyte")
    drawn = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # whoever looks at it fetches no font
    return re.sub(r"<!--.*?-->|[ \t]+$", "", drawn, flags=re.MULTILINE)


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
