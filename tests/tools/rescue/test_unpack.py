"""Archives: what is taken out of them, and what they cannot do."""

import gzip
import io
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest
import zstandard

from builders import contents
from cli.command import run
from magicbyte.engine.errors import LogDirectoryError
from magicbyte.tools.rescue.unpack import UnpackLimits, unpack
from tools.rescue.builders import backup_of, by_partition, receipt_of

CASES = ("0.8.2.2/basic-none", "0.10.2.2/basic-gzip")
SEGMENT = f"t-0/{0:020}.log"
ROOMY = UnpackLimits(1 << 20)


def tar_of(folder: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(folder, "var/lib/kafka")
    return packed.getvalue()


def tar_with(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def named(name: str, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    return info


def packed(kind: str, folder: Path, path: Path) -> Path:
    path = path.with_name(f"{path.name}{kind}")
    if kind == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
            for each in folder.rglob("*"):
                out.write(each, each.relative_to(folder))
        return path
    tar = tar_of(folder)
    pack = {".tar": bytes, ".tar.gz": gzip.compress, ".tgz": gzip.compress, ".tar.zst": zstandard.compress}
    path.write_bytes(pack[kind](tar))
    return path


@pytest.mark.parametrize("kind", [".tar", ".tar.gz", ".tgz", ".tar.zst", ".zip"])
def test_an_archive_gives_the_same_as_the_folder(kind: str, tmp_path: Path) -> None:
    folder = backup_of(CASES, tmp_path / "backup")
    archive = packed(kind, folder, tmp_path / "old")
    of_archive = by_partition(receipt_of(archive, "--to", tmp_path / "a"))
    of_folder = by_partition(receipt_of(folder, "--to", tmp_path / "b"))
    assert len(of_folder) == len(CASES)
    assert {name: each["digest"] for name, each in of_archive.items()} == {
        name: each["digest"] for name, each in of_folder.items()
    }
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_single_packed_segment_is_named_by_its_file_or_by_as(tmp_path: Path) -> None:
    folder = backup_of(CASES[:1], tmp_path / "backup")
    (segment,) = folder.rglob(f"{0:020}.log")
    for name in (f"{0:020}.log.gz", "orders-3.log.gz"):
        (tmp_path / name).write_bytes(gzip.compress(segment.read_bytes()))
    assert list(by_partition(receipt_of(tmp_path / "orders-3.log.gz", "--to", tmp_path / "a"))) == ["orders-3"]
    found = receipt_of(tmp_path / f"{0:020}.log.gz", "--as", "t-0", "--to", tmp_path / "b")
    assert list(by_partition(found)) == ["t-0"]
    assert found["missing"] == []


def test_a_folder_with_packed_segments_is_unpacked(tmp_path: Path) -> None:
    folder = backup_of(CASES, tmp_path / "backup")
    expected = by_partition(receipt_of(folder, "--to", tmp_path / "a"))
    for each in list(folder.rglob("*.log")):
        each.with_name(f"{each.name}.gz").write_bytes(gzip.compress(each.read_bytes()))
        each.unlink()
    before = contents(folder)
    found = by_partition(receipt_of(folder, "--to", tmp_path / "b"))
    assert {name: each["digest"] for name, each in found.items()} == {
        name: each["digest"] for name, each in expected.items()
    }
    assert contents(folder) == before


@pytest.mark.parametrize("order", [1, -1])
def test_of_a_segment_that_is_there_twice_the_larger_one_is_taken_and_it_is_said(order: int, tmp_path: Path) -> None:
    whole, cut = (named(SEGMENT), b"whole data"), (named(f"{SEGMENT}.gz"), gzip.compress(b"whole data", 0)[:18])
    archive = tar_with(tmp_path / "x.tar", *[whole, cut][::order])
    found = unpack(archive, tmp_path / "to", ROOMY)
    assert any("twice" in each for each in found.damage)
    assert contents(tmp_path / "to") == {SEGMENT: b"whole data"}


LEFT_OUT = {
    "outside": f"../../{SEGMENT}",
    "outside, further down": f"a/../../{SEGMENT}",
    "outside, of Windows": f"..\\{SEGMENT}",
    "a name that is too long": f"{'n' * 300}/{SEGMENT}",
    "a path that is too long": f"{'long/' * 1000}{SEGMENT}",
    "below a file": f"t-1/{0:020}.log/{SEGMENT}",
    "a folder's": "f-0",
}
RENAMED = {"not UTF-8": "caf\udce9", "a line break": "two\nlines", "moves the cursor": "\x1b[2J"}


@pytest.mark.parametrize("kind", ["tar", "zip"])
@pytest.mark.parametrize("odd", LEFT_OUT)
def test_an_odd_member_is_left_out_and_told_and_the_others_come_out(odd: str, kind: str, tmp_path: Path) -> None:
    folder_first = (named(f"{0:020}.log/f-0/{0:020}.log"), b"below")
    name = LEFT_OUT[odd] if odd != "a folder's" else f"{0:020}.log"
    members = [
        folder_first,
        (named(f"t-1/{0:020}.log"), b"data"),
        (named(name), b"odd"),
        (named(f"t-2/{0:020}.log"), b"more"),
    ]
    archive = tmp_path / f"x.{kind}"
    if kind == "tar":
        tar_with(archive, *members)
    else:
        with zipfile.ZipFile(archive, "w") as out:
            for info, data in members:
                out.writestr(info.name, data)
    found = unpack(archive, tmp_path / "to", ROOMY)
    (told,) = found.damage
    assert "left out" in told
    assert "\n" not in told
    assert contents(tmp_path / "to") == {
        f"{0:020}.log/f-0/{0:020}.log": b"below",
        f"t-1/{0:020}.log": b"data",
        f"t-2/{0:020}.log": b"more",
    }


@pytest.mark.parametrize("kind", ["tar", "zip"])
@pytest.mark.parametrize("odd", RENAMED)
def test_a_partition_below_a_folder_with_an_odd_name_is_rescued(odd: str, kind: str, tmp_path: Path) -> None:
    (segment,) = backup_of(CASES[:1], tmp_path / "backup").rglob(f"{0:020}.log")
    name, archive = f"{RENAMED[odd]}/t-1/{0:020}.log", tmp_path / f"x.{kind}"
    if kind == "tar":
        info = named(name)
        info.size = segment.stat().st_size
        with tarfile.open(archive, "w", encoding="utf-8", errors="surrogateescape", format=tarfile.GNU_FORMAT) as tar:
            tar.addfile(info, io.BytesIO(segment.read_bytes()))
    else:
        with zipfile.ZipFile(archive, "w") as out:
            out.writestr(name.replace("\udce9", "é"), segment.read_bytes())
    receipt = receipt_of(archive, "--to", tmp_path / "out")
    assert list(by_partition(receipt)) == ["t-1"]
    assert receipt["records"] > 0


def test_a_partition_in_a_folder_without_a_topics_name_does_not_stop_the_others(tmp_path: Path) -> None:
    folder = backup_of(CASES, tmp_path / "backup")
    partitions = sorted(each.parent for each in folder.rglob(f"{0:020}.log"))
    partitions[0].rename(partitions[0].with_name("copy of a partition"))
    receipt = receipt_of(folder, "--to", tmp_path / "out", status=1)
    assert list(by_partition(receipt)) == [partitions[1].name]
    ((path, why),) = receipt["leftOut"].items()
    assert path.endswith("copy of a partition")
    assert "--as TOPIC-N" in why


@pytest.mark.parametrize("kind", [".tar", ".zip", "folder", "folder, packed", "file", "packed file", "as"])
def test_a_segment_outside_of_its_folder_is_named_by_its_file(kind: str, tmp_path: Path) -> None:
    (segment,) = backup_of(CASES[:1], tmp_path / "golden").rglob(f"{0:020}.log")
    folder = tmp_path / "backup"
    folder.mkdir()
    name = "copy.log" if kind == "as" else "orders-7.log"
    (folder / name).write_bytes(segment.read_bytes())
    if "packed" in kind:
        (folder / "orders-7.log.gz").write_bytes(gzip.compress(segment.read_bytes()))
        (folder / "orders-7.log").unlink()
    (folder / "app-1.log").write_text("2026-01-01 INFO a text log\n" * 100)
    (folder / "app-2.log.gz").write_bytes(gzip.compress(b"2026-01-01 INFO a text log\n" * 100))
    backup = folder
    if kind.startswith("."):
        backup = packed(kind, folder, tmp_path / "old")
    elif "folder" not in kind:
        backup = next(each for each in folder.iterdir() if each.name.startswith(("orders", "copy")))
    receipt = receipt_of(backup, "--to", tmp_path / "out", *(("--as", "orders-7") if kind == "as" else ()))
    assert list(by_partition(receipt)) == ["orders-7"]
    assert receipt["records"] > 0
    assert (receipt["archive"], receipt["leftOut"]) == ([], {})


def test_the_list_of_a_zip_files_members_is_bounded_before_it_is_read(tmp_path: Path) -> None:
    size = 40 << 20
    end = struct.pack("<4sHHHHLLH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, size, 0, 0)
    archive = tmp_path / "x.zip"
    with archive.open("wb") as file:
        file.truncate(size)
        file.seek(size)
        file.write(end)
    with pytest.raises(LogDirectoryError, match="give the folder"):
        unpack(archive, tmp_path / "to", UnpackLimits(1 << 30))


def test_absolute_names_are_taken_below_the_folder(tmp_path: Path) -> None:
    archive = tar_with(tmp_path / "x.tar", (named(f"/etc/{SEGMENT}"), b"data"))
    assert unpack(archive, tmp_path / "to", ROOMY).damage == []
    assert contents(tmp_path / "to") == {f"etc/{SEGMENT}": b"data"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_left_out_and_said(kind: bytes, tmp_path: Path) -> None:
    link = named(SEGMENT, kind)
    link.linkname = "/etc/passwd"
    archive = tar_with(tmp_path / "x.tar", (link, b""), (named(f"t-1/{0:020}.log"), b"data"))
    found = unpack(archive, tmp_path / "to", ROOMY)
    assert len(found.damage) == 1
    assert SEGMENT in found.damage[0]
    assert contents(tmp_path / "to") == {f"t-1/{0:020}.log": b"data"}


@pytest.mark.parametrize("name", [SEGMENT, "t-0/video.mp4"])
@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_bomb_ends_at_the_limit(name: str, pack: object, tmp_path: Path) -> None:
    bomb = tar_with(tmp_path / "x.tar", (named(name), bytes(8 << 20)))
    assert callable(pack)
    kind = "gz" if pack is gzip.compress else "zst"
    archive = tmp_path / f"x.tar.{kind}"
    archive.write_bytes(pack(bomb.read_bytes()))
    with pytest.raises(LogDirectoryError, match="--max-unpacked"):
        unpack(archive, tmp_path / "to", ROOMY)
    assert sum(map(len, contents(tmp_path / "to").values())) <= ROOMY.size


def test_a_header_of_a_tar_file_is_bounded(tmp_path: Path) -> None:
    info = named("././@LongLink", tarfile.GNUTYPE_LONGNAME)
    archive = tar_with(tmp_path / "x.tar", (info, b"n" * (2 << 20)))
    with pytest.raises(LogDirectoryError, match="headers"):
        unpack(archive, tmp_path / "to", UnpackLimits(1 << 30))


def pax_header(*records: str, kind: bytes = tarfile.XHDTYPE) -> tuple[tarfile.TarInfo, bytes]:
    """Return a member that says something of the next one: records such as 'path=x'."""
    lines = [next(f"{size} {each}\n" for size in range(999) if len(f"{size} {each}\n") == size) for each in records]
    return named("pax", kind), "".join(lines).encode()


SPARSE = pax_header("GNU.sparse.major=1", "GNU.sparse.minor=0", f"GNU.sparse.name={SEGMENT}", "GNU.sparse.realsize=9")


def test_a_map_of_a_sparse_file_is_bounded(tmp_path: Path) -> None:
    entries = 8 << 20
    archive = tar_with(tmp_path / "x.tar", SPARSE, (named(SEGMENT), b"%d\n" % entries + b"0\n" * entries))
    with pytest.raises(LogDirectoryError, match="headers"):
        unpack(archive, tmp_path / "to", UnpackLimits(1 << 30))


@pytest.mark.parametrize(
    "nonsense",
    [
        [SPARSE, (named(SEGMENT), b"no map")],
        [pax_header("comment=x")] * 2000,
    ],
    ids=["sparse map", "headers of headers"],
)
def test_a_damaged_tar_file_gives_the_members_before_the_damage(
    nonsense: list[tuple[tarfile.TarInfo, bytes]], tmp_path: Path
) -> None:
    archive = tar_with(tmp_path / "x.tar", (named(SEGMENT), b"data"), *nonsense)
    assert len(unpack(archive, tmp_path / "to", ROOMY).damage) == 1
    assert contents(tmp_path / "to") == {SEGMENT: b"data"}


def test_content_of_an_unknown_kind_is_counted(tmp_path: Path) -> None:
    archive = tar_with(tmp_path / "x.tar", (named(SEGMENT, b"Z"), bytes(8 << 20)), (named(SEGMENT), b"data"))
    with pytest.raises(LogDirectoryError, match="--max-unpacked"):
        unpack(archive, tmp_path / "to", ROOMY)
    found = unpack(archive, tmp_path / "to", UnpackLimits(16 << 20))
    assert len(found.damage) == 1
    assert contents(tmp_path / "to") == {SEGMENT: b"data"}


METHODS = (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("part", ["header", "flags", "content"])
def test_of_a_zip_file_whose_first_file_is_damaged_the_others_come_out(method: int, part: str, tmp_path: Path) -> None:
    archive = tmp_path / "x.zip"
    with zipfile.ZipFile(archive, "w", method) as out:
        out.writestr(SEGMENT, bytes(range(256)) * 64)
        out.writestr(f"t-1/{0:020}.log", b"data")
    data = bytearray(archive.read_bytes())
    at = {"header": 0, "flags": data.index(b"PK\1\2") + 8, "content": 30 + len(SEGMENT) + 20}[part]
    data[at : at + 12] = bytes(each ^ 0x41 for each in data[at : at + 12])
    archive.write_bytes(data)
    found = unpack(archive, tmp_path / "to", ROOMY)
    assert len(found.damage) == 1
    assert contents(tmp_path / "to")[f"t-1/{0:020}.log"] == b"data"


def test_more_files_than_allowed_are_refused(tmp_path: Path) -> None:
    archive = tar_with(tmp_path / "x.tar", *((named(f"{at}"), b"") for at in range(9)))
    with pytest.raises(LogDirectoryError, match="at most 8 files"):
        unpack(archive, tmp_path / "to", UnpackLimits(1 << 20, files=8))


@pytest.mark.parametrize("kind", [".tar", ".tar.gz", ".tar.zst"])
def test_a_truncated_archive_gives_all_members_before_the_cut(kind: str, tmp_path: Path) -> None:
    folder = backup_of(CASES, tmp_path / "backup")
    whole = tar_of(folder)
    kept = whole[: len(whole) // 2]
    path = tmp_path / f"x{kind}"
    if kind == ".tar":
        path.write_bytes(kept)
    elif kind == ".tar.gz":
        data = gzip.compress(whole, 0)
        path.write_bytes(data[: len(data) // 2])
    else:  # a frame for each block, the last of them is missing
        path.write_bytes(b"".join(zstandard.compress(kept[at : at + 4096]) for at in range(0, len(kept), 4096)))
    found = unpack(path, tmp_path / "to", UnpackLimits(1 << 30))
    assert len(found.damage) == 1
    for name, data in contents(tmp_path / "to").items():
        assert (folder / name.removeprefix("var/lib/kafka/")).read_bytes().startswith(data)
    assert found.segments > 0
    receipt = receipt_of(path, "--to", tmp_path / "out", status=1)
    assert receipt["archive"]
    assert not receipt["complete"]


def test_what_is_no_archive_is_said_in_one_line(tmp_path: Path) -> None:
    for name in ("x.zip", "x.tar", "x.tar.gz", "x.tar.zst"):
        (tmp_path / name).write_bytes(b"no archive")
        result = run("rescue", tmp_path / name, "--to", tmp_path / "out", "--work", tmp_path / "work")
        assert result.exit_code == 2, name
        assert len(result.stderr.splitlines()) == 1
        assert not (tmp_path / "out").exists()
        assert not (tmp_path / "work").exists()
