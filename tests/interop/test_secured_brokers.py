"""Our commands and real secured brokers, from 0.10.2, which takes tokens as they are, to 4.3: TLS and each login."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from interop.secured import MECHANISMS, PASSWORD, WRONG, Stores, properties, real_broker
from interop.sweeps import cells
from interop.test_spark_live import Followed
from magicbyte.cli.main import main
from magicbyte.spark.pipeline import driver, load
from magicbyte.testing import Broker
from spark.in_process import InProcess

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

VERSIONS: Final = ("0.10.2.2", "2.8.2", "3.9.1", "4.3.1")
PATIENCE_S: Final = 240


def run(*words: str | Path, text: bytes = b"") -> Any:
    """Return what became of a command; no password is in what it says."""
    result = CliRunner().invoke(main, list(map(str, words)), input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert not [each for each in (PASSWORD, WRONG) if each in result.output]
    return result


def said(*words: str | Path, text: bytes = b"") -> str:
    """Return what a command prints that succeeds."""
    result = run(*words, text=text)
    assert result.exit_code == 0, (words, result.output)
    return str(result.stdout)


def until_known(address: str, settings: Path) -> None:
    """Wait until the broker has read of its new user."""
    end = time.monotonic() + PATIENCE_S
    while (result := run("topics", "list", "-b", address, "--config", settings)).exit_code:
        assert time.monotonic() < end, result.output
        time.sleep(0.2)


def until_listed(topic: str, *reached: str | Path) -> None:
    """Wait until the broker, too, has heard of a topic that the controller has made."""
    end = time.monotonic() + PATIENCE_S
    while topic not in said("topics", "list", *reached).split():
        assert time.monotonic() < end, f"{topic} is not known"
        time.sleep(0.2)


@pytest.mark.parametrize("version", cells(VERSIONS))
def test_commands_reach_a_real_secured_broker_by_each_login(version: str, tmp_path: Path) -> None:
    stores = Stores(tmp_path)
    settings = {
        each: properties(tmp_path / f"{each}.properties", stores.java("SASL_SSL") | stores.login("Java", each))
        for each in MECHANISMS
    }
    with real_broker(version, tmp_path, stores) as (_, address):
        until_known(address, settings["SCRAM-SHA-256"])
        until_known(address, settings["SCRAM-SHA-512"])
        for mechanism, path in settings.items():
            reached = ("-b", address, "--config", path)
            said("topics", "create", *reached, mechanism)
            until_listed(mechanism, *reached)
            said("produce", *reached, "-t", mechanism, text=b"one\ntwo\n")
            assert said("consume", *reached, "-t", mechanism, "-e") == "one\ntwo\n"
        assert set(said("topics", "list", "-b", address, "--config", settings["PLAIN"]).split()) >= set(MECHANISMS)
        planned = json.loads(said("plan", "--format", "json", "-b", address, "--config", settings["SCRAM-SHA-512"]))
        assert {each["topic"] for each in planned["topics"]} >= set(MECHANISMS)
        mirrored(address, stores, tmp_path)
        piped(address, stores, tmp_path)
        refused(address, stores, tmp_path)


def mirrored(address: str, stores: Stores, folder: Path) -> None:
    """Copy a topic from the real broker to ours, which is secured, too."""
    login = stores.java("SASL_SSL") | stores.login("Java", "SCRAM-SHA-256")
    both = (
        properties(folder / "source", login, "source.").read_text()
        + properties(folder / "to", login, "target.").read_text()
    )
    (folder / "mirror").write_text(both)
    with Broker(stores.broker_settings()) as ours:
        stores.add_user(ours)
        to = ours.address("LOGIN")
        run_mirror = ("mirror", "--from", address, "--to", to, "--config", folder / "mirror", "--topics", "PLAIN")
        said(*run_mirror, "--until-caught-up", "--yes")
        path = properties(folder / "ours", login)
        assert said("consume", "-b", to, "--config", path, "-t", "PLAIN", "-e") == "one\ntwo\n"


def piped(address: str, stores: Stores, folder: Path) -> None:
    """Read a topic by Spark's source, and take it through pipelines into a log directory and back as another topic."""
    login = stores.java("SASL_SSL") | stores.login("Java", "SCRAM-SHA-512")
    secured = {f"kafka.{name}": value for name, value in login.items()}
    followed = Followed(**secured, **{"kafka.bootstrap.servers": address, "subscribe": "PLAIN"})
    followed.catch_up()
    followed.close()
    assert [row[1] for row in followed.rows] == [b"one", b"two"]
    steps = {
        "copy": f'[source]\nbootstrap = "{address}"\ntopics = ["PLAIN"]\n[sink]\npath = "copied"\n',
        "back": f'[source]\npath = "renamed"\n[sink]\nbootstrap = "{address}"\n',
    }
    for name, text in steps.items():
        path = folder / f"{name}.toml"
        path.write_text(text)
        sides = {"source_client": login} if name == "copy" else {"target_client": login}
        done = driver.run(load(path, **sides), context=InProcess())
        assert done.status == 0, done.units
        if name == "copy":
            (folder / "renamed").mkdir()
            (folder / "copied/PLAIN-0").rename(folder / "renamed/piped-0")
    written = [each for each in (folder / "copied").rglob("*") if each.is_file()]
    assert written
    assert not any(PASSWORD.encode() in each.read_bytes() for each in written)
    path = properties(folder / "piped", login)
    assert said("consume", "-b", address, "--config", path, "-t", "piped", "-e") == "one\ntwo\n"


def refused(address: str, stores: Stores, folder: Path) -> None:
    """Errors name the cause: the password (brokers before 1.0 just end a login), the certificate, the protocol."""
    (folder / "others").mkdir()
    others = Stores(folder / "others")
    tries = {
        "the PLAIN login": stores.java("SASL_SSL") | stores.login("Java", "PLAIN", WRONG),
        "its certificate is not accepted": others.java("SASL_SSL") | others.login("Java", "PLAIN"),
        "the broker expects TLS on this port": {"security.protocol": "PLAINTEXT"},
    }
    for says, settings in tries.items():
        result = run("topics", "list", "-b", address, "--config", properties(folder / "refused", settings))
        assert result.exit_code == 2
        assert says in result.stderr
