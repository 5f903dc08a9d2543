"""Patterns of topic names in RE2's syntax, matched as a whole, without backtracking.

A pattern becomes a program of at most `MOST_STATES` instructions, which is run for all alternatives at once. Its time
is bounded by the states times the length of a name. Topic names have 65 different characters (`ALPHABET`), so a class
of characters is a set of those, and a character that no name has never matches.

Source: the syntax of RE2/J 1.8, which Kafka uses. What it knows and this does not is refused like a wrong pattern:
classes of Unicode by name (`\\pL`). docs/internals/groups.md has the table.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from magicbyte.engine.errors import InvalidRegularExpressionError

MOST_BYTES: Final = 1024
"""Of a pattern, in UTF-8."""
MOST_STATES: Final = 1000
_MOST_REPEATS: Final = 1000  # as in RE2
_MOST_DEPTH: Final = 100
_MOST_MOVES: Final = 10_000  # of the automaton that are remembered
ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")

_DIGITS: Final = frozenset(string.digits)
_WORDS: Final = frozenset(string.ascii_letters + string.digits + "_")
_PERL: Final = {"d": _DIGITS, "w": _WORDS, "s": frozenset[str]()}
_POSIX: Final = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": ALPHABET,
    "blank": frozenset[str](),
    "cntrl": frozenset[str](),
    "digit": _DIGITS,
    "graph": ALPHABET,
    "lower": frozenset(string.ascii_lowercase),
    "print": ALPHABET,
    "punct": frozenset("._-"),
    "space": frozenset[str](),
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORDS,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROL: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_OCTAL: Final = "01234567"
_SPECIAL: Final = frozenset("\\.+*?()|[]{}^$")


class Characters(NamedTuple):
    """One character of a set."""

    those: frozenset[str]


class Assertion(NamedTuple):
    """A place between two characters: `^`, `$`, `b` for a word boundary, `B` for none."""

    kind: str


class Sequence(NamedTuple):
    """All of these, one after the other."""

    parts: tuple[Node, ...]


class Alternatives(NamedTuple):
    """One of these."""

    parts: tuple[Node, ...]


class Repeat(NamedTuple):
    """A part again and again; `most` None: without limit."""

    part: Node
    least: int
    most: int | None


Node: TypeAlias = "Characters | Assertion | Sequence | Alternatives | Repeat"


class _Jump(NamedTuple):
    to: tuple[int, ...]


_MATCHED: Final = _Jump(())
_Instruction: TypeAlias = Characters | Assertion | _Jump


class TopicPattern:
    """A pattern. Raises InvalidRegularExpressionError for one that is wrong, too long, or not supported.

    Its matches build a deterministic automaton as far as names need it, so that most characters cost one look-up.
    """

    def __init__(self, text: str) -> None:
        if len(text.encode("utf-8", "surrogatepass")) > MOST_BYTES:
            raise InvalidRegularExpressionError(f"the pattern has more than {MOST_BYTES} bytes")
        self._program: list[_Instruction] = []
        self._emitted = 0
        self._emit(_Parser(text).parse())
        self._program.append(_MATCHED)
        self._states: dict[tuple[int, ...], int] = {}
        self._active: list[tuple[int, ...]] = []
        self._moves: dict[tuple[int, str, str], int] = {}

    def matches(self, name: str) -> bool:
        """Return whether the whole of a topic's name matches."""
        if len(self._moves) > _MOST_MOVES:
            self._states, self._active, self._moves = {}, [], {}
        state = self._state(self._closure([0], "", name[:1]))
        for index, character in enumerate(name):
            after = _kind(name[index + 1 : index + 2])
            move = (state, character, after)
            following = self._moves.get(move)
            if following is None:
                following = self._moves[move] = self._step(*move)
            state = following
            if not self._active[state]:
                return False
        return len(self._program) - 1 in self._active[state]

    def _state(self, active: set[int]) -> int:
        key = tuple(sorted(active))
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = len(self._active)
            self._active.append(key)
        return state

    def _step(self, state: int, character: str, after: str) -> int:
        program = self._program
        starts = [
            at + 1
            for at in self._active[state]
            if isinstance(each := program[at], Characters) and character in each.those
        ]
        return self._state(self._closure(starts, character, after))

    def _closure(self, starts: Iterable[int], before: str, after: str) -> set[int]:
        """Return the instructions that are reached without a character, between two characters or ends."""
        program, active, waiting = self._program, set[int](), list(starts)
        while waiting:
            at = waiting.pop()
            if at in active:
                continue
            active.add(at)
            match program[at]:
                case _Jump(to):
                    waiting.extend(to)
                case Assertion(kind) if _holds(kind, before, after):
                    waiting.append(at + 1)
        return active

    def _emit(self, node: Node) -> None:
        program = self._program
        self._emitted += 1  # also parts without an instruction
        if self._emitted > 2 * MOST_STATES or len(program) > MOST_STATES:
            raise InvalidRegularExpressionError(f"the pattern needs more than {MOST_STATES} states")
        match node:
            case Characters() | Assertion():
                program.append(node)
            case Sequence(parts):
                for part in parts:
                    self._emit(part)
            case Alternatives(parts):
                self._emit_alternatives(parts)
            case Repeat(part, least, most):
                for _ in range(least):
                    self._emit(part)
                if most is None:
                    self._emit_loop(part)
                else:
                    self._emit_optional(part, most - least)

    def _emit_alternatives(self, parts: tuple[Node, ...]) -> None:
        program = self._program
        first, ends = len(program), list[int]()
        program.append(_MATCHED)
        starts = []
        for part in parts:
            starts.append(len(program))
            self._emit(part)
            ends.append(len(program))
            program.append(_MATCHED)
        program[first] = _Jump(tuple(starts))
        for end in ends:
            program[end] = _Jump((len(program),))

    def _emit_loop(self, part: Node) -> None:
        program = self._program
        start = len(program)
        program.append(_MATCHED)
        self._emit(part)
        program.append(_Jump((start,)))
        program[start] = _Jump((start + 1, len(program)))

    def _emit_optional(self, part: Node, times: int) -> None:
        program, starts = self._program, list[int]()
        for _ in range(times):
            starts.append(len(program))
            program.append(_MATCHED)
            self._emit(part)
        for start in starts:
            program[start] = _Jump((start + 1, len(program)))


