"""A fresh log directory for one node of a KRaft cluster, as `kafka-storage format` of a release makes it.

Source: Kafka's StorageTool and Formatter, 3.3 to 4.4; compared with the files of real ones.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magicbyte.engine.cluster.features import FIRST_WITH_SCRAM, FIRST_WITH_VOTERS, METADATA_VERSION
from magicbyte.engine.cluster.image import ClusterImage
from magicbyte.engine.cluster.metadata_batches import QuorumVoter, snapshot, voters_of
from magicbyte.engine.cluster.metadata_fold import records_of
from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.log.files.checkpoints import META_PROPERTIES, format_meta_properties
from magicbyte.engine.log.files.outputs import whole_folder
from magicbyte.engine.protocol.fields import id_text
from magicbyte.tools.offline.quorum import BOOTSTRAP, FIRST_SNAPSHOT

if TYPE_CHECKING:
    from pathlib import Path

    from magicbyte.engine.cluster.metadata_batches import Control
    from magicbyte.engine.cluster.metadata_records import MetadataRecord
    from magicbyte.engine.cluster.scram import Credential
    from magicbyte.engine.releases import Release

_RESERVED: Final = 100  # ids up to this number have other meanings
_OF_FILE_SYSTEMS: Final = frozenset({"lost+found"})
_READ_ONLY: Final = 0o400  # the mode of Kafka's snapshots
CONTROLLER: Final = "controller"
BROKER: Final = "broker"


def new_id() -> uuid.UUID:
    """Return a random id of a cluster or directory. As Kafka's it has no other meaning, and no `-` at its start."""
    while (made := uuid.uuid4()).int <= _RESERVED or id_text(made).startswith("-"):
        pass
    return made


def parse_id(text: str) -> uuid.UUID:
    """Return the id that a text of 22 characters of URL-safe base64 is. Raises ValueError."""
    try:
        raw = base64.b64decode(f"{text}==", altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raw = b""
    if len(raw) != 16 or id_text(uuid.UUID(bytes=raw)) != text:
        raise ValueError(f"{text!r}: expected an id of 22 characters, of 16 bytes in URL-safe base64")
    return uuid.UUID(bytes=raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFormat:
    """What a directory is formatted with.

    `levels`: of features, `metadata.version` first (`features.initial_levels`). `voters`: with which a dynamic quorum
    begins, none if it is static or this node joins it later. `users`: their credentials, by mechanism.
    """

    node_id: int
    cluster_id: uuid.UUID
    directory_id: uuid.UUID
    release: Release
    roles: frozenset[str]
    levels: Mapping[str, int]
    voters: Sequence[QuorumVoter] = ()
    users: Mapping[str, Mapping[str, Credential]]


def format_directory(path: Path, wanted: NodeFormat, now_ms: int) -> list[str]:
    """Make a log directory, or fill an empty one; return the names of its files. Whole and durable when it returns.

    Raises LogDirectoryError for a directory that is in use, and ValueError for what the level does not allow.
    """
    level = wanted.levels[METADATA_VERSION]
    for is_asked, first, what in (
        (wanted.users, FIRST_WITH_SCRAM, "SCRAM users"),
        (wanted.voters, FIRST_WITH_VOTERS, "a dynamic quorum"),
    ):
        if is_asked and level < first:
            raise ValueError(f"{what}: expected {METADATA_VERSION} {first} or later, found {level}")
    _refuse_used(path)
    files = _files(wanted, now_ms)
    with whole_folder(path, is_durable=True, last=META_PROPERTIES) as folder:
        for name, content in files.items():
            file = folder / name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)
            if file.parent != folder:
                file.chmod(_READ_ONLY)
    return list(files)


def _refuse_used(path: Path) -> None:
    if not path.exists():
        return
    names = sorted(each.name for each in path.iterdir() if each.name not in _OF_FILE_SYSTEMS)
    if META_PROPERTIES in names:
        raise LogDirectoryError(f"{path}: it is formatted already: it has a {META_PROPERTIES}")
    if names:
        raise LogDirectoryError(f"{path}: expected an empty directory, found {names[0]}")


def _files(wanted: NodeFormat, now_ms: int) -> dict[str, bytes]:
    directory_id = id_text(wanted.directory_id) if wanted.release.has_directory_ids else None
    files = {META_PROPERTIES: format_meta_properties(wanted.node_id, id_text(wanted.cluster_id), directory_id)}
    records = list(records_of(ClusterImage(features=wanted.levels, scram_users=wanted.users)))
    controls = voters_of(wanted.voters) if wanted.voters else []
    if not wanted.release.begins_with_snapshot:
        files[BOOTSTRAP] = _snapshot(records, now_ms, 0, ())
        if controls:
            files[FIRST_SNAPSHOT] = _snapshot((), now_ms, now_ms, controls)
    elif CONTROLLER in wanted.roles:
        files[FIRST_SNAPSHOT] = _snapshot(records, now_ms, now_ms, controls)
    return files


def _snapshot(records: Sequence[MetadataRecord], now_ms: int, contained_ms: int, controls: Sequence[Control]) -> bytes:
    return b"".join(snapshot(records, epoch=0, written_ms=now_ms, contained_ms=contained_ms, controls=controls))
