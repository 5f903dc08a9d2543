"""Each rule of the formats, the log and the reports has one home; the detectors below find a second one.

Each detector takes the tree of a module and yields what it found there: the names of functions or classes, or lines.
`PLANTED` has code that each must find. The rules of `records/layout.py` are in `records/test_layout_homes.py`, those of
walks over files and of where an entry ends in `test_house.py`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import pytest

from syntax import parsed, sources, walk

Found: TypeAlias = Iterator[str]


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def attributes_of(node: ast.ClassDef) -> set[str]:
    return {
        line.target.id for line in node.body if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }


# ---- cutting frames


def sizes_of_frames(tree: ast.AST) -> Found:
    """Find reads and writes of the four bytes before a frame, and of fields at its beginning."""
    structs = {
        target.id
        for node in walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        and re.search(r"Struct\('[>!][iI]'\)", ast.unparse(node.value))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }  # fmt: skip
    for node in walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            text, owner = ast.unparse(node), ast.unparse(node.func.value)
            is_size = node.func.attr in ("unpack", "unpack_from") and (owner in structs or "'>i'" in text)
            if is_size or text.endswith(".to_bytes(4, 'big')") or re.search(r"from_bytes\(frame\[:\d\]", text):
                yield text


# ---- LZ4


def frame_magics(tree: ast.AST) -> Found:
    yield from (
        "the magic number of a frame"
        for node in walk(tree)
        if isinstance(node, ast.Constant) and node.value in (0x04224D18, b"\x04\x22\x4d\x18")
    )


def block_readers(tree: ast.AST) -> Found:
    """Find functions that take a token of an LZ4 block apart, into the sizes of literals and of a match."""
    for function in functions(tree):
        texts = {ast.unparse(node) for node in walk(function) if isinstance(node, ast.BinOp)}
        sizes = [re.fullmatch(r"\((\w+) & 15\) \+ (4|LEAST_MATCH)", text) for text in texts]
        tokens = {size[1] for size in sizes if size is not None}
        if any(f"{token} >> 4" in texts for token in tokens):
            yield function.name


# ---- an append


OF_AN_APPEND: Final = {"first_offset", "last_offset", "max_timestamp"}
ITS_BYTES: Final = {"pieces", "data", "content", "records", "buffer"}


def append_records(tree: ast.AST) -> Found:
    """Find classes that hold the bytes of a set together with its offsets and largest timestamp."""
    for node in walk(tree):
        if isinstance(node, ast.ClassDef):
            names = attributes_of(node)
            if names >= OF_AN_APPEND and names & ITS_BYTES:
                yield node.name


def set_makers(tree: ast.AST) -> Found:
    """Find functions that read the headers of a set for its facts, or make the record of an append."""
    for function in functions(tree):
        calls = {ast.unparse(node.func) for node in walk(function) if isinstance(node, ast.Call)}
        if calls & {"record_set", "RecordSet"}:
            yield function.name


# ---- entries


def walks_of_entries(tree: ast.AST) -> Found:
    """Find loops that parse one entry after another."""
    for node in walk(tree):
        if isinstance(node, ast.While):
            calls = {ast.unparse(part.func) for part in walk(node) if isinstance(part, ast.Call)}
            parsing = {"RecordBatch.parse", "MessageView.parse", "EnrichedMessage.parse", "parse_entry", "entry_size"}
            if calls & parsing:
                yield ", ".join(sorted(calls & parsing))


def next_offsets(tree: ast.AST) -> Found:
    """Find sums of an object's last offset and 1, outside of its own properties."""
    for node in walk(tree):
        if isinstance(node, ast.BinOp) and re.fullmatch(r"(?!self\.last)[\w.]+\.last_offset \+ 1", ast.unparse(node)):
            yield ast.unparse(node)


def largest_timestamps(tree: ast.AST) -> Found:
    """Find functions that take the timestamp of an entry from its header by magic."""
    for function in functions(tree):
        names = {node.id.removesuffix("_AT") for node in walk(function) if isinstance(node, ast.Name)}
        if names >= {"MAX_TIMESTAMP", "V1_TIMESTAMP"}:
            yield function.name


# ---- sentinels


def sentinels(tree: ast.AST) -> Found:
    """Find names for an absent id, epoch or offset."""
    for node in getattr(tree, "body", []):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            name = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
            if ast.unparse(node.value) == "-1" and re.match("_?(NO_|NOBODY|UNKNOWN)", name):
                yield name


# ---- releases


def is_release(node: ast.expr) -> bool:
    """Say whether an operand of a comparison is a release: a tuple of its numbers, or one that was parsed."""
    if isinstance(node, ast.Tuple):
        return len(node.elts) > 1 and all(isinstance(n, ast.Constant) and isinstance(n.value, int) for n in node.elts)
    text = ast.unparse(node)
    return text.endswith(".line") or text.startswith(("Release.of(", "numbers(", "protocol_version("))


