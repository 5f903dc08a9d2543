"""The documents' migration on a cluster of real brokers and ours, under the load of real clients, step by step."""

from pathlib import Path

import pytest

from builders import run
from interop.migration_story import ERAS, told

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]


@pytest.mark.parametrize("release", ERAS)
def test_each_step_converts_what_the_documents_say_and_loses_nothing(release: str, tmp_path: Path) -> None:
    async def work() -> list[str]:
        return (await told(release, tmp_path)).lines

    run(work(), 900)
