"""Find the target partitions of a pipeline that writes to a running cluster. Runs on the driver."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence

from magicbyte.access.client import Client
from magicbyte.engine.errors import MirrorError
from magicbyte.spark.pipeline.config import PipelineTarget
from magicbyte.spark.pipeline.topics import Aim, client_of_target
from magicbyte.spark.pipeline.units import Unit
from magicbyte.tools.mirror.log_source import LogSource
from magicbyte.tools.mirror.offset_topic import make_offset_topic
from magicbyte.tools.mirror.plan import INTERNAL, Choice, Mode, TopicMirrorPlan, make_topic, plan


def aims(units: Sequence[Unit], target: PipelineTarget) -> Mapping[str, Aim]:
    """Return the target of each unit, by the unit's name, and create missing topics.

    Raises MirrorError for topics that would be partitioned by key, BrokerError, NetworkError.
    """
    return asyncio.run(_aims(units, target))


async def _aims(units: Sequence[Unit], target: PipelineTarget) -> dict[str, Aim]:
    for unit in units:
        if unit.partition.topic is None or unit.partition.topic in INTERNAL:
            raise MirrorError(f"{unit.name}: expected a topic that is not Kafka's own: choose `topics` of the source")
    sources: list[tuple[Client | LogSource, list[Unit]]] = []
    for bootstrap in sorted({unit.live.bootstrap for unit in units if unit.live is not None}):
        of_cluster = [(unit, unit.live) for unit in units if unit.live is not None and unit.live.bootstrap == bootstrap]
        sources.append((of_cluster[0][1].client(), [unit for unit, _ in of_cluster]))
    if in_files := [unit for unit in units if unit.live is None]:
        sources.append((LogSource(unit.partition for unit in in_files), in_files))
    aims: dict[str, Aim] = {}
    async with client_of_target(target) as there:
        has_map = target.transactional_id is None and await make_offset_topic(there)
        for here, some in sources:
            async with here:
                plans = await _plans(here, there, target, {str(unit.partition.topic) for unit in some})
            aims |= {unit.name: Aim(target, plans[str(unit.partition.topic)], has_map) for unit in some}
    return aims


async def _plans(
    here: Client | LogSource, there: Client, target: PipelineTarget, topics: Iterable[str]
) -> dict[str, TopicMirrorPlan]:
    pattern = re.compile("|".join(map(re.escape, sorted(topics))))
    choice = Choice(pattern, target.group, transactional_id=target.transactional_id)
    found = {each.name: each for each in await plan(here, there, choice)}
    for each in found.values():
        if each.mode in (Mode.KEYED, Mode.LEFT_OUT):
            raise MirrorError(f"{each.name}: {each.why}: use `magicbyte mirror`")
        await make_topic(there, each)
    return found
