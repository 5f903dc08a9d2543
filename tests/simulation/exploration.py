"""Explores a model completely: every move in every order, up to a number of faults."""

from __future__ import annotations

import marshal
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, TypeAlias

from simulation.replication_model import BrokenError, Move, Settings, World, in_words

Path: TypeAlias = "tuple[Path, Move] | None"
"""How a world was reached: the path to the one before, and the move in words."""


@dataclass
class Exploration:
    """What was explored: `states` by their number of faults, `depth` in moves. `trace` leads to what is `broken`."""

    states: list[int] = field(default_factory=list)
    transitions: int = 0
    depth: int = 0
    cpu_s: float = 0.0
    broken: str = ""
    trace: list[str] = field(default_factory=list)
    is_complete: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the figures as they are recorded."""
        figures: dict[str, Any] = {
            "states": sum(self.states),
            "statesByFaults": self.states,
            "transitions": self.transitions,
            "depth": self.depth,
            "coreSeconds": round(self.cpu_s, 1),
        }
        return figures | ({"broken": self.broken, "trace": self.trace} if self.broken else {})


def explore(settings: Settings, faults: int, *, strict: bool = True, most_states: int = 1 << 60) -> Exploration:
    """Visit every state that can be reached with so many faults, and judge it; stop at the first that is broken.

    States are visited by the number of faults that lead to them, then by the number of moves. So the trace to a broken
    one has the fewest faults, and of those traces it is the shortest. A visited state is known by 16 bytes of a hash.
    """
    found, started, seen = Exploration(), time.process_time(), set[bytes]()
    start = World(settings)
    layer: dict[int, dict[bytes, tuple[World, Path]]] = {0: {_digest(start): (start, None)}}
    try:
        for count in range(faults + 1):
            later: defaultdict[int, dict[bytes, tuple[World, Path]]] = defaultdict(dict)
            steps = min(layer, default=0)
            while layer:
                for digest, (world, path) in layer.pop(steps, {}).items():
                    if digest in seen:
                        continue
                    seen.add(digest)
                    found.depth = max(found.depth, steps)
                    if len(seen) > most_states:
                        return found
                    _judge(world, path, strict=strict)
                    for move, after in _moves(world, path, with_faults=count < faults):
                        found.transitions += 1
                        key = _digest(after)
                        if key not in seen:
                            later_or_now = later if move.is_fault else layer
                            later_or_now.setdefault(steps + 1, {}).setdefault(key, (after, (path, move)))
                steps += 1
            found.states.append(len(seen) - sum(found.states))
            layer = dict(later)
        found.is_complete = True
    except TracedError as error:
        found.broken, found.trace = error.args
    finally:
        if not found.is_complete:
            found.states.append(len(seen) - sum(found.states))
        found.cpu_s = time.process_time() - started
    return found


class TracedError(Exception):
    """A broken promise, and the moves that lead to it."""


def _judge(world: World, path: Path, *, strict: bool) -> None:
    try:
        world.judge()
        if strict:
            world.judge_in_sync()
    except BrokenError as error:
        raise TracedError(str(error), _trace(path, world.settings)) from error


def _moves(world: World, path: Path, *, with_faults: bool) -> Iterator[tuple[Move, World]]:
    for move in world.moves(world.settings.faults if with_faults else ()):
        try:
            after = move.after(world)
        except Exception as error:
            raise TracedError(str(error) or repr(error), [*_trace(path, world.settings), _attempt(move)]) from error
        yield move, after


def _attempt(move: Move) -> str:
    return f"and then {move.step.__name__.replace('_', ' ')}: {', '.join(map(str, move.arguments))}"


def _trace(path: Path, settings: Settings) -> list[str]:
    """Return the moves of a path in words."""
    moves, words, world = list[Move](), list[str](), World(settings)
    while path is not None:
        path, move = path
        moves.append(move)
    for move in reversed(moves):
        words.append(in_words(move, world))
        world = move.after(world)
    return words


def _digest(world: World) -> bytes:
    return blake2b(marshal.dumps(world.key, 2), digest_size=16).digest()
