"""Where a migration stands: formats by segment, the next step, and the end of the old format as retention makes it."""

import os
from pathlib import Path

import pytest

from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.append.prepare import prepare
from magicbyte.engine.log.files.directory import PartitionDirectory, discover
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.tools.offline.migration import (
    Phase,
    Step,
    TopicEvidence,
    TopicStage,
    Use,
    format_read_by,
    leaves_ms,
    segment_facts,
    stage_of,
)
from topic_settings import append_rules, log_config

V0, V1, V2 = Format.V0, Format.V1, Format.V2
START = 1_700_000_000_000
TICK = 10_000  # ms between sets, and between looks of retention
SET = 10  # records


class World:
    """A log that is written to and cleaned, by a clock of its own."""

    def __init__(self, folder: Path, form: Format, **settings: int) -> None:
        named = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.config = log_config({"retention.ms": "-1", **named})
        self.folder, self.now, self.form = folder, START, form
        self.log = PartitionLog.open(LocalFiles(), str(folder), self.config, monotonic_ms=START, clean=True)

    def append(self) -> int:
        """Append a set; return how large it is stored."""
        rows = [Record(at, self.now, 0, b"key", b"value" * 20) for at in range(SET)]
        rules = append_rules({"message.format.version": self.form.value})
        data = memoryview(encode_records(rows, self.form, Codec.NONE))
        log = self.log
        prepared = prepare(data, rules, next_offset=log.log_end_offset, now_ms=self.now, leader_epoch=0)
        log.append(prepared, Moment.fixed(self.now))
        log.high_watermark = log.log_end_offset
        os.utime(Path(log.active.path(".log")), (self.now / 1000, self.now / 1000))  # as if the clock were the system's
        return prepared.size

    def tick(self, *, writes: bool) -> None:
        self.now += TICK
        if writes:
            self.append()
        self.log.delete_old_segments(Moment.fixed(self.now))

    def partition(self) -> PartitionDirectory:
        (found,) = discover([str(self.folder)])
        return found

    def has_older_than(self, target: Format) -> bool:
        current = {each.path(".log").rpartition("/")[2] for each in self.log.segments}
        facts = zip(self.partition().segments, segment_facts(self.partition()), strict=True)
        return any(each.has_older_than(target) for segment, each in facts if segment.log.name in current)


CASES = {
    "by age, of full segments": ({"retention_ms": 600_000, "segment_bytes": 10_000}, True),
    "by age, of a segment that ends by age": ({"retention_ms": 300_000, "segment_ms": 200_000}, True),
    "by size": ({"retention_bytes": 40_000, "segment_bytes": 10_000}, True),
    "by whichever is first": ({"retention_ms": 900_000, "retention_bytes": 20_000, "segment_bytes": 10_000}, True),
    "by age, without a writer": ({"retention_ms": 600_000, "segment_bytes": 10_000}, False),
}


@pytest.mark.parametrize(
    ("old", "new", "case"),
    # A segment that begins with magic 0 has the age of its file, which nothing tells later: those end by size here.
    [(V1, V2, case) for case in CASES] + [(V0, V1, case) for case in CASES if "ends by age" not in case],
)
def test_the_old_format_leaves_when_it_was_said_to(case: str, old: Format, new: Format, tmp_path: Path) -> None:
    settings, writes = CASES[case]
    world = World(tmp_path / "topic-0", old, **settings)
    for _ in range(25):
        world.tick(writes=True)
    world.form = new
    rate = 0.0
    if writes:
        world.now += TICK
        rate = world.append() / (TICK / 1000)
    facts = segment_facts(world.partition())
    said = leaves_ms(facts, new, world.config, now_ms=world.now, bytes_per_s=rate)
    assert said is not None
    assert said > world.now
    while world.has_older_than(new):
        assert world.now < said + 2 * TICK, "it is still there"
        world.tick(writes=writes)
    assert abs(world.now - said) <= 2 * TICK  # sets come whole, and retention looks once in a tick
    world.log.close()


