"""`magicbyte verify`: what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import golden_data
from cli.command import run

LOG = golden_data.log_case("3.9.1/crash-flip.crashed")
SOUND = golden_data.log_case("3.9.1/txn-none")


def test_a_sound_log_is_one_line_and_status_0() -> None:
    result = run("verify", "--deep", SOUND.partition_dir(named=True))
    assert result.exit_code == 0
    assert result.stdout.count("\n") == 1
    assert result.stdout.endswith(": sound\n")


def test_damage_is_reported_with_position_and_advice_and_status_1() -> None:
    result = run("verify", LOG.partition_dir(named=True))
    assert result.exit_code == 1
    assert "position 2923..3441, offsets 54..59: crc: expected 0x32100ba7, found 0x92786504" in result.stdout
    assert "to do: " in result.stdout
    assert "1 error" in result.stdout.splitlines()[-1]


def test_json_has_every_member_of_a_finding() -> None:
    result = run("verify", "--quick", "--format", "json", LOG.partition_dir(named=True))
    said = json.loads(result.stdout)
    (finding,) = said["findings"]
    assert (finding["position"], finding["end"], finding["offsets"]) == (2923, 3442, [54, 59])
    assert set(finding) == {
        "severity", "path", "position", "end", "offsets", "what", "expected", "found", "advice",
    }  # fmt: skip
    assert said["total"]["error"] == 1
    assert result.exit_code == 1


def test_wrong_use_is_status_2(tmp_path: Path) -> None:
    assert run("verify", tmp_path / "none").exit_code == 2
