"""A pipeline's sink in a store of objects, which has no rename and no locks. `docs/decisions/0007-pipeline.md`.

All that counts is put once, under a name that nobody else can put: the claim of a run, the record of a partition, the
manifest. A run that another one has taken over from can put no manifest: its number is taken. So a claim's heartbeat
only tells a person that somebody is at work; nothing depends on it.
"""

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

from magicbyte.archive.writer import write_checkpoints
from magicbyte.errors import LogDirectoryError
from magicbyte.log.files import checkpoints
from magicbyte.log.files.filesystem import replace_file
from magicbyte.log.files.index_writer import LATEST_RULES, IndexRules
from magicbyte.log.files.manifest import manifest_name, newest
from magicbyte.log.files.store import ObjectStore
from magicbyte.spark.pipeline.sink import FORM, NUMBERS, PAGE, RUN, WORK, key_of

Json = dict[str, Any]

OUTPUTS = "outputs"
BEAT_SECONDS = 5.0
"""A run that is at work says so this often; whoever finds its claim waits for three times that."""


# ---- in workers


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Where a task puts what it makes of one partition: first below `scratch`, then into the store.

    `run` is the number of the run, `token` of this attempt alone.
    """

    sink: str
    unit: str
    fingerprint: str
    run: int
    scratch: str | None = None
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def store(self) -> ObjectStore:
        """The sink."""
        return ObjectStore(self.sink)

    @property
    def folder(self) -> Path:
        """Where this attempt writes; nobody can foresee the token in its name."""
        above = Path(self.scratch or tempfile.gettempdir())
        return above / f"{_scratch_prefix(self.sink)}{self.run:08}-{self.unit}.{self.fingerprint}.{self.token}"

    @property
    def record(self) -> str:
        """What says that an attempt has finished, and which."""
        return f"{WORK}/{self.run:08}.{self.unit}.{self.fingerprint}.json"

    @property
    def objects(self) -> str:
        """What the names of this attempt's objects begin with."""
        return f"{OUTPUTS}/{self.run:08}.{self.fingerprint}.{self.token}"

    def begin(self) -> Path:
        """Make this attempt's folder, for this user alone; what earlier runs to this sink left on this machine goes."""
        prefix = _scratch_prefix(self.sink)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        for left in self.folder.parent.glob(f"{prefix}*"):
            number = left.name.removeprefix(prefix)[:8]
            if number.isdecimal() and int(number) < self.run:
                shutil.rmtree(left, ignore_errors=True)
        self.folder.mkdir(mode=0o700)
        return self.folder

    def commit(self, found: Json) -> Json:
        """Put this attempt's files into the store and make them the output, unless another attempt was first.

        Returns the record that counts. A record whose objects are gone is nobody's, as in `Place.commit`.
        """
        outputs = []
        for output in found["outputs"]:
            source, at = self.folder.parent / output["staged"], f"{self.objects}/{output['name']}"
            for file in output["files"]:
                if source.is_dir():
                    self.store.upload(source / file["name"], f"{at}/{file['name']}")
                else:
                    self.store.upload(source, at)
            outputs.append({"name": output["name"], "at": at, "files": output["files"]})
        found = {**found, "outputs": outputs}
        while not self.store.put_once(self.record, json.dumps(found).encode()):
            other = json.loads(self.store.read(self.record))
            if is_there(other, self.store.sizes(OUTPUTS)):
                self.give_up()
                known: Json = other
                return known
            self.store.remove([self.record])
        shutil.rmtree(self.folder, ignore_errors=True)
        return found

    def committed(self) -> Json | None:
        """Return the record that this attempt put, None if it has put none."""
        try:
            found: Json = json.loads(self.store.read(self.record))
        except FileNotFoundError:
            return None
        return found if all(each["at"].startswith(f"{self.objects}/") for each in found["outputs"]) else None

    def give_up(self) -> None:
        """Remove what this attempt wrote; what the store does not remove now, the next run does."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.store.remove(self.store.sizes(self.objects))


def _scratch_prefix(sink: str) -> str:
    return f"magicbyte-{hashlib.sha256(sink.encode()).hexdigest()[:12]}-"


def is_there(record: Json, sizes: Mapping[str, int]) -> bool:
    """Whether the objects of a record are there, by their sizes."""
    return all(
        sizes.get(output["at"] if output["at"] in sizes else f"{output['at']}/{file['name']}") == file["size"]
        for output in record["outputs"]
        for file in output["files"]
    )


# ---- on the driver

# What is in WORK and OUTPUTS begins with the number of its run: a run removes what runs up to its own have left.


def _run_of(name: str) -> int:
    """Return the number of the run that an object below WORK or OUTPUTS is of."""
    return int(name.split("/")[1][:8])


def _claim_name(number: int) -> str:
    return f"{WORK}/{number:08}.claim"


@dataclass(slots=True)
class StoreSink:
    """A sink, on the driver: `manifest` is the last manifest, `number` its number, `run` the number of the run, and
    `sizes` the bytes of the stored objects."""

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
        """Claim the sink for a run, and say that it is at work until the end.

        Raises LogDirectoryError when another run has it, when the store cannot put an object only where none is, when
        it holds what no pipeline made, or, without `resume`, what one made.
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
            store.remove([_claim_name(run)] if records else ours)  # with records there, the next run goes on

    @classmethod
    def seen(cls, url: str, *, tables: bool) -> StoreSink:
        """Return the sink as it is, neither claimed nor changed."""
        store = ObjectStore(url)
        sizes = store.sizes()
        number = newest(name for name in sizes if "/" not in name)
        manifest = json.loads(store.read(manifest_name(number))) if number else None
        return cls(store, tables, manifest, number, number + 1, sizes)

    def now_ms(self, default: int) -> int:
        """Return the time that the run counts from: of the run that is gone on with, else `default`."""
        before = sorted(name for name in self.sizes if name.startswith(f"{WORK}/") and name.endswith(f".{RUN}"))
        now = json.loads(self.store.read(before[-1]))["now"] if before else default
        assert isinstance(now, int)
        self.store.put(f"{WORK}/{self.run:08}.{RUN}", json.dumps({"now": now}).encode())
        return now

    def known(self, unit: str, fingerprint: str) -> Json | None:
        """Return the record of a partition that is done already, and whose objects are there."""
        record = None if self.manifest is None else self.manifest["units"].get(unit)
        if record is not None and record["fingerprint"] == fingerprint and self.has(record):
            return dict(record)
        for _, found in self._records().get(f"{unit}.{fingerprint}.json", []):
            if self.has(found):
                return found
        return None

    def _records(self) -> dict[str, list[tuple[str, Json]]]:
        """Return the records that attempts of earlier runs put, with their names, by the names without their run."""
        if self.records is None:
            names = [name for name in self.sizes if name.startswith(f"{WORK}/") and name.endswith(".json")]
            names = [name for name in names if not name.endswith(f".{RUN}")]
            self.records = {}
            for name, content in sorted(self.store.read_all(names).items()):
                self.records.setdefault(name[len(WORK) + 10 :], []).append((name, json.loads(content)))
        return self.records

    def has(self, record: Json) -> bool:
        """Whether the objects of a record are there."""
        return is_there(record, self.sizes)

    def clear(self, keep: set[str]) -> None:
        """Remove what runs up to this one left, but for the records of `keep`, and the objects that they name.

        What the manifest names stays as well. `keep`: names of records without their run.
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
        """Put the run's manifest.

        Raises LogDirectoryError for an output that is gone, or when another run has taken over.
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
        """Put what lies beside the partitions of a log directory."""
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
        """Remove what the run needed, and what the manifest before had and this one has not."""
        self.clear(set())


