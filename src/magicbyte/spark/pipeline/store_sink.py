"""Write a pipeline's outputs to an object store, where a manifest names them: objects cannot be renamed."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import shutil
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.filesystem import replace_file
from magicbyte.engine.log.files.index_writer import LATEST_RULES, IndexRules
from magicbyte.engine.log.files.manifest import manifest_name, newest
from magicbyte.engine.log.files.store import ObjectStore
from magicbyte.spark.pipeline.sink import FORM, NUMBERS, PAGE, RUN, WORK, key_of
from magicbyte.tools.offline.writer import write_checkpoints

Json = dict[str, Any]

OUTPUTS = "outputs"
BEAT_SECONDS = 5.0
"""Interval at which a running run updates its claim. Other runs wait for three intervals before they take over."""


# ---- in workers


@dataclass(frozen=True, slots=True)
class StorePlace:
    """The output of one attempt at a partition: built below `scratch`, then uploaded to the store.

    `run`: the number of the run. `token`: unique to the attempt.
    """

    sink: str
    unit: str
    fingerprint: str
    run: int
    scratch: str | None = None
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def store(self) -> ObjectStore:
        """The object store of the sink."""
        return ObjectStore(self.sink)

    @property
    def folder(self) -> Path:
        """The folder that this attempt writes to. Its name cannot be predicted."""
        above = Path(self.scratch or tempfile.gettempdir())
        return above / f"{_scratch_prefix(self.sink)}{self.run:08}-{self.unit}.{self.fingerprint}.{self.token}"

    @property
    def record(self) -> str:
        """The object that records the partition's first finished attempt."""
        return f"{WORK}/{self.run:08}.{self.unit}.{self.fingerprint}.json"

    @property
    def objects(self) -> str:
        """The common prefix of this attempt's objects."""
        return f"{OUTPUTS}/{self.run:08}.{self.fingerprint}.{self.token}"

    def begin(self) -> Path:
        """Create this attempt's folder, for this user alone.

        Delete those of earlier runs to this sink on this machine.
        """
        prefix = _scratch_prefix(self.sink)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        for left in self.folder.parent.glob(f"{prefix}*"):
            number = left.name.removeprefix(prefix)[:8]
            if number.isdecimal() and int(number) < self.run:
                shutil.rmtree(left, ignore_errors=True)
        self.folder.mkdir(mode=0o700)
        return self.folder

    def commit(self, record: Json) -> Json:
        """Upload this attempt's files and record them as the output, unless another attempt is recorded.

        Returns the valid record. A record with missing objects is replaced, as in `SinkPlace.commit`.
        """
        outputs = []
        for output in record["outputs"]:
            source, at = self.folder.parent / output["staged"], f"{self.objects}/{output['name']}"
            for file in output["files"]:
                if source.is_dir():
                    self.store.upload(source / file["name"], f"{at}/{file['name']}")
                else:
                    self.store.upload(source, at)
            outputs.append({"name": output["name"], "at": at, "files": output["files"]})
        record = {**record, "outputs": outputs}
        while not self.store.put_once(self.record, json.dumps(record).encode()):
            other = json.loads(self.store.read(self.record))
            if is_there(other, self.store.sizes(OUTPUTS)):
                self.give_up()
                known: Json = other
                return known
            self.store.remove([self.record])
        shutil.rmtree(self.folder, ignore_errors=True)
        return record

    def committed(self) -> Json | None:
        """Return the record of this attempt, None if it has not been committed."""
        try:
            found: Json = json.loads(self.store.read(self.record))
        except FileNotFoundError:
            return None
        return found if all(each["at"].startswith(f"{self.objects}/") for each in found["outputs"]) else None

    def give_up(self) -> None:
        """Delete the files of this attempt. Objects that cannot be deleted now are deleted by the next run."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.store.remove(self.store.sizes(self.objects))


def _scratch_prefix(sink: str) -> str:
    return f"magicbyte-{hashlib.sha256(sink.encode()).hexdigest()[:12]}-"


def is_there(record: Json, sizes: Mapping[str, int]) -> bool:
    """Return whether the objects of a record exist, by name and size."""
    return all(
        sizes.get(output["at"] if output["at"] in sizes else f"{output['at']}/{file['name']}") == file["size"]
        for output in record["outputs"]
        for file in output["files"]
    )


# ---- on the driver

# Names in WORK and OUTPUTS begin with the number of their run. A run deletes objects of runs up to its own.


def _run_of(name: str) -> int:
    """Return the number of the run of an object in WORK or OUTPUTS."""
    return int(name.split("/")[1][:8])


def _claim_name(number: int) -> str:
    return f"{WORK}/{number:08}.claim"


@dataclass(slots=True)
class StoreSink:
    """A sink in an object store, on the driver.

    `manifest`: the last one. `number`: its number. `run`: the number of the run. `sizes`: bytes of objects by name.
    """

    store: ObjectStore
    tables: bool
    manifest: Json | None
    number: int
    run: int
    sizes: dict[str, int]
    records: dict[str, list[tuple[str, Json]]] | None = None

    @classmethod
    @contextlib.contextmanager
    def held(cls, url: str, *, tables: bool, resume: bool) -> Iterator[StoreSink]:
        """Claim the sink for a run, and update the claim until the end.

        Raises LogDirectoryError if another run holds it, if the store has no create-if-absent, if it holds objects of
        no pipeline, or, without `resume`, if it holds the output of one.
        """
        store = ObjectStore(url)
        run = _claimed(store, resume=resume)
        over = threading.Event()
        beating = threading.Thread(target=_beat, args=(store, run, over), name="magicbyte-claim", daemon=True)
        beating.start()
        try:
            sink = cls.seen(url, tables=tables)
            if sink.run != run:
                raise LogDirectoryError(f"{url}: another run has taken over")
            yield sink
        finally:
            over.set()
            beating.join()
            ours = [name for name in store.sizes(WORK) if _run_of(name) <= run]
            records = [name for name in ours if not name.endswith((".claim", f".{RUN}"))]
            store.remove([_claim_name(run)] if records else ours)  # with records left, the next run continues

    @classmethod
    def seen(cls, url: str, *, tables: bool) -> StoreSink:
        """Return the sink for reading, neither claimed nor changed."""
        store = ObjectStore(url)
        sizes = store.sizes()
        number = newest(name for name in sizes if "/" not in name)
        manifest = json.loads(store.read(manifest_name(number))) if number else None
        return cls(store, tables, manifest, number, number + 1, sizes)

    def now_ms(self, default: int) -> int:
        """Return the time from which ages are computed: of the continued run, else `default`."""
        before = sorted(name for name in self.sizes if name.startswith(f"{WORK}/") and name.endswith(f".{RUN}"))
        now = json.loads(self.store.read(before[-1]))["now"] if before else default
        assert isinstance(now, int)
        self.store.put(f"{WORK}/{self.run:08}.{RUN}", json.dumps({"now": now}).encode())
        return now

    def known(self, unit: str, fingerprint: str) -> Json | None:
        """Return the record of a finished partition whose objects exist, else None."""
        record = None if self.manifest is None else self.manifest["units"].get(unit)
        if record is not None and record["fingerprint"] == fingerprint and self.has(record):
            return dict(record)
        for _, found in self._records().get(f"{unit}.{fingerprint}.json", []):
            if self.has(found):
                return found
        return None

    def _records(self) -> dict[str, list[tuple[str, Json]]]:
        """Return the records of earlier runs' attempts, with their names, by their names without the run."""
        if self.records is None:
            names = [name for name in self.sizes if name.startswith(f"{WORK}/") and name.endswith(".json")]
            names = [name for name in names if not name.endswith(f".{RUN}")]
            self.records = {}
            for name, content in sorted(self.store.read_all(names).items()):
                self.records.setdefault(name[len(WORK) + 10 :], []).append((name, json.loads(content)))
        return self.records

    def has(self, record: Json) -> bool:
        """Return whether the objects of a record exist."""
        return is_there(record, self.sizes)

    def clear(self, keep: set[str]) -> None:
        """Delete the objects of runs up to this one, except the records in `keep` and the objects that they name.

        Objects named by the manifest are kept, too. `keep`: names of records without their run.
        """
        self.sizes = self.store.sizes()
        records = dict(pair for key in keep for pair in self._records().get(key, []))
        named = [] if self.manifest is None else list(self.manifest["units"].values())
        named += records.values()
        kept = {output["at"].split("/")[1] for record in named for output in record["outputs"]}
        if self.manifest is not None and "checkpoints" in self.manifest:
            kept.add(self.manifest["checkpoints"].split("/")[1])
        own = {*records, _claim_name(self.run), f"{WORK}/{self.run:08}.{RUN}"}
        self.store.remove(
            name
            for name in self.sizes
            if name.startswith((f"{WORK}/", f"{OUTPUTS}/"))
            and _run_of(name) <= self.run
            and name not in own
            and name.split("/")[1] not in kept
        )

    def commit(self, manifest: Json) -> None:
        """Write the run's manifest.

        Raises LogDirectoryError for a missing output, and if another run has taken over.
        """
        self.sizes = self.store.sizes()
        for record in manifest["units"].values():
            if not is_there(record, self.sizes):
                raise LogDirectoryError(
                    f"{self.store.url}: an output of {record['unit']} is missing: run again with --resume"
                )
        beside = f"{OUTPUTS}/{self.run:08}.checkpoints.{uuid.uuid4().hex}"
        if not self.tables:
            self._put_checkpoints(manifest, beside)
        manifest = {**manifest, "checkpoints": beside, "tables": self.tables}
        if not self.store.put_once(manifest_name(self.run), json.dumps(manifest, indent=1).encode()):
            raise LogDirectoryError(f"{self.store.url}: another run has taken over and written its manifest")
        self.manifest, self.number = manifest, self.run

    def _put_checkpoints(self, manifest: Json, beside: str) -> None:
        """Upload the checkpoints of a log directory, and its clean shutdown marker."""
        units: Mapping[str, Json] = manifest["units"]
        ends = {key_of(name): unit["logEndOffset"] for name, unit in units.items()}
        starts = {
            key_of(name): unit["logStartOffset"]
            for name, unit in units.items()
            if unit["logStartOffset"] > _first_base(unit)
        }
        cleaner = {key_of(name): unit["cleanTo"] for name, unit in units.items() if unit.get("cleanTo") is not None}
        meta, version = manifest["metaProperties"], manifest["kafka"]
        rules = LATEST_RULES if version is None else IndexRules.of(version)
        with tempfile.TemporaryDirectory(prefix="magicbyte-") as name:
            folder = Path(name)
            write_checkpoints(folder, rules, ends, starts, None if meta is None else meta.encode())
            if cleaner:
                replace_file(folder / checkpoints.CLEANER, checkpoints.format_offset_checkpoint(cleaner))
            for path in sorted(folder.iterdir()):
                self.store.upload(path, f"{beside}/{path.name}")

    def close(self) -> None:
        """Delete the run's temporary objects, and outputs of the previous manifest that were replaced."""
        self.clear(set())


