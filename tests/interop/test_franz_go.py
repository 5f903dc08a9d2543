"""franz-go's own tests, unchanged: consume, transform, produce while members come and go; SCRAM; its package kgo.

TestTxnEtl chains three consumers in transactions by each balancer, and judges keys, order and duplicates; TestGroupETL
is the same without transactions. They are built from the module that the clients in Go are built with.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from interop import client_programs
from interop.bounced import running
from interop.processes import DIES_WITH_US, Pauses
from interop.secured import PASSWORD, USER, Stores
from magicbyte.testing import Broker

pytestmark = [pytest.mark.interop, pytest.mark.slow]

GO = client_programs.HERE / "go"
MODULE, TEST = "github.com/twmb/franz-go", "TestTxnEtl"
RUNS = int(os.environ.get("FRANZ_GO_RUNS", "1"))
RECORDS, SECONDS = 20_000, 600
SCRAM_TESTS = ("TestSCRAMAuth", "TestSCRAMAuthBadCredentials")
BALANCERS = ("range", "cooperative-sticky", "cooperative-sticky/static")
GROUPS = "TestGroupETL"
LONG = (GROUPS, "TestClient_Produce", "TestIssue337", "TestIssue434")
SUITE_RECORDS, SUITE_SECONDS = 5000, 900
LACKING = {  # they skip themselves with a cluster that has no share groups (KIP-932) or KIP-848, or without a login
    "Test848RegexBrokerResolves",
    "TestConsumeRegexShareSkipsInternal",
    "TestIssueProduceBrokerTooOldFailsRecords",
    "TestShareGroup",
    "TestShareGroupETL",
    "TestShareGroupAckOnClose",
    "TestShareGroupOffsetsAdmin",
    *SCRAM_TESTS,
}


@pytest.fixture(scope="module")
def program() -> tuple[Path, Path]:
    """Give the test program and the folder that it runs in."""
    if shutil.which("go") is None:
        pytest.skip("needs Go: apt-get install golang")
    told = subprocess.run(  # `go list` has no folder for a module before its download
        ["go", "mod", "download", "-json", MODULE], cwd=GO, check=True, stdout=subprocess.PIPE, text=True
    ).stdout  # fmt: skip
    folder = Path(json.loads(told)["Dir"])

    def build(_: list[Path], target: Path) -> None:
        client_programs.run(["go", "test", "-c", "-o", str(target / "kgo.test"), "./pkg/kgo"], folder)

    return client_programs.built("go", "kgo-test", [GO / "go.sum"], build) / "kgo.test", folder / "pkg/kgo"


def output(program: tuple[Path, Path], choice: str, settings: dict[str, str], seconds: float = SECONDS) -> str:
    """Run the tests that `choice`, an option, names; return what they print. They must pass.

    They give up after seconds: those that failed while the machine stood still are run once more.
    """
    binary, folder = program

    def run(chosen: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*DIES_WITH_US, str(binary), "-test.v", chosen],
            cwd=folder, env={**os.environ, **settings}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=seconds,
        )  # fmt: skip

    with Pauses() as pauses:
        done = run(choice)
    said = done.stdout
    failed = re.findall(r"^--- FAIL: (\w+)", said, re.MULTILINE)
    if failed and pauses.were_long:
        done = run(f"-test.run=^({'|'.join(failed)})$")
        said += done.stdout
    assert done.returncode == 0, f"{failed}, longest pause {pauses.longest_s:.1f} s: {said[-20_000:]}"
    return said


@pytest.mark.parametrize(
    ("size", "as_version"),
    [pytest.param("one", "3.9", marks=pytest.mark.campaign), ("one", "4.1"), ("three", "3.9")],
    ids=["one", "one, protocol 2", "three"],
)
def test_records_go_through_three_consumers_in_transactions_once_and_in_order(
    program: tuple[Path, Path], size: str, as_version: str, tmp_path: Path
) -> None:
    with running(size, tmp_path, as_version=as_version) as brokers:
        settings = {
            "KGO_SEEDS": brokers.bootstrap,
            "KGO_TEST_RF": "3" if size == "three" else "1",
            "KGO_TEST_RECORDS": str(RECORDS),
        }
        for _ in range(RUNS):
            said = output(program, f"-test.run=^{TEST}$", settings)
            for balancer in BALANCERS:
                assert f"--- PASS: {TEST}/{balancer} (" in said


@pytest.mark.parametrize(
    "left_out",
    [pytest.param((TEST, *LONG), id="short"), pytest.param((TEST,), id="whole", marks=pytest.mark.campaign)],
)
def test_its_package_passes_with_three_brokers(
    program: tuple[Path, Path], left_out: tuple[str, ...], tmp_path: Path
) -> None:
    with running("three", tmp_path, as_version="3.9") as brokers:
        settings = {
            "KGO_SEEDS": brokers.bootstrap,
            "KGO_TEST_RF": "3",
            "KGO_TEST_RECORDS": str(SUITE_RECORDS),
            "KGO_LOG_LEVEL": "none",
        }
        said = output(program, f"-test.skip=^({'|'.join(left_out)})$", settings, SUITE_SECONDS)
    assert set(re.findall(r"^--- SKIP: (\w+)", said, re.MULTILINE)) == LACKING
    assert len(re.findall(r"^--- PASS: ", said, re.MULTILINE)) > 100
    if GROUPS not in left_out:
        for balancer in BALANCERS:
            assert f"--- PASS: {GROUPS}/{balancer} (" in said


@pytest.mark.parametrize("bits", ["256", "512"])
def test_its_tests_of_logins_by_scram_pass(program: tuple[Path, Path], bits: str, tmp_path: Path) -> None:
    listeners = {"PLAINTEXT": "127.0.0.1:0", "SASL_PLAINTEXT": "127.0.0.1:0"}
    settings = {
        "listeners": ",".join(f"{name}://{address}" for name, address in listeners.items()),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    }
    with Broker(settings) as broker:
        Stores(tmp_path).add_user(broker)
        told = {
            "KGO_SEEDS": broker.address("PLAINTEXT"),
            "KGO_TEST_RF": "1",
            "KGO_TEST_SCRAM": f"{USER}:{PASSWORD}:{bits}",
            "KGO_TEST_SCRAM_SEEDS": broker.address("SASL_PLAINTEXT"),
        }
        said = output(program, f"-test.run=^({'|'.join(SCRAM_TESTS)})$", told)
    for name in SCRAM_TESTS:
        assert f"--- PASS: {name} (" in said
    assert PASSWORD not in said
