"""What all commands have in common: groups in the help, completion, flags that mean the same."""

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import golden_data
from cli.command import run
from magicbyte.cli.main import COMMANDS, main

NAMES = list(COMMANDS)


def commands() -> Iterator[tuple[str, click.Command]]:
    """Each command, and each command of a group, by what is typed."""
    context = click.Context(main)
    waiting = [(name, main.get_command(context, name)) for name in NAMES]
    while waiting:
        name, command = waiting.pop()
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            waiting += [(f"{name} {each}", inner) for each, inner in command.commands.items()]


def options_named(flag: str) -> list[tuple[str, click.Option]]:
    return [
        (name, parameter)
        for name, command in commands()
        for parameter in command.params
        if isinstance(parameter, click.Option) and flag in parameter.opts
    ]


def test_the_help_lists_every_command_once_in_groups_that_fit_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("--help").stdout.splitlines()
    listed = [line.split()[0] for line in lines if line.startswith("  ") and line.split()[0] in COMMANDS]
    assert sorted(listed) == sorted(NAMES)
    assert "Logs on disk, without a broker:" in lines
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", NAMES)
def test_each_command_explains_itself_with_status_0_and_refuses_an_unknown_option_with_2(name: str) -> None:
    explained, refused = run(name, "--help"), run(name, "--no-such-option")
    assert (explained.exit_code, explained.stderr) == (0, "")
    assert refused.exit_code == 2
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_of_each_shell_asks_the_command_itself(shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert "_MAGICBYTE_COMPLETE" in result.stdout


def test_bootstrap_servers_are_named_as_with_the_tools_of_kafka() -> None:
    found = options_named("--bootstrap")
    assert len(found) > 10
    assert all({"-b", "--bootstrap-server"} <= set(option.opts) for _, option in found)


def test_an_output_is_a_file_with_o_and_damage_stops_by_default() -> None:
    others = [name for name, option in options_named("-o") if "--output" not in option.opts]
    assert others == ["consume"]  # which has kcat's letters: there it is the offset
    damage = options_named("--on-damage")
    assert {name for name, _ in damage} == {"cat", "diff", "dump"}
    assert len({(option.default, option.help, tuple(option.type.choices)) for _, option in damage}) == 1
    assert damage[0][1].default == "stop"


def test_values_are_shown_alike_by_cat_and_consume() -> None:
    shown = [(name, option) for name, option in options_named("--values") if isinstance(option.type, click.Choice)]
    assert {name for name, _ in shown} == {"cat", "consume"}
    (first, second) = (option for _, option in shown)
    assert (first.default, first.help, first.type.choices) == (second.default, second.help, second.type.choices)


@pytest.mark.parametrize("given", ["v2", "2", "0.11", "4.3"])
def test_a_format_is_understood_by_name_magic_byte_and_release(given: str, tmp_path: Path) -> None:
    source = tmp_path / "basic-none-0"
    source.mkdir()
    for file, content in golden_data.log_case("0.8.2.2/basic-none").partition_files().items():
        (source / file).write_bytes(content)
    result = run("convert", source, "--to", given, "--out", tmp_path / "newer")
    assert result.exit_code == 0, result.stderr
    assert "magic 2" in run("inventory", tmp_path / "newer").stdout


def test_quick_and_deep_exclude_each_other(tmp_path: Path) -> None:
    result = run("verify", tmp_path, "--quick", "--deep")
    assert result.exit_code == 2
    assert "exclude each other" in result.stderr


def test_a_format_of_json_has_a_flag_of_its_own_everywhere() -> None:
    """Also where objects come one by one; what has other formats besides says which one it stands for."""
    formats = {name: option for name, option in options_named("--format") if isinstance(option.type, click.Choice)}
    flags = dict(options_named("--json"))
    assert len(formats) > 20
    for name, option in formats.items():
        assert isinstance(option.type, click.Choice)
        meant = next(each for each in option.type.choices if each.startswith("json"))
        assert flags[name].help == f"The same as --format {meant}."
    assert set(flags) - set(formats) <= {"consume", "rescue"}  # which have text or JSON, and no format


@pytest.mark.parametrize("given", [["--json"], ["--format", "json"], ["--format", "text", "--json"]])
def test_json_by_flag_is_what_it_is_by_name(given: list[str]) -> None:
    assert json.loads(run("schema", "list", *given).stdout)[0].keys() == {"name", "kind"}


def test_a_message_is_listed_shown_and_when_misspelt_guessed() -> None:
    assert re.search(r"^FetchRequest +messages$", run("schema", "list").stdout, re.MULTILINE)
    assert '"name": "FetchRequest"' in run("schema", "show", "FetchRequest").stdout
    result = run("schema", "show", "FetchReqest")
    assert (result.exit_code, 'did you mean "FetchRequest"?' in result.stderr) == (2, True)


def test_a_misspelt_setting_of_serve_stops_it(tmp_path: Path) -> None:
    result = run("serve", "--dir", tmp_path, "num.partition=3")
    assert result.exit_code == 2
    assert "did you mean 'num.partitions'?" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["queued.max.requests", "group.streams.session.timeout.ms", "retention.ms"])
def test_a_setting_that_only_resembles_another_is_warned_of(name: str, tmp_path: Path) -> None:
    """Kafka has settings that have no effect here, with names of other words than those that have one."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run("serve", "--dir", tmp_path, "--listen", f"127.0.0.1:{taken.getsockname()[1]}", f"{name}=500")
    assert result.exit_code != 0
    assert f"warning: {name}: unknown, or without effect here" in result.stderr
    assert "did you mean" not in result.stderr


SEVERAL_MEANINGS = {
    "--to": "where a range ends, a format, a release, a target: what a command leads to",
    "--from": "where a range begins, or a source: what a command begins at",
    "-o": "a file, but kcat's offset in consume",
    "--brokers": "how many to start, or which ones",
    "--http": "an address, or the port of the first of several brokers",
    "--values": "how values are shown, or a file of them",
    "--wait": "for as long as it takes, or so long at most",
    "--zookeeper": "an address, or that offsets are kept there",
    "--codec": "of new sets; convert can keep each its own",
    "--format": "of the output; what there is depends on what is printed",
}
"""Flags that do not take the same kind of value everywhere, with what they have in common."""


def kind_of(option: click.Option) -> str:
    """Return what kind of value an option takes."""
    if option.is_flag:
        return "flag"
    choices = f" {'|'.join(option.type.choices)}" if isinstance(option.type, click.Choice) else ""
    return "path" if isinstance(option.type, click.Path) else f"{option.type.name}{choices}"


def test_a_flag_takes_the_same_kind_of_value_in_every_command() -> None:
    kinds: dict[str, dict[str, list[str]]] = {}
    for name, command in commands():
        for each in command.params:
            if isinstance(each, click.Option) and not each.hidden:
                for flag in (*each.opts, *each.secondary_opts):
                    kinds.setdefault(flag, {}).setdefault(kind_of(each), []).append(name)
    several = {flag: found for flag, found in kinds.items() if len(found) > 1}
    assert several.keys() == SEVERAL_MEANINGS.keys(), several
