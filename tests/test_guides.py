"""The pages that tell a story are followed to the letter, in their order, from an empty folder, or with the
folders of `guide_folders.py`.

A block of `sh` is typed line by line. A block of `text` has lines of the output of the block before it. A block of
`python` is run, or, with a file name behind `python`, written to that file. A broker runs until the page ends.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cli.command import run
from guide_folders import PREPARED
from ports import free_port

ROOT = Path(__file__).parent.parent
GUIDES = (
    "start/install.md", "start/ten-minutes.md", "guides/old-logs.md", "guides/client-authors.md",
    "guides/data-engineers.md", "guides/operators.md", "guides/protocol-designers.md", "guides/kafka-4.md",
)  # fmt: skip
ADDRESS = "127.0.0.1:9092"
METRICS = "127.0.0.1:9644"
_BLOCK = re.compile(r"^```(sh|text|python)(?: (\S+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)


@contextmanager
def broker(line: str) -> Iterator[str]:
    """Run the `magicbyte serve` of a page on a port that is free, and give its address."""
    words = [sys.executable, "-m", *shlex.split(line.replace(ADDRESS, "127.0.0.1:0"))]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        listening = re.match(r"listening on (\S+)", process.stdout.readline())
        assert listening, line
        yield listening[1]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def typed(line: str, status: int) -> str:
    """Return what a line of shell prints."""
    if line.startswith("magicbyte ") and "|" not in line:
        result = run(*shlex.split(line)[1:])
        assert result.exit_code == status, (line, result.stderr)
        return str(result.stdout + result.stderr)
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment["PYTEST_ADDOPTS"] = "-p magicbyte.testing.plugin -p no:cacheprovider"  # as where it is installed
    here = re.sub(r"(^|\| )(magicbyte|pytest) ", rf"\1{shlex.quote(sys.executable)} -m \2 ", line)
    done = subprocess.run(["sh", "-c", here], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, (line, done.stdout, done.stderr)
    return done.stdout + done.stderr


def follow(text: str) -> None:
    """Do what a page says, in the current folder."""
    printed, names = "", dict[str, object]()
    text = text.replace(METRICS, f"127.0.0.1:{free_port()}")
    with ExitStack() as brokers:
        address = ADDRESS
        for kind, name, block in _BLOCK.findall(text):
            if name in ("no-run", "spark"):
                continue
            if kind == "text":
                lines = [" ".join(line.split()) for line in printed.splitlines()]
                for line in filter(None, map(str.strip, block.splitlines())):
                    assert any(" ".join(line.split()) in each for each in lines), (line, printed)
            elif name:
                Path(name).write_text(block, encoding="utf-8")
            elif kind == "python":
                exec(compile(block, "page", "exec"), names)
            else:
                printed = ""
                for line in block.splitlines():
                    command, _, remark = line.partition("  # ")
                    if command.startswith("magicbyte serve"):
                        address = brokers.enter_context(broker(command.strip()))
                    else:
                        printed += typed(command.strip().replace(ADDRESS, address), int("status 1" in remark))


@pytest.mark.parametrize("page", GUIDES)
def test_a_guide_is_followed_to_the_letter(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if page in PREPARED:
        PREPARED[page](tmp_path)
    follow((ROOT / "docs" / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ("```sh\nmagicbyte --version\n```\n```text\nnot that\n```\n", "not that"),
        ("```sh\nmagicbyte cat nowhere\n```\n", "magicbyte cat nowhere"),
        ("```sh\nfalse\n```\n", "false"),
    ],
)
def test_a_page_that_is_wrong_is_noticed(page: str, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        follow(page)
