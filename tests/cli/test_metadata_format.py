"""`magicbyte metadata format`: its command line, and that passwords are no arguments."""

import json
from pathlib import Path

import pytest

from cli.command import run
from magicbyte.access.security.scram import HASHES
from magicbyte.access.security.server import credential_of_password
from magicbyte.tools.offline.metadata_sources import read_metadata

STATIC = ("--node-id", "1", "--controller-quorum-voters", "1@localhost:9093,2@localhost:9094")


def test_a_formatted_directory_is_shown(tmp_path: Path) -> None:
    cluster = "b3JhY2xlLW9yYWNsZS1vcg"
    done = run("metadata", "format", tmp_path / "a", *STATIC, "--cluster-id", cluster, "--release", "4.3.1",
               "--feature", "share.version=0")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert cluster in done.stdout
    assert f"cluster.id={cluster}\n" in (tmp_path / "a" / "meta.properties").read_text()
    shown = json.loads(run("metadata", "show", tmp_path / "a", "--json").stdout)
    assert shown["features"]["metadata.version"] == 30
    assert "share.version" not in shown["features"]
    again = run("metadata", "format", tmp_path / "a", *STATIC)
    assert again.exit_code == 2
    assert "formatted already" in again.stderr


def test_passwords_come_from_a_file(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text("alice=in=wonder land\nbob=x\n")
    done = run("metadata", "format", tmp_path / "a", *STATIC, "--metadata-version", "3.5-IV2",
               *(word for mechanism in HASHES for word in ("--add-scram", f"{mechanism}=alice")),
               "--password-file", passwords)  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert "wonder" not in done.stdout + done.stderr
    assert "Kafka 3.5" in done.stdout
    users = read_metadata(str(tmp_path / "a")).image.scram_users
    assert users.keys() == {"alice"}
    for mechanism, found in users["alice"].items():
        assert found == credential_of_password(mechanism, "in=wonder land", found.salt)
    missing = run("metadata", "format", tmp_path / "b", *STATIC, "--add-scram", "SCRAM-SHA-256=carol",
                  "--password-file", passwords)  # fmt: skip
    assert missing.exit_code == 2
    assert "no line has the password of carol" in missing.stderr
    assert not (tmp_path / "b").exists()


def test_without_a_file_and_a_terminal_a_password_is_refused(tmp_path: Path) -> None:
    done = run("metadata", "format", tmp_path / "a", *STATIC, "--add-scram", "SCRAM-SHA-256=alice")
    assert done.exit_code != 0
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--node-id", "1"], "expected one of --controller-quorum-voters, --standalone"),
        (["--node-id", "3", *STATIC[2:]], "node 3 is a controller, and not among the voters"),
        (["--node-id", "1", "--roles", "broker", *STATIC[2:]], "node 1 is no controller, but among"),
        (["--node-id", "1", "--controller-quorum-voters", "1@localhost"], "expected HOST:PORT"),
        (["--node-id", "1", "--controller-quorum-voters", "localhost:9093"], "expected"),
        (["--node-id", "1", "--standalone", "localhost:9093"], "expected LISTENER://HOST:PORT"),
        (["--node-id", "1", "--roles", "broker", "--standalone", "C://localhost:9093"], "a broker is no controller"),
        (["--node-id", "1", "--standalone", "C://localhost:9093", "--release", "3.8"], "expected metadata.version 21"),
        ([*STATIC, "--release", "2.8"], "expected a release from 3.3 on"),
        ([*STATIC, "--release", "4.3", "--metadata-version", "33"], "up to 30"),
        ([*STATIC, "--metadata-version", "4.9-IV0"], "expected a level from 7"),
        ([*STATIC, "--feature", "group.version"], "expected NAME=LEVEL"),
        ([*STATIC, "--cluster-id", "mine"], "expected an id of 22 characters"),
        ([*STATIC, "--add-scram", "PLAIN=alice"], "expected MECHANISM=USER"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line_and_nothing_is_written(
    words: list[str], message: str, tmp_path: Path
) -> None:
    done = run("metadata", "format", tmp_path / "a", *words)
    assert done.exit_code == 2
    assert message in done.stderr.splitlines()[-1]
    assert not (tmp_path / "a").exists()
