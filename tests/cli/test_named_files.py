"""Files that options name: every option that takes one × hostile files. None is waited for, and none is read whole."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cli.builders import COMMANDS
from cli.command import run
from magicbyte.access.security.settings import resolved
from magicbyte.engine.errors import InvalidConfigError, LogDirectoryError
from magicbyte.engine.log.files.filesystem import MOST_BYTES, read_regular

BESIDE = {
    "configs describe": "-b a:1 -t t",
    "configs set": "-b a:1 -t t retention.ms=1",
    "configs unset": "-b a:1 -t t retention.ms",
    "consume": "-b a:1 -t t",
    "groups delete": "-b a:1 g",
    "metadata format": "new --node-id 1 --standalone CONTROLLER://a:1 --add-scram SCRAM-SHA-256=alice",
    "groups describe": "-b a:1 g",
    "groups reset-offsets": "-b a:1 g -t t --to-earliest",
    "migrate apply": "-b a:1 --topic t --to 1",
    "migrate rollback": "-b a:1 --broker 0 --to 0",
    "mirror": "--topics .* --from a:1 --to b:1 --yes",
    "mirror translate": "--from a:1 --to b:1 --group g",
    "produce": "-b a:1 -t t",
    "schema advise": "MetadataRequest",
    "schema size": "MetadataRequest --version 1",
    "topics create": "-b a:1 t",
    "topics delete": "-b a:1 t",
    "topics describe": "-b a:1 t",
    "topics elect": "-b a:1 --all",
    "topics reassign": "-b a:1 --verify",
    "transactions abort": "-b a:1 --topic t --partition 0 --start-offset 0 --yes",
    "transactions describe": "-b a:1 id",
    "cat": "kafka://a:1/t",
    "diff": "kafka://a:1/t kafka://a:1/t",
    "inventory": "kafka://a:1/t",
    "rescue": ". --to a:1",
    "pipeline run": "/dev/null",
}
"""What a command line needs besides the option."""
STREAMED = {"--request-log", "--capture"}
"""Options for files of any size, which are read piece by piece."""
KINDS = ("FIFO", "socket", "endless", "large", "binary", "link to itself")


def options() -> list[tuple[str, str]]:
    """Return every command with each of its options that take a file."""
    return [
        (name, parameter.opts[0])
        for name, command in COMMANDS.items()
        for parameter in command.params
        if isinstance(parameter, click.Option)
        and isinstance(parameter.type, click.Path)
        and not parameter.type.dir_okay
        and parameter.opts[0] not in STREAMED
    ]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    folder = tmp_path_factory.mktemp("hostile")
    found = {kind: folder / kind.replace(" ", "-") for kind in KINDS}
    found["endless"] = Path("/dev/zero")
    os.mkfifo(found["FIFO"])
    with found["large"].open("wb") as file:
        file.truncate(1 << 33)
    found["binary"].write_bytes(bytes(range(256)))
    found["link to itself"].symlink_to(found["link to itself"])
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(found["socket"]))
        yield found


def test_the_options_are_found() -> None:
    assert len(options()) > 20


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "option"), options())
def test_a_hostile_file_is_refused_by_name(
    name: str, option: str, kind: str, hostile: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    beside = BESIDE.get(name, "-b a:1")
    if name == "schema size" and option == "--proposed":
        (tmp_path / "values.json").write_text('{"topics": []}')
        beside = "MetadataRequest --version 1 --values values.json"
    if name == "serve":
        beside = ""
        if kind == "binary":
            return  # a properties file may have any bytes
    result = run(*name.split(), *beside.split(), option, hostile[kind])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    if kind != "binary":
        assert str(hostile[kind]) in result.stderr


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "some"
    path.write_bytes(b"x" * 10)
    assert read_regular(path, most=10) == b"x" * 10
    with pytest.raises(LogDirectoryError, match="some: expected at most 9 bytes, found more"):
        read_regular(path, most=9)
    assert MOST_BYTES == 16 << 20


@pytest.mark.parametrize("kind", ["FIFO", "endless", "large"])
def test_a_reference_of_a_setting_is_bounded_too(kind: str, hostile: dict[str, Path]) -> None:
    with pytest.raises(InvalidConfigError, match=f"sasl.password: {hostile[kind]}: expected"):
        resolved("sasl.password", f"${{file:{hostile[kind]}:key}}")


@pytest.mark.parametrize(
    ("store", "kind"),
    [(store, kind) for store in ("PEM", "PKCS12", "") for kind in ("FIFO", "endless", "large")
     if (store, kind) != ("PEM", "large")],  # OpenSSL reads a large PEM file, and ends at the first line
)  # fmt: skip
@pytest.mark.parametrize("setting", ["ssl.truststore.location", "ssl.keystore.location"])
def test_a_store_of_keys_is_bounded_too(setting: str, store: str, kind: str, hostile: dict[str, Path]) -> None:
    settings = {"security.protocol": "SSL", setting: hostile[kind], setting.replace("location", "type"): store}
    words = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
    result = run("topics", "list", "-b", "localhost:1", *words)
    assert result.exit_code == 2
    assert str(hostile[kind]) in result.stderr