def comparisons_of_releases(tree: ast.AST) -> Found:
    for node in walk(tree):
        is_order = isinstance(node, ast.Compare) and not any(isinstance(op, ast.In | ast.NotIn) for op in node.ops)
        if is_order and any(is_release(operand) for operand in (node.left, *node.comparators)):
            yield ast.unparse(node)


# ---- settings


SETTING: Final = re.compile(r"[a-z]+(\.[a-z]+){1,6}")


def settings_typed(tree: ast.AST) -> Found:
    """Find texts of settings that become numbers or flags."""
    for node in walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("int", "float", "bool"):
            texts = (part.value for part in walk(node) if isinstance(part, ast.Constant))
            if "values[" not in ast.unparse(node) and any(isinstance(t, str) and SETTING.fullmatch(t) for t in texts):
                yield ast.unparse(node)
        elif isinstance(node, ast.Compare) and re.search(r"\.lower\(\) \S.*'true'", ast.unparse(node)):
            yield ast.unparse(node)


def topic_settings_parsed(tree: ast.AST) -> Found:
    """Find functions that parse a topic's setting, or make a part's configuration of texts."""
    for function in functions(tree):
        calls = {ast.unparse(node.func) for node in walk(function) if isinstance(node, ast.Call)}
        arguments = {ast.unparse(each.annotation) for each in function.args.args if each.annotation is not None}
        is_config = function.name == "of" and "cls" in ast.unparse(function.args) and "Mapping[str, str]" in arguments
        if is_config or any(re.search(r"(\bTOPIC_SETTINGS\[.*\]|\.setting)\.parse$", call) for call in calls):
            yield function.name


# ---- reports


def projections(tree: ast.AST) -> Found:
    """Find dictionaries with camelCase keys of which two or more values are attributes of the same object."""
    own = {node for function in functions(tree) if function.name == "to_json" for node in walk(function)}
    for node in walk(tree):
        if isinstance(node, ast.Dict) and node not in own:
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
            values = [value for value in node.values if isinstance(value, ast.Attribute)]
            owners = [value.value.id for value in values if isinstance(value.value, ast.Name)]
            is_json = len(keys) > 1 and all(re.fullmatch(r"[a-z]+([A-Z][a-z]*)*", key) for key in keys)
            if is_json and len(owners) > len(set(owners)):
                yield ", ".join(keys)


Detector: TypeAlias = Callable[[ast.AST], Found]
PLANTED: Final[dict[Detector, str]] = {
    sizes_of_frames: 'SIZE = struct.Struct(">i")\n(size,) = SIZE.unpack_from(rest)',
    frame_magics: "if load_u32(data, at) != 0x04224D18: pass",
    block_readers: "def read(data):\n  token = data[0]\n  return token >> 4, (token & 15) + 4",
    append_records: "class Unchanged:\n  data: bytes\n  first_offset: int\n  last_offset: int\n  max_timestamp: int",
    set_makers: "def follow(taken):\n  log.append(record_set(taken.data, rules), now)",
    walks_of_entries: "while at < len(data):\n  entry = RecordBatch.parse(data[at:])\n  at += entry.size",
    next_offsets: "end = entry.last_offset + 1",
    largest_timestamps: "def time(view):\n  return MAX_TIMESTAMP.read(view) if is_batch else V1_TIMESTAMP.read(view)",
    sentinels: "_NO_EPOCH: Final = -1",
    comparisons_of_releases: "if release.number >= (2, 8): pass",
    topic_settings_parsed: "def of(cls, settings: Mapping[str, str]): pass",
    settings_typed: 'if settings["preallocate"].lower() == "true": pass',
    projections: 'say_json({"removedBytes": done.removed_bytes, "logStartOffset": done.log_start_offset})',
}


@pytest.mark.parametrize("detector", PLANTED, ids=lambda detector: detector.__name__)
def test_a_second_home_is_found(detector: Detector) -> None:
    assert list(detector(parsed(PLANTED[detector])))


def homes(detector: Detector, *rooms: str) -> set[str]:
    """Return the modules in which `detector` finds something; of `rooms` only, if there are any."""
    return {name for name, tree in sources().items() if name.startswith(rooms or "") and any(detector(tree))}


def places(detector: Detector, *rooms: str) -> set[str]:
    """Return what `detector` finds, with its modules."""
    return {
        f"{name} {found}"
        for name, tree in sources().items()
        if name.startswith(rooms or "")
        for found in detector(tree)
    }


