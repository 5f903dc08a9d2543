"""The golden data is whole: every file is what the manifest says."""

import gzip
import hashlib
import json
from pathlib import Path

import golden_data


def test_every_packed_file_has_the_size_and_sha256_of_the_manifest() -> None:
    manifest = json.loads(gzip.decompress((golden_data.GOLDEN / "manifest.json.gz").read_bytes()))
    checked = 0
    for case, entry in zip(golden_data.log_cases(), manifest["logs"], strict=True):
        for name, facts in entry["files"].items():
            content = case.read(name)
            assert (len(content), hashlib.sha256(content).hexdigest()) == (facts["size"], facts["sha256"]), name
            checked += 1
    assert checked == sum(len(case.files) for case in golden_data.log_cases())
    assert len(golden_data.log_cases()) == 261


def test_every_wire_case_of_the_index_is_there() -> None:
    index = gzip.decompress((golden_data.GOLDEN / "wire/index.jsonl.gz").read_bytes()).decode().splitlines()
    listed = {f"{line['broker']}/{line['case']}" for line in map(json.loads, index)}
    assert listed == {case.id for case in golden_data.wire_cases()}
    assert len(listed) == 2792


def test_an_unpacked_partition_folder_is_shared_and_equal_to_the_packed_one(tmp_path: Path) -> None:
    case = golden_data.log_case("3.9.1/txn-none")
    folder = case.partition_dir(tmp_path)
    assert folder == case.partition_dir(tmp_path)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == case.partition_files()
    assert case.partition_dir(tmp_path, named=True).name == "txn-none-0"
