"""Deadlines beside a dictionary that is searched each time."""

from hypothesis import given
from hypothesis import strategies as st

from magicbyte.engine.coordination.deadlines import FEW, Deadlines

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 50)),
        st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("pop"), st.just(0), st.integers(0, 50)),
    ),
    max_size=60,
)


@given(steps=STEPS)
def test_due_deadlines_are_returned_once_and_the_earliest_first(steps: list[tuple[str, int, int]]) -> None:
    deadlines, expected = Deadlines[int](), dict[int, int]()
    for what, key, time in steps:
        if what == "set":
            deadlines.set(key, time)
            expected[key] = time
        elif what == "cancel":
            deadlines.cancel(key)
            expected.pop(key, None)
        else:
            found = deadlines.pop(time)
            earliest = min((at for at in expected.values() if at <= time), default=None)
            assert (None if found is None else expected.pop(found)) == earliest
        first = deadlines.next_ms()
        assert first is not None or not expected
        assert first is None or first <= min(expected.values(), default=first)
        assert all(each in deadlines and deadlines[each] == at for each, at in expected.items())


def test_deadlines_that_are_moved_or_cancelled_take_no_room() -> None:
    deadlines = Deadlines[int]()
    for key in range(10_000):
        deadlines.set(key, 1000 + key)
        deadlines.set(-1, key)
        deadlines.cancel(key)
    assert len(deadlines._heap) <= 2 * FEW
    assert deadlines.pop(20_000) == -1
    assert deadlines.pop(20_000) is None
