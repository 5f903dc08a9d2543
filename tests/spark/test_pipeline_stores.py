"""Pipelines into stores of objects: S3, by a server of moto's on the loopback interface, and fsspec's in memory."""

import hashlib
import itertools
import json
import logging
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest

from cli.command import run as command
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.store import ObjectStore
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.encode import Format
from magicbyte.spark.pipeline import driver, store_sink
from magicbyte.spark.pipeline.config import Pipeline, load
from magicbyte.spark.pipeline.report import write_report
from magicbyte.spark.pipeline.store_sink import StorePlace, StoreSink
from magicbyte.spark.pipeline.units import find
from magicbyte.tools.offline.materialize import materialize
from spark.builders import run
from spark.in_process import InProcess, KilledError, Repeating, Tasks
from spark.logs import content_of, read_all, reader_of, some_records, write_partition
from stage_proof import contents

CONVERT = '[[stage]]\ndo = "convert"\nformat = "v2"\ncodec = "lz4"\n'
S3_IS_SLOW = pytest.mark.parametrize("store", ["memory", pytest.param("s3", marks=pytest.mark.slow)], indirect=True)
"""For what the memory shows as well: reruns, locks and readers are tried at both in every run."""
_numbers = itertools.count(1000 * os.getpid())  # parallel runs of these tests have other folders for scratch


