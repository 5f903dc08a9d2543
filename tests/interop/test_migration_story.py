"""The documents' migration on a cluster of real brokers and ours, under the load of real clients, step by step."""

from pathlib import Path

import pytest

from builders import run
from interop.migration_story import ERAS, tell_story

GUIDE = Path(__file__).parents[2] / "docs/guides/operators.md"
GUIDED = "0.9.0.1"

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]


@pytest.mark.parametrize(
    "release", [pytest.param(each, marks=[] if each == GUIDED else pytest.mark.campaign) for each in ERAS]
)
def test_each_step_converts_what_the_documents_say_and_loses_nothing(release: str, tmp_path: Path) -> None:
    async def work() -> list[str]:
        return (await tell_story(release, tmp_path)).lines

    lines = run(work(), 2400)
    if release == GUIDED:
        printed = GUIDE.read_text(encoding="utf-8").partition("```text no-run\n")[2].partition("\n```")[0].splitlines()
        assert printed[:-2] == lines[:-2]  # the last lines have figures
