"""How far a step is that brokers are restarted for."""

import pytest

from magicbyte.engine.records.encode import Format
from magicbyte.tools.migration.status import BrokerFacts, ClusterPhase, ClusterStage, ClusterStep
from magicbyte.tools.migration.waiting import progress_of
from tools.migration.builders import broker


def stage(step: ClusterStep) -> ClusterStage:
    return ClusterStage(Format.V1, ClusterPhase.ONE, step, (0, 1))


def test_software_is_upgraded_when_every_broker_knows_the_format_and_is_in_sync() -> None:
    old, new = broker(0, "0.9.0"), broker(0, "0.10.0")
    step = stage(ClusterStep.UPGRADE_BROKERS)
    assert progress_of(step, [0], [old], 0).text == "to do: broker 0"
    assert progress_of(step, [0, 1], [new], 3).text == (
        "every broker that answers has taken the step; broker 1 does not answer; 3 partitions have replicas out of sync"
    )
    assert not progress_of(step, [0], [new], 1).is_done
    assert progress_of(step, [0], [new], 0).is_done


def test_a_protocol_is_raised_when_no_broker_tells_an_older_one() -> None:
    step = stage(ClusterStep.RAISE_PROTOCOL)
    low, high, silent = (
        broker(0, "0.11.0", "0.9.0"),
        broker(1, "0.11.0", "0.10.0"),
        BrokerFacts(1, "host1:9092", None, None),
    )
    assert progress_of(step, [0, 1], [low, high], 0).left == (0,)
    assert progress_of(step, [0, 1], [broker(0, "0.11.0", "0.10.2"), high], 0).is_done
    found = progress_of(step, [0, 1], [low, silent], 0)
    assert (found.left, found.away) == ((0,), (1,))


def test_a_canary_is_judged_when_all_brokers_store_one_format() -> None:
    step = stage(ClusterStep.JUDGE_CANARY)
    old, new = broker(0, "0.11.0", "0.11.0", "0.9.0"), broker(1, "0.11.0", "0.11.0", "0.10.0")
    assert progress_of(step, [0, 1], [old, new], 0).left == (0,)
    assert progress_of(step, [0, 1], [old, broker(1, "0.11.0", "0.11.0", "0.9.0")], 0).is_done
    assert progress_of(step, [0, 1], [broker(0, "0.11.0", "0.11.0", "0.10.0"), new], 0).is_done


def test_nothing_is_known_while_no_broker_answers() -> None:
    found = progress_of(stage(ClusterStep.BRING_BACK), [0, 1], [], None)
    assert not found.is_done
    assert found.text == "brokers 0, 1 do not answer"
    assert found.to_json() == {"done": False, "left": [], "away": [0, 1], "outOfSync": None, "unknown": []}


@pytest.mark.parametrize("step", [ClusterStep.RAISE_PROTOCOL, ClusterStep.JUDGE_CANARY, ClusterStep.SET_DEFAULT])
def test_a_broker_that_does_not_return_its_settings_has_not_been_seen_to_take_a_step(step: ClusterStep) -> None:
    """One of 0.10.0 to 0.10.2, which returns neither its protocol nor its format."""
    known, hidden = broker(0, "0.11.0", "0.11.0", "0.11.0"), broker(1, "0.10.2")
    found = progress_of(stage(step), [0, 1], [known, hidden], 0)
    assert (found.is_done, found.is_over, found.unknown) == (False, True, (1,))
    assert found.text == "not known of broker 1, which does not return settings: see them yourself"
