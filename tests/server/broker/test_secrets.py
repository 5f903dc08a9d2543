"""Passwords of a run are in none of what it leaves: output, logs, files, process lists, memory of a SCRAM broker."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from magicbyte.access.client import Client, admin
from magicbyte.access.client.produce import send
from magicbyte.engine.protocol.messages import alter_user_scram_credentials as scram
from magicbyte.engine.records.columns import Record
from magicbyte.testing.certificates import Authority

PLAIN, SCRAM, WRONG, KEY = "pl41n-S3same-zq", "scr4m-S3same-zq", "wr0ng-S3same-zq", "k3y-S3same-zq"
SECRETS: Final = (PLAIN, SCRAM, WRONG, KEY)
MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Run:
    """A secured broker as a process of its own, commands beside it, and what all of them say."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said = folder, list[bytes]()
        self._given = folder / "given"  # the files that have the passwords, and should
        self._given.mkdir()
        authority = Authority()
        self.ca = folder / "ca.pem"
        self.ca.write_text(authority.certificate)
        self._store = authority.write(self._given, "broker")
        self.broker: subprocess.Popen[bytes]
        self.plain = self.secured = ""

    def properties(self, name: str, settings: dict[str, str]) -> Path:
        path = self._given / name
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def client(self, name: str, mechanism: str, user: str, password: str) -> Path:
        return self.properties(name, self.settings(mechanism, user, password))

    def settings(self, mechanism: str, user: str, password: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._store),
            "ssl.key.password": KEY,  # of a key that has none: it is not needed, and not to be shown
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        config = self.properties(
            "server.properties",
            {
                "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
                "log.dirs": str(self.folder / "data"),
                "log.retention.ms": "-1",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self._store),
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
                "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{MODULE} required user_bob="{PLAIN}";',
                "connection.failed.authentication.delay.ms": "0",
            },
        )
        command = [sys.executable, "-m", "magicbyte", "serve", "--config", config, "--log-level", "debug"]
        with (self.folder / "broker.err").open("wb") as errors:
            self.broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        assert self.broker.stdout is not None
        try:
            head = [self.broker.stdout.readline() for _ in range(2)]
            self.said += head
            self.plain, self.secured = (re.findall(r"listening on (\S+)", each.decode())[0] for each in head)
            yield
        finally:
            self.broker.terminate()
            self.said.append(self.broker.communicate()[0])

    def command(self, *arguments: str | Path, code: int = 0, stdin: bytes = b"", **environment: str) -> bytes:
        """Run one of our commands; keep and return its output."""
        done = subprocess.run(
            [sys.executable, "-m", "magicbyte", *arguments],
            input=stdin,
            capture_output=True,
            env=os.environ | environment,
            timeout=120,
            check=False,
        )
        self.said += [done.stdout, done.stderr]
        assert done.returncode == code, done.stderr.decode()
        return done.stdout + done.stderr

    def memory_of_broker(self) -> Iterator[bytes]:
        """Yield what a core file of it would have: its writable memory, in pieces that overlap."""
        with Path(f"/proc/{self.broker.pid}/mem").open("rb", buffering=0) as memory:
            for line in Path(f"/proc/{self.broker.pid}/maps").read_text().splitlines():
                begin, end = (int(each, 16) for each in line.split()[0].split("-"))
                if not line.split()[1].startswith("rw"):
                    continue
                with contextlib.suppress(OSError, ValueError):  # pages that the system keeps for itself
                    memory.seek(begin)
                    yield memory.read(end - begin)

    def written_files(self) -> list[Path]:
        return [each for each in self.folder.rglob("*") if each.is_file() and self._given not in each.parents]


class ProcessList:
    """Looks at the command lines of all processes again and again."""

    def __init__(self) -> None:
        self.found, self.seen = set[str](), set[bytes]()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> ProcessList:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(0.02):
            for each in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    line = each.read_bytes()
                    self.seen.add(line)
                    self.found |= {secret for secret in SECRETS if secret.encode() in line}