def _kind(character: str) -> str:
    """Return a character that is like this one for assertions, "" for the end."""
    return character and ("w" if character in _WORDS else "-")


def _holds(kind: str, before: str, after: str) -> bool:
    if kind == "^":
        return not before
    if kind == "$":
        return not after
    is_boundary = (before in _WORDS) != (after in _WORDS)  # an end is in no set
    return is_boundary if kind == "b" else not is_boundary


class _Parser:
    """Reads a pattern from left to right."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._folds = False  # whether case is ignored

    def parse(self) -> Node:
        """Return the pattern as a tree."""
        found = self._alternatives()
        if self._at < len(self._text):
            raise self._wrong("unexpected )")
        return found

    def _wrong(self, problem: str) -> InvalidRegularExpressionError:
        return InvalidRegularExpressionError(f"{problem} at character {self._at} of the pattern")

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        found = self._peek(text)
        if found:
            self._at += len(text)
        return found

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise self._wrong("unexpected end")
        self._at += 1
        return self._text[self._at - 1]

    def _alternatives(self) -> Node:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise self._wrong("too many nested groups")
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))

    def _sequence(self) -> Node:
        parts = list[Node]()
        while self._at < len(self._text) and not self._peek("|") and not self._peek(")"):
            parts.extend(self._repeated())
        return Sequence(tuple(parts))

    def _repeated(self) -> Iterator[Node]:
        """Yield the next part with its repetition; several for a quotation."""
        if self._take("\\Q"):
            end = self._text.find("\\E", self._at)
            end = len(self._text) if end < 0 else end
            quoted = self._text[self._at : end]
            self._at = min(end + 2, len(self._text))
            yield from (self._literal(each) for each in quoted[:-1])
            if not quoted:
                return
            node: Node = self._literal(quoted[-1])
        else:
            node = self._atom()
        is_repeated = False
        while (times := self._times()) is not None:
            if is_repeated:
                raise self._wrong("a repetition is repeated")
            is_repeated = True
            self._take("?")  # a preference, without effect on whether the whole matches
            node = Repeat(node, *times)
        yield node

    def _times(self) -> tuple[int, int | None] | None:
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        if not self._peek("{"):
            return None
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : max(end, 0)].partition(",")
        is_count = least.isascii() and least.isdigit() and (not most or (most.isascii() and most.isdigit()))
        if end < 0 or not is_count:
            return None  # a literal brace
        self._at = end + 1
        first, last = int(least[:5]), int(most[:5]) if most else None if comma else int(least[:5])
        if first > _MOST_REPEATS or (last is not None and not first <= last <= _MOST_REPEATS):
            raise self._wrong("a wrong number of repetitions")
        return first, last

    def _atom(self) -> Node:
        character = self._next()
        match character:
            case "(":
                return self._group()
            case "[":
                return self._class()
            case ".":
                return Characters(ALPHABET)
            case "^" | "$":
                return Assertion(character)
            case "*" | "+" | "?":
                raise self._wrong("nothing to repeat")
            case "\\":
                return self._escape()
        return self._literal(character)

    def _literal(self, character: str) -> Characters:
        return Characters(self._folded(frozenset(character)))

    def _folded(self, those: frozenset[str]) -> frozenset[str]:
        if self._folds:
            those = those | {each.swapcase() for each in those}
        return those & ALPHABET

    def _group(self) -> Node:
        folds = self._folds
        if self._take("?"):
            if self._take("P<") or (
                self._peek("<") and not self._peek("<=") and not self._peek("<!") and self._take("<")
            ):
                self._name()
            elif not self._flags():
                return Sequence(())  # flags for the rest of the group around
        found = self._alternatives()
        if not self._take(")"):
            raise self._wrong("a group does not end")
        self._folds = folds
        return found

    def _name(self) -> None:
        end = self._text.find(">", self._at)
        name = self._text[self._at : max(end, self._at)]
        if not name or not set(name) <= _WORDS:
            raise self._wrong("a wrong name of a group")
        self._at = end + 1

    def _flags(self) -> bool:
        """Take flags; return whether they are of a group that follows."""
        is_on, folds = True, self._folds
        while True:
            flag = self._next()
            if flag == "i":
                folds = is_on
            elif flag == "-" and is_on:
                is_on = False
            elif flag in ":)":
                self._folds = folds
                return flag == ":"
            elif flag not in "msU":
                raise self._wrong("an unknown kind of group")

    def _escape(self) -> Node:
        character = self._next()
        if character in "Az":
            return Assertion("^" if character == "A" else "$")
        if character in "bB":
            return Assertion(character)
        if character == "C":
            return Characters(ALPHABET)
        found = self._perl(character)
        return Characters(found) if found is not None else self._literal(self._escaped(character))

    def _perl(self, character: str) -> frozenset[str] | None:
        found = _PERL.get(character.lower())
        if found is None:
            return None
        return ALPHABET - found if character.isupper() else found

    def _escaped(self, character: str) -> str:
        """Return the character that an escape stands for."""
        if character in _CONTROL:
            return _CONTROL[character]
        if character == "x":
            return self._hexadecimal()
        if character in _OCTAL and (character == "0" or self._text[self._at : self._at + 1] in tuple(_OCTAL)):
            digits = character
            while len(digits) < 3 and self._text[self._at : self._at + 1] in tuple(_OCTAL):
                digits += self._next()
            return chr(int(digits, 8))
        if character.isascii() and not character.isalnum():
            return character
        raise self._wrong(f"an unknown escape \\{character}")

    def _hexadecimal(self) -> str:
        if self._take("{"):
            end = self._text.find("}", self._at)
            digits = self._text[self._at : max(end, self._at)]
            self._at = end + 1
        else:
            digits = self._text[self._at : self._at + 2]
            self._at += 2
            if len(digits) < 2:
                digits = ""
        if not digits or not set(digits) <= set(string.hexdigits) or int(digits[:8], 16) > 0x10FFFF:
            raise self._wrong("a wrong number of a character")
        return chr(int(digits, 16))

    def _class(self) -> Node:
        is_negated = self._take("^")
        chosen, is_first = set[str](), True
        while is_first or not self._peek("]"):
            is_first = False
            if self._take("[:"):
                chosen |= self._posix()
                continue
            character = self._next()
            if character == "\\":
                character = self._next()
                perl = self._perl(character)
                if perl is not None:
                    chosen |= perl
                    continue
                character = self._escaped(character)
            last = character
            if self._peek("-") and not self._peek("-]"):
                self._at += 1
                last = self._next()
                if last == "\\":
                    last = self._escaped(self._next())
                if last < character:
                    raise self._wrong("a wrong range of characters")
            chosen |= self._folded(frozenset(each for each in ALPHABET if character <= each <= last))
        self._next()
        return Characters(ALPHABET - chosen if is_negated else frozenset(chosen))

    def _posix(self) -> frozenset[str]:
        end = self._text.find(":]", self._at)
        class_name = self._text[self._at : max(end, self._at)]
        found = _POSIX.get(class_name.removeprefix("^"))
        if found is None:
            raise self._wrong("an unknown class of characters")
        self._at = end + 2
        return ALPHABET - found if class_name.startswith("^") else found
