"""docs/images is as tools/pictures.py draws it from the present results, pages and logs."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_picture_is_as_it_would_be_drawn_now() -> None:
    command = [sys.executable, "tools/pictures.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), "run tools/pictures.py, and look at them"


def test_every_picture_stands_on_a_page() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    texts = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert [
        path.name for path in sorted((ROOT / "docs/images").glob("*.svg")) if f"images/{path.name})" not in texts
    ] == []