@pytest.fixture(scope="session")  # s3fs keeps the properties of the address as long as the process lives
def s3() -> Iterator[str]:
    """The address of an S3 server with a bucket `archive`."""
    from moto.server import ThreadedMotoServer  # seconds of imports, which only these tests need

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["memory", "s3"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """An empty folder of a store."""
    monkeypatch.setattr(store_sink, "BEAT_SECONDS", 0.05)
    name = f"sink-{next(_numbers)}"
    if request.param == "memory":
        return ObjectStore(f"memory://{name}")
    settings = {"AWS_ENDPOINT_URL": request.getfixturevalue("s3"), "AWS_DEFAULT_REGION": "us-east-1"}
    for key, value in {**settings, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}.items():
        monkeypatch.setenv(key, value)
    remote = fsspec.filesystem("s3")
    if not remote.exists("archive"):
        remote.mkdir("archive")
    return ObjectStore(f"s3://archive/{name}")


@pytest.fixture
def memory() -> ObjectStore:
    """An empty folder of the store in memory, for what is the same in all stores."""
    return ObjectStore(f"memory://sink-{next(_numbers)}")


def pipeline(folder: Path, sink: ObjectStore | str, text: str = CONVERT, source: str = "logs") -> Pipeline:
    path = folder / "pipeline.toml"
    to = sink.url if isinstance(sink, ObjectStore) else sink
    path.write_text(f'{text}[source]\npath = "{source}"\n[sink]\npath = "{to}"\n')
    return load(path)


@pytest.fixture
def expected(archive: Path) -> dict[str, str]:
    """What the pipeline gives in a folder."""
    assert run(pipeline(archive, "folder")).status == 0
    return contents(archive / "folder")


def committed(store: ObjectStore) -> dict[str, str]:
    """Return a digest of each file of the outputs that the newest manifest has."""
    manifest = json.loads(store.read(max(name for name in store.sizes() if name.startswith("pipeline-0"))))
    return {
        f"{output['name']}/{file['name']}": hashlib.sha256(store.read(f"{output['at']}/{file['name']}")).hexdigest()
        for unit in manifest["units"].values()
        for output in unit["outputs"]
        for file in output["files"]
    }


def strangers(store: ObjectStore) -> set[str]:
    """Return what is in a store that no manifest names."""
    manifest = json.loads(store.read(max(name for name in store.sizes() if name.startswith("pipeline-0"))))
    named = [output["at"] for unit in manifest["units"].values() for output in unit["outputs"]]
    return {name for name in store.sizes() if not name.startswith(("pipeline-0", manifest["checkpoints"], *named))}


def test_a_store_holds_what_a_folder_would_and_readers_find_it_by_the_manifest(
    store: ObjectStore, archive: Path, expected: dict[str, str]
) -> None:
    done = run(pipeline(archive, store))
    assert (done.status, done.manifest is not None and done.manifest["number"]) == (0, 1)
    assert committed(store) == expected
    assert strangers(store) == set()
    told = [
        json.loads(command("inventory", path, "--format", "json").stdout)
        for path in (store.url, str(archive / "folder"))
    ]
    for each in told:
        for partition in each["partitions"]:
            del partition["path"]
    assert told[0] == told[1]
    assert command("verify", store.url, "--deep").exit_code == 0
    assert command("diff", str(archive / "logs"), store.url).exit_code == 0
    lines = [command("cat", path, "--topic", "orders").stdout for path in (store.url, str(archive / "folder"))]
    assert len(lines[0].splitlines()) == 420
    assert lines[0] == lines[1]
    one = [command("cat", f"{path}/orders-1").stdout for path in (store.url, archive / "folder")]
    assert len(one[0].splitlines()) == 20
    assert one[0] == one[1]
    missing = command("cat", f"{store.url}/orders-7")
    assert (missing.exit_code, missing.stdout) == (2, "")


def test_the_spark_source_reads_a_sink_by_its_manifest(store: ObjectStore, archive: Path) -> None:
    run(pipeline(archive, store))
    rows = [read_all(reader_of(path)) for path in (store.url, archive / "logs")]
    assert len(rows[0]) == 420
    assert rows[0] == rows[1]


def test_a_sink_in_a_store_is_the_source_of_another_pipeline(memory: ObjectStore, archive: Path) -> None:
    run(pipeline(archive, memory))
    back = '[[stage]]\ndo = "convert"\nformat = "v2"\ncodec = "none"\n[[stage]]\ndo = "compare"\nwith = "logs"\n'
    assert run(pipeline(archive, "back", back, source=memory.url)).status == 0
    with pytest.raises(LogDirectoryError, match="outside of"):
        run(pipeline(archive, f"{memory.url}/inside", source=memory.url))


def test_materialize_makes_the_log_directory_that_the_pipeline_would_have_made(
    store: ObjectStore, archive: Path, expected: dict[str, str]
) -> None:
    run(pipeline(archive, store))
    done = command("pipeline", "materialize", store.url, "--to", str(archive / "plain"))
    assert (done.exit_code, done.stdout) == (0, "3 partitions\n")
    assert contents(archive / "plain") == expected
    for name in (
        "recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint",
        ".kafka_cleanshutdown",
    ):  # fmt: skip
        assert (archive / "plain" / name).read_bytes() == (archive / "folder" / name).read_bytes()
    shutil.rmtree(archive / "plain/orders-1")
    (archive / "plain/.orders-1.part").mkdir()
    assert command("pipeline", "materialize", store.url, "--to", str(archive / "plain")).exit_code == 0
    assert contents(archive / "plain") == expected
    with (archive / "plain/orders-0" / f"{0:020}.log").open("ab") as file:
        file.write(b"more")
    again = command("pipeline", "materialize", store.url, "--to", str(archive / "plain"))
    assert (again.exit_code, "found another" in again.stderr) == (2, True)


def test_materialize_keeps_up_to_where_a_log_is_clean(memory: ObjectStore, tmp_path: Path) -> None:
    write_partition(tmp_path / "logs", "orders-0", some_records(100), some_records(100, first=100))
    stages = 'now = 2026-01-07T00:00:00Z\n[[stage]]\ndo = "compact"\ntopics = ["*"]\n'
    run(pipeline(tmp_path, memory, stages))
    run(pipeline(tmp_path, "folder", stages))
    assert command("pipeline", "materialize", memory.url, "--to", str(tmp_path / "plain")).exit_code == 0
    stored, expected = (
        checkpoints.parse_offset_checkpoint((tmp_path / folder / checkpoints.CLEANER).read_bytes())
        for folder in ("plain", "folder")
    )
    assert stored == expected == {TopicPartition("orders", 0): 100}


def test_an_object_that_changed_is_not_materialized(memory: ObjectStore, archive: Path) -> None:
    run(pipeline(archive, memory))
    name = next(name for name in memory.sizes() if name.endswith(f"orders-1/{0:020}.log"))
    content = memory.read(name)
    memory.put(name, content[:-1] + bytes([content[-1] ^ 1]))
    done = command("pipeline", "materialize", memory.url, "--to", str(archive / "plain"))
    assert (done.exit_code, "SHA-256: expected" in done.stderr) == (1, True)
    assert not (archive / "plain/orders-1").exists()
    assert not (archive / "plain/.kafka_cleanshutdown").exists()


def test_tables_go_to_a_store_as_well(memory: ObjectStore, archive: Path) -> None:
    import pyarrow.parquet as pq

    assert run(pipeline(archive, memory, '[[stage]]\ndo = "records"\n')).status == 0
    assert command("pipeline", "materialize", memory.url, "--to", str(archive / "tables")).exit_code == 0
    found = sorted((archive / "tables").glob("*.parquet"))
    assert sum(pq.read_table(path).num_rows for path in found) == 420


@S3_IS_SLOW
def test_stages_that_all_workers_do_together_need_a_folder_that_all_of_them_see(
    store: ObjectStore, tmp_path: Path
) -> None:
    parts = [some_records(100, first=first) for first in range(0, 400, 100)]
    write_partition(tmp_path / "logs", "orders-0", *parts)
    stages = 'now = 2026-01-07T00:00:00Z\n[[stage]]\ndo = "convert"\nformat = "v2"\ncodec = "zstd"\npart-above = 1\n'
    stages += '[[stage]]\ndo = "compact"\ntopics = ["*"]\nshuffle-above = 1\n'
    (told,) = run(pipeline(tmp_path, store, stages)).units
    assert (told["stages"][0]["parts"], told["stages"][1]["shuffled"]) == (4, True)
    run(pipeline(tmp_path, "folder", stages))
    assert committed(store) == contents(tmp_path / "folder")
    assert strangers(store) == set()
    given = pipeline(tmp_path, f"{store.url}-2", stages)
    cluster = InProcess()
    cluster.master = "spark://somewhere:7077"
    (alone,) = run(given, context=cluster).units
    assert ("parts" in alone["stages"][0], alone["stages"][1]["shuffled"]) == (False, False)
    shared = replace(given, scratch=tmp_path / "scratch")
    units = find(shared, 0)
    assert driver.spread_stages(units[0], units, cluster) == {"convert", "compact"}


def test_what_a_killed_worker_left_on_its_machine_goes_with_the_next_run(memory: ObjectStore, archive: Path) -> None:
    given = replace(pipeline(archive, memory), scratch=archive / "scratch")
    unit = find(given, 0)[0]
    StorePlace(memory.url, unit.name, unit.fingerprint, 0, str(archive / "scratch")).begin()
    (archive / "scratch/of-somebody-else").mkdir()
    assert run(given).status == 0
    assert [path.name for path in (archive / "scratch").iterdir()] == ["of-somebody-else"]


def test_a_rerun_does_only_what_is_missing_or_changed(store: ObjectStore, archive: Path) -> None:
    given = pipeline(archive, store)
    assert write_report(run(given)) == f"{store.url}/pipeline-report.html"
    idle = InProcess()
    again = run(given, resume=True, context=idle)
    assert (again.kept, idle.tasks) == (3, 0)
    assert "pipeline-00000002.json" not in store.sizes(), "nothing new: no manifest"
    with (archive / "logs/orders-1" / f"{0:020}.log").open("ab") as file:
        file.write(content_of(some_records(5, first=20)))
    changed = run(given, resume=True)
    assert (changed.status, changed.kept) == (0, 2)
    assert "pipeline-00000002.json" in store.sizes()
    assert strangers(store) == {"pipeline-report.html", "pipeline-report.json"}, "what the first run had made is gone"
    assert command("diff", str(archive / "logs"), store.url).exit_code == 0
    with pytest.raises(LogDirectoryError, match="--resume continues"):
        run(given)


class Dying(Tasks):
    def collect(self) -> list[Any]:
        raise KilledError


def killed(given: Pipeline, tasks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a pipeline whose driver dies when `tasks` partitions are finished and another one is half in the store."""

    class Crashing(InProcess):
        def parallelize(self, work: list[Any], pieces: int) -> Tasks:
            return Dying([[[unit]] for bundle in work for unit in bundle][:tasks])

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "remove", lambda self, names: None)
        with pytest.raises(KilledError):
            run(given, context=Crashing())
    assert isinstance(given.sink, str)
    ObjectStore(given.sink).put("outputs/00000001.killed.attempt/orders-2/half", b"half")


@pytest.mark.parametrize(
    ("store", "tasks"),
    [("memory", 0), ("memory", 2), ("s3", 2), pytest.param("s3", 0, marks=pytest.mark.slow)],
    indirect=["store"],
)
def test_after_a_kill_before_the_manifest_the_rerun_completes(
    store: ObjectStore, archive: Path, expected: dict[str, str], tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = pipeline(archive, store)
    killed(given, tasks, monkeypatch)
    assert command("inventory", store.url).exit_code != 0, "nothing is committed"
    again = run(given, resume=True)
    assert (again.status, again.kept) == (0, tasks)
    assert committed(store) == expected
    assert strangers(store) == set()


@S3_IS_SLOW
def test_after_a_kill_behind_the_manifest_there_is_nothing_left_to_do(
    store: ObjectStore, archive: Path, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(self: StoreSink) -> None:
        raise KilledError

    given = pipeline(archive, store)
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "remove", lambda self, names: None)
        patch.setattr(StoreSink, "close", dies)
        with pytest.raises(KilledError):
            run(given)
    assert committed(store) == expected
    idle = InProcess()
    assert (run(given, resume=True, context=idle).kept, idle.tasks) == (3, 0)
    assert strangers(store) == set()


def test_two_runs_at_one_sink_exclude_each_other(store: ObjectStore, archive: Path) -> None:
    class Meanwhile(InProcess):
        def parallelize(self, tasks: list[Any], pieces: int) -> Any:
            with pytest.raises(LogDirectoryError, match="another run is using"):
                run(given, resume=True)
            return super().parallelize(tasks, pieces)

    given = pipeline(archive, store)
    assert run(given, context=Meanwhile()).status == 0


@S3_IS_SLOW
def test_a_run_that_was_taken_for_dead_commits_nothing(
    store: ObjectStore, archive: Path, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still for longer than anyone waits; meanwhile another one did the work."""

    class Sleeping(InProcess):
        def parallelize(self, tasks: list[Any], pieces: int) -> Any:
            found = super().parallelize(tasks, pieces)
            assert run(given, resume=True).status == 0
            return found

    put = ObjectStore.put

    def put_all_but_claims(store: ObjectStore, name: str, content: bytes) -> None:
        if name.endswith(".claim"):
            raise OSError("it stands still")
        put(store, name, content)

    monkeypatch.setattr(ObjectStore, "put", put_all_but_claims)
    given = pipeline(archive, store)
    with pytest.raises(LogDirectoryError, match=r"is missing|taken over"):
        run(given, context=Sleeping())
    assert committed(store) == expected
    assert run(given, resume=True).kept == 3
    assert strangers(store) == set()


def test_an_upload_that_fails_ends_its_partition_alone(
    memory: ObjectStore, archive: Path, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = ObjectStore.upload

    def failing(store: ObjectStore, source: Path, name: str) -> None:
        if "orders-1" in name:
            raise ConnectionResetError("the store hung up")
        upload(store, source, name)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "upload", failing)
        done = run(pipeline(archive, memory))
    assert {unit["unit"]: (unit["outcome"], unit["error"]) for unit in done.units} == {
        "orders-0": ("done", None), "orders-1": ("failed", "the store hung up"), "orders-2": ("done", None),
    }  # fmt: skip
    assert run(pipeline(archive, memory), resume=True).status == 0
    assert committed(memory) == expected
    assert strangers(memory) == set()


@S3_IS_SLOW
def test_a_second_attempt_at_a_partition_leaves_the_first_ones_output(
    store: ObjectStore, archive: Path, expected: dict[str, str]
) -> None:
    class Twice(InProcess):
        def parallelize(self, tasks: list[Any], pieces: int) -> Any:
            return super().parallelize([task for task in tasks for _ in range(2)], 2 * pieces)

    run(pipeline(archive, store), context=Twice())
    assert committed(store) == expected
    assert strangers(store) == set()


def test_a_worker_that_dies_behind_its_commit_is_repeated_and_changes_nothing(
    memory: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_partition(tmp_path / "logs", "orders-0", some_records(100), some_records(100, first=100))
    stages = f"{CONVERT}part-above = 1\n"
    commit, calls = StorePlace.commit, []

    def killed(self: StorePlace, *given: Any) -> Any:
        found = commit(self, *given)
        calls.append(found)
        raise KilledError

    monkeypatch.setattr(StorePlace, "commit", killed)
    (told,) = run(pipeline(tmp_path, memory, stages), context=Repeating()).units
    assert (told["outcome"], told["stages"][0]["parts"], len(calls)) == ("done", 2, 1)
    run(pipeline(tmp_path, "folder", stages))
    assert committed(memory) == contents(tmp_path / "folder")
    assert strangers(memory) == set()


def test_a_store_that_puts_objects_where_one_is_already_is_refused(
    memory: ObjectStore, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(self: ObjectStore, name: str, content: bytes) -> bool:
        self.put(name, content)
        return True

    monkeypatch.setattr(ObjectStore, "put_once", careless)
    with pytest.raises(LogDirectoryError, match="create-if-absent"):
        run(pipeline(archive, memory))
    assert memory.sizes() == {}


def test_an_answer_that_was_lost_and_asked_for_again_counts_as_put(store: ObjectStore) -> None:
    assert store.put_once("a", b"mine")
    assert store.put_once("a", b"mine"), "the first one's answer was lost"
    assert not store.put_once("a", b"another's")
    assert store.read("a") == b"mine"


def test_what_no_pipeline_made_is_refused(memory: ObjectStore, archive: Path) -> None:
    memory.put("mine", b"")
    with pytest.raises(LogDirectoryError, match="found mine"):
        run(pipeline(archive, memory), resume=True)
    with pytest.raises(LogDirectoryError, match="no manifest"):
        materialize(memory.url, archive / "plain")


def test_a_store_that_cannot_be_reached_is_reported_in_a_line(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {
        "AWS_ENDPOINT_URL": s3,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(key, value)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    said = command("inventory", "s3://archive/nothing")
    assert (said.exit_code, "credentials" in said.stderr, "Traceback" in said.stderr) == (2, True, False)
    fsspec.get_filesystem_class("s3").clear_instance_cache()


@pytest.mark.slow
@pytest.mark.spark
def test_after_a_kill_of_the_driver_on_spark_the_run_is_continued(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real processes: workers put what they made, the driver is killed when the first has, the rerun commits."""
    settings = {"AWS_ENDPOINT_URL": s3, "AWS_DEFAULT_REGION": "us-east-1"}
    for key, value in {**settings, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}.items():
        monkeypatch.setenv(key, value)
    remote = fsspec.filesystem("s3")
    if not remote.exists("archive"):
        remote.mkdir("archive")
    for number in range(8):
        parts = [some_records(1500, first=first, magic=1) for first in (0, 1500, 3000)]
        write_partition(tmp_path / "logs", f"orders-{number}", *parts, target=Format.V1, codec=Codec.GZIP)
    sink = ObjectStore("s3://archive/killed")
    pipeline(tmp_path, sink)
    arguments = [sys.executable, "-m", "magicbyte", "pipeline", "run", str(tmp_path / "pipeline.toml")]
    arguments += ["--master", "local[2]"]
    running = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 240
        while not any(
            name.startswith(".pipeline/") and name.endswith(".json") and "orders" in name for name in sink.sizes()
        ):
            assert running.poll() is None, running.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        running.kill()
        running.communicate()
    again = subprocess.run([*arguments, "--resume"], capture_output=True, text=True, timeout=300, check=False)
    assert again.returncode == 0, again.stderr
    assert "8 partitions: 8 done" in again.stdout
    run(pipeline(tmp_path, "folder"))
    assert committed(sink) == contents(tmp_path / "folder")
    assert strangers(sink) == {"pipeline-report.html", "pipeline-report.json"}


def test_what_is_made_for_a_store_is_its_users_alone_and_goes(
    memory: ObjectStore, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, seen = archive / "scratch", []
    upload = ObjectStore.upload

    def look(self: ObjectStore, source: Path, name: str) -> None:
        if scratch.exists():
            seen.extend((each.name, stat.S_IMODE(each.stat().st_mode)) for each in scratch.iterdir())
        upload(self, source, name)

    monkeypatch.setattr(ObjectStore, "upload", look)
    stranger = scratch / f"{store_sink._scratch_prefix(memory.url)}of another program"
    stranger.mkdir(parents=True)
    given = replace(pipeline(archive, memory), scratch=scratch)
    assert run(given).status == 0
    own = {(name, mode) for name, mode in seen if name != stranger.name}
    assert own
    assert all(mode == 0o700 and re.search(r"\.[0-9a-f]{32}$", name) for name, mode in own)
    assert [each.name for each in scratch.iterdir()] == [stranger.name]


def test_a_plan_says_that_a_store_is_not_there(archive: Path, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"AWS_ENDPOINT_URL": s3, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    for key, value in settings.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(LogDirectoryError, match=r"s3://no-such-bucket/sink: cannot be written: .*does not exist"):
        driver.plan(pipeline(archive, "s3://no-such-bucket/sink"))


def test_an_interrupted_materialize_leaves_only_whole_partitions_and_is_continued(
    memory: ObjectStore, archive: Path, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(pipeline(archive, memory))
    download, calls = ObjectStore.download, itertools.count(1)

    def interrupted(self: ObjectStore, name: str, target: Path) -> None:
        download(self, name, target)
        if next(calls) == 8:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "download", interrupted)
        assert command("pipeline", "materialize", memory.url, "--to", archive / "plain").exit_code == 130
    whole = contents(archive / "plain")
    found = {name for name in whole if not name.startswith(".")}
    assert found
    assert all(whole[name] == expected[name] for name in found)
    assert command("pipeline", "materialize", memory.url, "--to", archive / "plain").exit_code == 0
    assert contents(archive / "plain") == expected