def test_formats_that_have_left_or_never_leave_are_reported(tmp_path: Path) -> None:
    world = World(tmp_path / "topic-0", V1, retention_ms=1000)
    world.append()
    facts = segment_facts(world.partition())
    assert leaves_ms(facts, V1, world.config, now_ms=world.now, bytes_per_s=0) == 0
    for settings in ({"retention.ms": "-1"}, {"cleanup.policy": "compact", "retention.ms": "1000"}):
        assert leaves_ms(facts, V2, log_config(settings), now_ms=world.now, bytes_per_s=5) is None
    world.log.close()


def test_formats_and_codecs_of_a_segment_are_read_from_its_headers(tmp_path: Path) -> None:
    folder = tmp_path / "topic-0"
    folder.mkdir()
    rows = [Record(at, START + at, 0, b"key", b"value") for at in range(SET)]
    parts = {
        (form, codec): bytes(encode_records(rows, form, codec))
        for form in (V0, V1, V2)
        for codec in (Codec.NONE, Codec.GZIP)
    }
    (folder / f"{0:020}.log").write_bytes(b"".join(parts.values()))
    (partition,) = discover([str(folder)])
    (found,) = segment_facts(partition)
    for (form, codec), data in parts.items():
        stored = found.stored[form, codec]
        assert stored.bytes == len(data)
        assert stored.entries == (1 if codec is not Codec.NONE or form is V2 else SET)
    assert (found.first_ms, found.newest_ms) == (START, START + SET - 1)
    assert found.has_older_than(V2)
    assert not found.has_older_than(V0)


# ---- the next step


def use(*, consumer: bool, form: Format) -> Use:
    version = {V0: 1, V1: 2, V2: 4}[form]
    return Use(consumer, form, version, "client", "", 1, 10, 1, 0, 1, 10)


OLD_READER, OLD_WRITER = use(consumer=True, form=V0), use(consumer=False, form=V0)
NEW_READER, NEW_WRITER = use(consumer=True, form=V1), use(consumer=False, form=V1)


@pytest.mark.parametrize(
    ("configured", "stored", "uses", "stage"),
    [
        (V0, [V0], [OLD_READER, OLD_WRITER], TopicStage(V1, Phase.ONE, Step.UPGRADE_CONSUMERS, (OLD_READER,))),
        (V0, [V0], [NEW_READER, OLD_WRITER], TopicStage(V1, Phase.ONE, Step.SET_FORMAT)),
        (V0, [V0], [], TopicStage(V1, Phase.ONE, Step.SET_FORMAT)),
        (V1, [V0, V1], [OLD_READER], TopicStage(V1, Phase.TWO, Step.UPGRADE_CONSUMERS, (OLD_READER,))),
        (V1, [V0, V1], [NEW_READER, OLD_WRITER], TopicStage(V1, Phase.TWO, Step.UPGRADE_PRODUCERS, (OLD_WRITER,))),
        (V1, [V0, V1], [NEW_READER, NEW_WRITER], TopicStage(V1, Phase.TWO, Step.WAIT)),
        (V1, [V1], [OLD_READER], TopicStage(V1, Phase.TWO, Step.UPGRADE_CONSUMERS, (OLD_READER,))),
        (V1, [V1], [NEW_READER], TopicStage(V2, Phase.ONE, Step.UPGRADE_CONSUMERS, (NEW_READER,))),
        (V2, [V2], [use(consumer=True, form=V2)], TopicStage(V2, Phase.DONE, Step.NOTHING)),
        (V2, [], [], TopicStage(V2, Phase.DONE, Step.NOTHING)),
    ],
)
def test_the_steps_come_in_the_order_of_the_proposal(
    configured: Format, stored: list[Format], uses: list[Use], stage: TopicStage
) -> None:
    assert stage_of(configured, stored, uses) == stage


def test_what_retention_never_takes_is_to_be_converted() -> None:
    assert stage_of(V2, [V1, V2], [], known=TopicEvidence(leaves=False)) == TopicStage(V2, Phase.TWO, Step.CONVERT)


def test_a_chosen_target_may_be_two_formats_away() -> None:
    assert stage_of(V0, [V0], [NEW_READER], V2) == TopicStage(V2, Phase.ONE, Step.UPGRADE_CONSUMERS, (NEW_READER,))


def test_a_reader_knows_the_formats_that_its_fetch_brings() -> None:
    assert [format_read_by(version) for version in (0, 1, 2, 3, 4, 13)] == [V0, V0, V1, V1, V2, V2]
