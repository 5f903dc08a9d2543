"""Header positions have one home, `records/layout.py`, and so has what headers tell of offsets; kernels lie where
`magicbyte warm` finds them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import magicbyte
from magicbyte.engine.records import layout

PACKAGE = Path(magicbyte.__file__).parent
ROOMS = ("engine/records", "engine/log", "tools/offline", "tools/mirror", "server")
FIELDS = {each.start for each in vars(layout).values() if isinstance(each, layout.Field)} - {0}
POSITIONS = FIELDS | {layout.LOG_OVERHEAD, layout.RECORD_BATCH_OVERHEAD, layout.ATTRIBUTES.start + 1}
WIDTHS = {8, 12}  # of integers and of entries of indexes, too: a position only where something is read or written
ACCESS = ("load_", "store_", "unpack_from", "pack_into")


def bare_positions(source: str) -> Iterator[int]:
    """Give the line of each header position that is a number: added to something, or where something is accessed."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            if isinstance(node.right, ast.Constant) and node.right.value in POSITIONS - WIDTHS:
                yield node.lineno
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2].startswith(ACCESS):
            for place in node.args[1:2]:
                number = place.right if isinstance(place, ast.BinOp) else place
                if isinstance(number, ast.Constant) and number.value in (POSITIONS if number is place else WIDTHS):
                    yield node.lineno


def test_no_header_position_is_a_bare_number_outside_the_layout() -> None:
    paths = [path for room in ROOMS for path in (PACKAGE / room).rglob("*.py") if path.name != "layout.py"]
    assert len(paths) > 100
    assert [f"{path}:{line}" for path in paths for line in bare_positions(path.read_text(encoding="utf-8"))] == []


def test_a_bare_position_would_be_found() -> None:
    lines = "size = load_i32(data, at + 8)", "magic = unpack_from(data, 16)", "at += size + 1", "crc(data[at + 21 :])"
    assert list(bare_positions("\n".join(lines))) == [1, 2, 4]


EXTENTS = {
    "engine/records/header.py",  # of one entry
    "engine/records/extent.py",  # of a table
    "engine/records/batch.py",  # of a view
    "engine/log/files/headers.py",  # of the first bytes of many entries
}
"""Where the last offset of an entry is made of its first one."""


def last_offsets_made(source: str) -> bool:
    """Say whether a delta of the last offset is added to something, or read beside an offset, outside of kernels."""
    return any(
        isinstance(node, ast.BinOp | ast.AugAssign)
        and isinstance(node.op, ast.Add)
        and "last_offset_delta" in ast.unparse(node).lower()
        for node in ast.walk(ast.parse(source))
    ) or any(
        isinstance(node, ast.Attribute) and ast.unparse(node).startswith("LAST_OFFSET_DELTA.read")
        for node in ast.walk(ast.parse(source))
    )


def test_the_last_offset_of_an_entry_is_made_of_its_header_in_one_place_for_each_form_that_entries_have() -> None:
    paths = {
        path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py") if "_kernels" not in path.stem
    }
    made = {name for name, path in paths.items() if "OFFSET_DELTA" in (text := path.read_text("utf-8")).upper()
            and last_offsets_made(text)}  # fmt: skip
    assert made - EXTENTS == set()


def test_a_last_offset_that_is_made_elsewhere_would_be_found() -> None:
    lines = "last = first + LAST_OFFSET_DELTA.read(head)", "last[rows] += table.gather(LAST_OFFSET_DELTA, rows)"
    assert [last_offsets_made(each) for each in (*lines, "delta = LAST_OFFSET_DELTA.read(head)")] == [True] * 3
    assert not last_offsets_made("wrong = batch.last_offset_delta != batch.record_count - 1")


def test_kernels_lie_where_their_images_are_made_and_their_changes_are_noticed() -> None:
    paths = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if "\n@kernel\n" in path.read_text("utf-8")]
    assert len(paths) > 15
    assert [
        path for path in paths if not path.stem.endswith("kernels") and path.parent.name not in ("kernels", "compiled")
    ] == []
