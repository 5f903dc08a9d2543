"""Fetches by old consumers that real brokers answered by converting: our conversion of their files says the same."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import golden_data
from magicbyte.engine.codecs import Lz4Header, decompress
from magicbyte.engine.errors import UnsupportedCompressionError
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.convert import ConversionReport, convert
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.entry import Entry, entries
from magicbyte.engine.records.message import MessageView

BROKERS = ("0.11.0.3", "2.8.2", "3.9.1", "3.9.1-ibp2.8")  # 0.10.x merges what it converts into one wrapper
FORMS = ["plain", "compiled"]


class Fetch(NamedTuple):
    case: golden_data.WireCase
    label: str
    said: dict[str, Any]
    answer: bytes

    @property
    def target(self) -> Format:
        return Format.V0 if self.said["apiVersion"] < 2 else Format.V1 if self.said["apiVersion"] < 4 else Format.V2

    @property
    def asked_for_little(self) -> bool:
        return self.label.endswith(("small", "tiny"))


def fetches(case: golden_data.WireCase) -> Iterator[Fetch]:
    for label, said, answer in case.record_sets():
        if said["apiVersion"] < 4:
            yield Fetch(case, label, said, answer)


CASES = [case for broker in BROKERS for case in golden_data.wire_cases(broker, "fetch-") if len(case.segment)]
MERGING = [case for broker in ("0.10.0.1", "0.10.2.2") for case in golden_data.wire_cases(broker, "fetch-")]


def last_offset(entry: Entry) -> int:
    assert entry.last_offset is not None
    return entry.last_offset


def slice_of(fetch: Fetch) -> bytes:
    """The log from the entry with the fetch offset on; a broker reads no more of it than the request allows."""
    content = fetch.case.segment
    start = next(
        (at for at, entry in entries(content) if last_offset(entry) >= fetch.said["fetchOffset"]), len(content)
    )
    return content[start:]


def described(content: bytes | memoryview) -> list[tuple[object, ...]]:
    """Each entry: header fields that a reader looks at, and the payload, decompressed."""
    found: list[tuple[object, ...]] = []
    for _, entry in entries(content):
        if isinstance(entry, MessageView):
            entry.verify()
            value: object = None if entry.value is None else bytes(entry.value)
            if entry.is_wrapper:
                assert entry.value is not None
                header = Lz4Header.BROKEN if entry.magic == 0 else Lz4Header.CORRECT
                value = bytes(decompress(entry.codec, entry.value, limit=1 << 20, lz4_header=header))
            key = None if entry.key is None else bytes(entry.key)
            found.append((entry.magic, entry.offset, entry.attributes, entry.timestamp, key, value))
        else:
            assert isinstance(entry, RecordBatch)
            found.append((entry.magic, bytes(entry.buffer)))
    return found


def converted(fetch: Fetch, report: ConversionReport | None = None) -> bytes:
    return b"".join(convert(slice_of(fetch), fetch.target, fetch_offset=fetch.said["fetchOffset"], report=report))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_converted_slice_has_the_entries_that_the_broker_sent(
    case: golden_data.WireCase, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGICBYTE_KERNELS", form)
    for fetch in fetches(case):
        if case.name == "fetch-v2-zstd" and slice_of(fetch):
            assert described(fetch.answer) == []  # error 76, or found out too late to say so
            with pytest.raises(UnsupportedCompressionError):
                converted(fetch)
            continue
        if fetch.said["errorCode"]:  # 0.11.0.3 answers -1 where there are headers
            continue
        ours = converted(fetch)
        expected, found = described(fetch.answer), described(ours)
        if len(expected) > 1 and expected[0] == expected[1]:
            expected = expected[1:]  # 3.9.1 repeats what follows a control batch that it leaves out first
        assert found[: len(expected)] == expected, fetch.label
        if case.name == "fetch-txn" or fetch.asked_for_little:
            continue  # a read ends where its segment ends, or in the middle of an entry
        if len(expected) < len(found):  # the broker sends as many bytes as it has read
            following = [entry.size for _, entry in entries(ours)][len(expected)]
            size = sum(entry.size for _, entry in entries(fetch.answer))
            assert size + following > fetch.said["recordSetSize"] * 0.95, fetch.label


@pytest.mark.parametrize("case", MERGING, ids=str)
def test_where_the_broker_merges_wrappers_the_records_are_the_same(case: golden_data.WireCase) -> None:
    for fetch in fetches(case):
        if not fetch.said["errorCode"] and not fetch.asked_for_little:
            expected, found = (
                [row for columns in decode(memoryview(each)) for row in columns]
                for each in (fetch.answer, converted(fetch))
            )
            assert found == expected, fetch.label


def test_the_captures_hold_conversions_of_every_kind() -> None:
    answered = [
        fetch
        for case in CASES
        if case.name != "fetch-v2-zstd"
        for fetch in fetches(case)
        if not fetch.said["errorCode"] and fetch.answer
    ]
    kinds = {(fetch.case.name, fetch.target) for fetch in answered}
    for codec in ("none", "gzip", "snappy", "lz4"):
        assert {(f"fetch-v2-{codec}", target) for target in (Format.V0, Format.V1)} <= kinds
        assert (f"fetch-v1-{codec}", Format.V0) in kinds
    reports = {}
    for fetch in answered:
        converted(fetch, reports.setdefault(fetch.case.id, ConversionReport()))
    assert reports["2.8.2/fetch-v2-none-headers"].headers > 0
    assert reports["2.8.2/fetch-v2-none"].records_below_fetch_offset > 0
    assert reports["3.9.1/fetch-txn"].transaction_markers > 0
    assert reports["3.9.1/fetch-txn"].producer_states > 0
    assert reports["2.8.2/fetch-v1-none"].timestamps > 0