async def prepare(run: Run) -> None:
    """Make a topic, a user of SCRAM, whose password the broker does not get, and some records."""
    salt = b"salt of a test"
    salted = hashlib.pbkdf2_hmac("sha256", SCRAM.encode(), salt, 4096)
    async with Client(run.plain) as client:
        await admin.create_topic(client, admin.NewTopic("orders"))
        await send(client, "orders", 0, [Record(at, 1_500_000_000_000, 0, b"k", b"v") for at in range(5)])
        change = scram.ScramCredentialUpsertion(
            name="alice", mechanism=1, iterations=4096, salt=salt, salted_password=salted
        )
        connection = await client.any_connection()
        answer = await connection.send(scram.AlterUserScramCredentialsRequest(upsertions=[change]))
        assert isinstance(answer, scram.AlterUserScramCredentialsResponse)
        assert not answer.results[0].error_code


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="process lists and memory are those of /proc")
def test_no_password_of_a_run_is_in_what_it_leaves(tmp_path: Path) -> None:
    run = Run(tmp_path)
    good, plain = run.client("scram", "SCRAM-SHA-256", "alice", SCRAM), run.client("plain", "PLAIN", "bob", PLAIN)
    wrong = run.client("wrong", "SCRAM-SHA-256", "alice", WRONG)
    refused = run.client("refused", "PLAIN", "bob", WRONG)
    with run.serving(), ProcessList() as processes:
        asyncio.run(prepare(run))
        where, topic = ("-b", run.secured), f"kafka://{run.secured}/orders"
        # Those of SCRAM first: then the broker has not been told a password of the kind that it must not keep.
        run.command("produce", *where, "-t", "orders", "--config", good, stdin=b"one\ntwo\n")
        assert b"one" in run.command("consume", *where, "-t", "orders", "-e", "--config", good)
        run.command("cat", topic, "--config", good)
        run.command("inventory", topic, "--config", good)
        run.command("plan", *where, "--config", good)
        run.command("topics", "list", *where, "--config", good)
        run.command("consume", *where, "-t", "orders", "-e", "--config", wrong, code=2)
        by_environment = ["-X", "sasl.password=${env:SECRET_OF_ALICE}"]
        run.command("cat", topic, "--config", wrong, *by_environment, SECRET_OF_ALICE=SCRAM)
        memory = b"".join(run.memory_of_broker())
        assert b"SCRAM-SHA-256" in memory
        assert SCRAM.encode() not in memory
        assert WRONG.encode() not in memory
        assert b"one" in run.command("consume", *where, "-t", "orders", "-e", "--config", plain)
        run.command("consume", *where, "-t", "orders", "-e", "--config", refused, code=2)
        settings = run.settings("PLAIN", "bob", PLAIN)
        sides = run.properties("mirror", {f"source.{name}": value for name, value in settings.items()})
        copy = ["mirror", "--config", sides, "--from", run.secured, "--to", tmp_path / "copy", "--topics", "orders"]
        copy.append("--until-caught-up")
        assert b"orders" in run.command(*copy, "--explain")
        run.command(*copy)
        run.command(*copy, "-X", "source.sasl.password=${env:OTHER_SECRET}", code=2, OTHER_SECRET=WRONG)
        # A name that is misspelt, and a value at the wrong place: what the message shows is the name.
        run.command("cat", topic, "--config", run.properties("misspelt", {"sasl.pasword": PLAIN}), code=2)
        jaas = {"sasl.jaas.config": f"{MODULE} required user={PLAIN}"}
        run.command("cat", topic, "--config", run.properties("jaas", settings | jaas), code=2)
        assert any(b"consume" in each for each in processes.seen)
    log = (tmp_path / "broker.err").read_bytes()
    assert b"refused" in log
    said = b"\n".join(run.said)
    assert b"refused" in said
    for secret in SECRETS:
        assert secret.encode() not in said, secret
        assert secret not in processes.found
        assert [each for each in run.written_files() if secret.encode() in each.read_bytes()] == [], secret
    assert {"data", "broker.err"} <= {each.name for each in tmp_path.iterdir()}
