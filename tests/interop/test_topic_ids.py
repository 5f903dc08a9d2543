"""Requests that name topics by id: our broker as a release answers as a real broker of it, but for the ids."""

from pathlib import Path

import pytest

from builders import run
from interop import jvm
from interop.topic_id_steps import outcomes
from ports import free_port
from server.broker.serving import Running

pytestmark = [pytest.mark.interop, pytest.mark.campaign, pytest.mark.usefixtures("needs_java")]


@pytest.mark.parametrize("release", ["4.4.0"])
def test_each_step_has_the_outcome_that_it_has_with_a_real_broker(release: str, tmp_path: Path) -> None:
    settings = {"auto.create.topics.enable": "false"}

    async def ours() -> list[tuple[str, object]]:
        async with Running(tmp_path / "ours", settings | {"as.version": release}) as broker:
            return await outcomes(broker.ports["PLAINTEXT"])

    found, port = run(ours()), free_port()
    given = [f"{name}={value}" for name, value in settings.items()]
    with jvm.broker(release, tmp_path / "real", *given, port=port, scratch=True):
        real = run(outcomes(port))
    assert found == real