def _first_base(unit: Json) -> int:
    """Return the base of the first segment of an output."""
    logs = [file["name"] for output in unit["outputs"] for file in output["files"] if file["name"].endswith(".log")]
    return int(min(logs)[:20])


# ---- claims


def _claim(beat: int) -> bytes:
    return json.dumps({"host": socket.gethostname(), "beat": beat, "token": uuid.uuid4().hex}).encode()


def _beat(store: ObjectStore, run: int, over: threading.Event) -> None:
    """Change a claim every BEAT_SECONDS until it is over."""
    for count in itertools.count(1):
        if over.wait(BEAT_SECONDS):
            return
        with contextlib.suppress(OSError):  # whoever looks waits for three beats
            store.put(_claim_name(run), _claim(count))


def _claimed(store: ObjectStore, *, resume: bool) -> int:
    """Claim the number behind the newest manifest for this process, and return it."""
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
        else:  # a run has committed and ended since the names were listed
            store.remove([name])


def _is_at_work(store: ObjectStore, name: str) -> bool:
    """Whether the run with a claim shows that it lives. If it ends meanwhile, it does not."""
    with contextlib.suppress(FileNotFoundError):
        before = store.read(name)
        for _ in range(6):
            time.sleep(BEAT_SECONDS / 2)
            if store.read(name) != before:
                return True
    return False


def _take_over(store: ObjectStore, number: int) -> None:
    """Take the number of a run that does not go on, by a manifest that says what the one before said."""
    if _claim_name(number) not in store.sizes(WORK):
        return  # it has ended by itself
    before = json.loads(store.read(manifest_name(number - 1))) if number > 1 else {"form": FORM, "units": {}}
    fence = {**before, "number": number, "takenOverBy": uuid.uuid4().hex}
    store.put_once(manifest_name(number), json.dumps(fence, indent=1).encode())
