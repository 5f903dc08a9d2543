"""Which way the bytes of a log go: the cells of the documents' tables of both phases, seen from the system's calls."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.files.filesystem import LocalFile
from magicbyte.engine.records.encode import Format
from server.broker.builders import FORMATS, asking, fetch, made, produce, records
from server.broker.serving import Peer, Running

READERS = {0: Format.V0, 1: Format.V0, 2: Format.V1, 3: Format.V1, 4: Format.V2, 12: Format.V2}


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the bytes of `.log` files that are read into this process, and those that the system sends by itself."""
    moved: Counter[str] = Counter()
    read_at, sendfile = LocalFile.read_at, os.sendfile

    def counted_read(self: LocalFile, position: int, length: int) -> bytes:
        data = read_at(self, position, length)
        if self.path.endswith(".log"):
            moved["read"] += len(data)
        return data

    def counted_send(*arguments: Any) -> int:
        sent = sendfile(*arguments)
        moved["sent"] += sent
        return sent

    with monkeypatch.context() as patch:
        patch.setattr(LocalFile, "read_at", counted_read)
        patch.setattr(os, "sendfile", counted_send)
        yield moved


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("stored", FORMATS)
async def test_what_a_reader_knows_is_sent_by_the_system_alone_and_what_it_does_not_know_is_not(
    stored: Format, codec: Codec, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Running(folder) as broker:
        await broker.topics.create("topic", configs={"message.format.version": stored.value})
        peer = await Peer.of(broker)
        for _ in range(5):
            assert (await produce(peer, "topic", made(records(50), stored, codec), stored)).error_code == 0
        size = broker.replicas.partition("topic", 0).log.size
        for version, reader in READERS.items():
            with watched(monkeypatch) as moved:
                found = await fetch(peer, version, asking("topic", 0))
            assert found.records
            if reader.magic >= stored.magic:
                assert moved["sent"] == size, version
                assert moved["read"] < 8192 + 32, version  # headers, to find the first set
            else:
                assert moved["sent"] == 0, version
                assert moved["read"] >= size, version
        peer.close()
