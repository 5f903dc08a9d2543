"""Type the commands and the Python of pages where only the packages of the base wheel are installed.

`python tests/base_wheel.py FOLDER`, in a Python without others: prints a JSON object for each example that fails.
"""

import contextlib
import io
import json
import os
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from pages import OFFLINE, ROOT, blocks, commands_of, page, run_python


def link_base_packages(folder: Path) -> None:
    """Make links in a folder to the packages that the base wheel requires, and to nothing else."""
    from packaging.requirements import Requirement  # not of the base wheel

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    due, known = list(project["dependencies"]), set[str]()
    while due:
        required = Requirement(due.pop())
        if required.name in known or (required.marker is not None and not required.marker.evaluate({"extra": ""})):
            continue
        known.add(required.name)
        found = distribution(required.name)
        due += found.requires or []
        for name in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            with contextlib.suppress(FileExistsError):
                (folder / name).symlink_to(Path(str(found.locate_file(name))))


def type_pages(folder: Path) -> None:
    """Follow each page in a folder of its own, beside `tour`."""
    from magicbyte.cli.main import main
    from magicbyte.engine.errors import MagicbyteError

    for name in OFFLINE:
        own = folder / name.replace("/", "-")
        own.mkdir()
        (own / "tour").symlink_to(folder / "tour")
        os.chdir(own)
        for words, status in commands_of(page(name)):
            code, errors = 0, io.StringIO()
            with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())), contextlib.redirect_stderr(errors):
                try:
                    main(words, prog_name="magicbyte")
                except SystemExit as ended:
                    code = int(ended.code or 0)
            if code != status:
                report(name, " ".join(words), errors.getvalue().splitlines()[-1])
        for script in blocks(page(name), "python"):
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    run_python(script, name)
            except (MagicbyteError, ImportError) as error:
                report(name, script, str(error))


def report(name: str, example: str, message: str) -> None:
    """Print that an example failed."""
    print(json.dumps({"page": name, "example": example, "message": message}), flush=True)


if __name__ == "__main__":
    type_pages(Path(sys.argv[1]))
