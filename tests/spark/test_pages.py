"""The pages about Spark are followed as printed, in new processes, in a folder that has only what the pages name."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.command import run
from magicbyte.access.client import Client, admin
from magicbyte.access.client.produce import send
from magicbyte.testing import Broker
from spark.logs import some_records

ROOT = Path(__file__).parents[2]
TOUR = "magicbyte tour --unpack tour"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a reader types: the first command of each page makes `tour`."""
    path = tmp_path_factory.mktemp("pages")
    assert run("tour", "--unpack", path / "tour").exit_code == 0
    return path


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The cluster of the pages, host:9092, with a topic `orders` of three partitions."""

    async def make_orders(address: str) -> None:
        async with Client(address) as client:
            await admin.create_topic(client, admin.NewTopic("orders", 3))
            for number in range(3):
                await send(client, "orders", number, some_records(10))

    with Broker() as broker:
        asyncio.run(make_orders(broker.bootstrap_servers))
        yield broker.bootstrap_servers


def blocks(page: str, kinds: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```(?:{kinds})\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def typed(folder: Path, *words: str | Path) -> str:
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.campaign  # a new Spark session for each example: minutes
def test_the_python_of_the_pages_on_dataframes_runs_as_printed(folder: Path, cluster: str) -> None:
    """One process for all pages: a session takes seconds to start."""
    pages = ("README.md", "docs/guides/data-engineers.md", "docs/spark/dataframes.md")
    program = []
    for page in pages:
        kinds = "python|python cluster" if page.endswith("dataframes.md") else "python spark"
        assert TOUR in "".join(blocks(page, "sh")), page
        program += [*blocks(page, kinds), f"print('end of {page}', flush=True)\n"]
    assert len(program) > 15
    (folder / "page.py").write_text("\n".join(program).replace("host:9092", cluster), encoding="utf-8")
    printed = typed(folder, "page.py")
    assert re.findall("end of (.*)", printed) == list(pages)
    assert "\n30 10\n" in printed, "records of the cluster's topic"


@pytest.mark.spark
@pytest.mark.slow
def test_the_pipeline_of_the_page_runs_as_printed(folder: Path) -> None:
    page = "docs/spark/pipeline.md"
    first, commands = blocks(page, "sh")
    assert first.startswith(TOUR)
    (config,) = blocks(page, "toml nightly.toml")
    (folder / "nightly.toml").write_text(config, encoding="utf-8")
    for line in commands.splitlines():
        printed = typed(folder, "-m", *line.partition("#")[0].split())
    (script,) = blocks(page, "python")
    (folder / "pipeline.py").write_text(script, encoding="utf-8")
    printed += typed(folder, "pipeline.py")
    assert printed.splitlines()[-1] == "0 [('basic-zstd-0', 'done'), ('txn-open-none-0', 'done')]"
