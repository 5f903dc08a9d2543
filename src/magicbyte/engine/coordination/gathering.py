"""Requests that several appends answer together."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from magicbyte.engine.coordination.effects import Caller, Reply
from magicbyte.engine.protocol.message import Message


class Gathering(Struct):
    """A request of which some appends are pending. `outcome` is its response so far, for `respond`.

    `waiting`: its pending appends. `is_decided`: whether no more will follow.
    """

    caller: Caller
    outcome: Any
    respond: Callable[[Any], Message]
    waiting: int = 0
    is_decided: bool = False


class Gatherings(dict[int, Gathering]):
    """The requests that wait for several appends, by number. Continuations name the number."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count()

    def begin(self, caller: Caller, outcome: Any, respond: Callable[[Any], Message]) -> int:
        """Begin to gather the outcomes of a request; return its number."""
        number = next(self._numbers)
        self[number] = Gathering(caller, outcome, respond)
        return number

    def stored(self, number: int) -> list[Reply]:
        """Count the end of an append; return the reply after the last one."""
        self[number].waiting -= 1
        return self._replied(number)

    def decided(self, number: int) -> list[Reply]:
        """Record that no more appends follow; return the reply if none is pending."""
        self[number].is_decided = True
        return self._replied(number)

    def _replied(self, number: int) -> list[Reply]:
        gathering = self[number]
        if gathering.waiting or not gathering.is_decided:
            return []
        del self[number]
        return [Reply(gathering.caller, gathering.respond(gathering.outcome))]