def _first_base(unit: Json) -> int:
    """Return the base of the first segment of an output."""
    logs = [file["name"] for output in unit["outputs"] for file in output["files"] if file["name"].endswith(".log")]
    return int(min(logs)[:20])


# ---- claims


def _claim(beat: int) -> bytes:
    return json.dumps({"host": socket.gethostname(), "beat": beat, "token": uuid.uuid4().hex}).encode()


def _beat(store: ObjectStore, run: int, over: threading.Event) -> None:
    """Update a claim every BEAT_SECONDS until `over` is set."""
    for count in itertools.count(1):
        if over.wait(BEAT_SECONDS):
            return
        with contextlib.suppress(OSError):  # one missed update does no harm: other runs wait for three intervals
            store.put(_claim_name(run), _claim(count))


def _claimed(store: ObjectStore, *, resume: bool) -> int:
    """Claim the number after the newest manifest for this process, and return it."""
    while True:
        names = store.sizes()
        number = newest(name for name in names if "/" not in name) + 1
        held = {name.split("/")[0] for name in names} - {PAGE, NUMBERS}
        if strangers := held - {WORK, OUTPUTS, *map(manifest_name, range(1, number))}:
            raise LogDirectoryError(
                f"{store.url}: expected an empty folder, or the output of a pipeline; found {min(strangers)}"
            )
        if held and not resume:
            raise LogDirectoryError(f"{store.url}: it holds the work of an earlier run; --resume continues it")
        name = _claim_name(number)
        if not store.put_once(name, _claim(0)):
            if _is_at_work(store, name):
                raise LogDirectoryError(f"{store.url}: another run is using this sink")
            _take_over(store, number)
        elif store.put_once(name, _claim(0)):
            store.remove([name])
            raise LogDirectoryError(f"{store.url}: expected an object store with create-if-absent")
        elif manifest_name(number) not in store.sizes():
            return number
        else:  # a run has committed and ended since the objects were listed
            store.remove([name])


def _is_at_work(store: ObjectStore, name: str) -> bool:
    """Return whether the run with a claim is alive: its claim changes. A run that ends meanwhile is not."""
    with contextlib.suppress(FileNotFoundError):
        before = store.read(name)
        for _ in range(6):
            time.sleep(BEAT_SECONDS / 2)
            if store.read(name) != before:
                return True
    return False


def _take_over(store: ObjectStore, number: int) -> None:
    """Fence off a dead run: put a manifest with its number and the content of the previous manifest."""
    if _claim_name(number) not in store.sizes(WORK):
        return  # the run has ended by itself
    before = json.loads(store.read(manifest_name(number - 1))) if number > 1 else {"form": FORM, "units": {}}
    fence = {**before, "number": number, "takenOverBy": uuid.uuid4().hex}
    store.put_once(manifest_name(number), json.dumps(fence, indent=1).encode())