SERVER = ("apis/", "broker/", "coordinating/", "partitions/", "serving/", "settings/", "stores/")
CONNECTED = (
    *SERVER,
    "client/",
    "launch/",
    "migration/",
    "mirror/",
    "net/",
    "public/",
    "rescue/",
    "security/",
    "testing/",
)


def test_frames_of_connections_are_cut_and_their_beginnings_read_by_one_module() -> None:
    assert homes(sizes_of_frames, *CONNECTED, "protocol/framing") == {"protocol/framing.py"}


def test_lz4_frames_and_blocks_are_read_in_one_place_for_each_kind_of_loop() -> None:
    """The loops are apart because one for all would cost a fifth; `lz4_read_kernels` has the measurement."""
    assert homes(frame_magics) == {"codecs/lz4_frame_kernels.py"}
    assert places(block_readers) == {
        "codecs/lz4_read_kernels.py read_sequence",  # any sequence, with all checks
        "codecs/lz4_read_kernels.py read_rest",  # usual sequences of one block
        "codecs/lz4_read_kernels.py read_two",  # of two blocks at once
        "codecs/lz4_kernels.py read_block",  # of one block whose matches are recorded
    }


def test_an_append_has_one_record_made_by_the_room_of_appends() -> None:
    assert places(append_records, "log/", *SERVER, "mirror/", "spark/", "records/") == {
        "log/append/record_set.py RecordSet"
    }
    assert {name.rpartition("/")[0] for name in homes(set_makers)} == {"log/append"}


def test_entries_are_walked_over_by_one_loop_for_each_form_that_they_have() -> None:
    assert homes(walks_of_entries) == {
        "records/kernels/scan.py",  # of a slice, as a table
        "records/search_kernels.py",  # after damage
        "mirror/rewrite.py",  # rows of a table
    }


def test_the_next_offset_is_a_property_of_whatever_has_a_last_one() -> None:
    assert places(next_offsets) == {
        "offline/rebuild.py look_ups.last_offset + 1",
        "partitions/appends.py self.appended.last_offset + 1",
    }


def test_the_largest_timestamp_of_an_entry_is_read_in_one_place_for_each_form_that_entries_have() -> None:
    """Of a single entry `records/header.py` reads it, with its offsets, by two layouts of fields."""
    assert places(largest_timestamps) == {
        "records/extent.py max_timestamps",  # of a table
        "log/append/index_kernels.py due_entries",  # of entries in a row, for their indexes
        "log/cleaning/compaction_sets.py _kinds",  # not the largest: sets with one append time may be merged
    }


def test_each_sentinel_of_the_protocol_has_one_name() -> None:
    others = {name for name in places(sentinels) if not name.startswith("sentinels.py")}
    assert others == {
        "records/enriched.py NO_TAGS",
        "records/kernels/runs.py NO_TYPE",
        "testing/checker/judge.py NO_OPERATION",
    }


def test_only_one_module_compares_releases() -> None:
    assert homes(comparisons_of_releases) == {"releases.py"}


def test_texts_of_settings_are_typed_where_they_are_checked() -> None:
    assert places(settings_typed, "offline/", *SERVER, "groups/", "log/", "mirror/", "transactions/") == {
        "settings/settings.py text.lower() in ('true', 'false')",
    }


def test_texts_of_a_topics_settings_are_parsed_by_one_function() -> None:
    """The parts of `log/` take the typed values from it."""
    rooms = (
        "offline/",
        "stores/topic",
        "settings/topic",
        "log/",
        "migration/",
        "mirror/",
        "public/",
        "rescue/",
        "spark/",
    )
    assert places(topic_settings_parsed, *rooms) == {"settings/topic_config.py typed"}


NO_REPORTS: Final = {
    "cli/anatomy.py": "a field of an entry",
    "cli/cat.py": "the name of a partition, before its records",
    "cli/configs.py": "whose settings are listed",
    "cli/dump.py": "a table of decoders",
    "cli/dump_files.py": "an entry of a file, as it is decoded",
    "cli/dump_log.py": "a batch or a record, as it is decoded",
    "cli/rebuild_index.py": "sums over segments, which are printed as they go by",
    "cli/tour.py": "a table of chapters",
    "spark/pipeline/report.py": "the report of a run, whose home this is",
    "spark/pipeline/runner.py": "a table of stages, and the beginning of a unit's result",
    "spark/pipeline/units.py": "what a fingerprint is of",
    "spark/pipeline/work.py": "the range of a live partition",
}
"""Modules of commands and pipelines with dictionaries of an object's attributes, and what they are instead."""


def test_a_report_is_made_json_once() -> None:
    """By its `to_json`: commands print what it returns, and stages of a pipeline take from it."""
    assert homes(projections, "cli/", "spark/") == set(NO_REPORTS)
