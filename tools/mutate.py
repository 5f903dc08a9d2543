"""Change the code at places chosen by a seed, one at a time, and see whether a test notices.

    .venv/bin/python tools/mutate.py --seed 38 --count 100 -o tests/mutations.json metadata rescue migration

A first run of the rooms' tests, and of those of the rooms that use them, finds the tests that execute each place: a
call is added there (`tools/mutation_probe.py`), which also works in processes that a test starts. Then each change is
tried with the tests that execute it, the quickest first, and then with the other tests of their files: a fixture or a
cache may have executed it for them. A place that runs when its module is imported counts as executed by the tests that
call any function of the module.

A change that no test notices is a rule without a test, or a change without an effect: then "reason" can be written
beside it in the result. Rows of the result are kept. `--again` tries those without a reason again, and adds `mended`
with the test that notices them now. `--tests` names the tests, and leaves out the first run: its rows do not say how
many tests execute the change. Tests with real ZooKeepers and brokers are left out; rows that need them are made by
hand. The order of changes depends on the seed and on each change alone, so that other changes of the code do not
choose others. Files are restored after each change; nothing runs in a tree with uncommitted changes.
"""

import argparse
import ast
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "magicbyte"
PROBE = ROOT / "tools" / "mutation_probe.py"
FOUND = ROOT / "build" / "mutations"
"""What the first run of each folder of tests has found."""
HOUSES = ("engine", "access", "server", "tools")
TESTS = {  # of each room: its own, and those of the rooms that use it
    "metadata": ("server/metadata", "server/broker"),
    "rescue": ("tools/rescue", "cli"),
    "migration": ("tools/migration", "cli", "server/broker/test_planner.py"),
    "mirror": ("tools/mirror", "cli"),
    "client": ("access/client", "cli", "tools/mirror", "server/broker"),
    "spark": ("spark", "cli"),
}
MARKS = "not interop and not campaign and not slow"
TIMED_OUT = 124  # the status of `timeout`

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*"}


@dataclass(frozen=True, slots=True)
class Change:
    """Other text for a part of a file: `start` and `end` count characters."""

    path: str
    scope: str
    line: int
    start: int
    end: int
    before: str
    after: str
    at_import: bool

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What a row of the result is found by."""
        return self.path, self.scope, self.before, self.after

    def rank(self, seed: int) -> bytes:
        """Return what changes are sorted by."""
        return hashlib.sha256(repr((seed, (self.path_without_house, *self.key[1:]))).encode()).digest()

    @property
    def path_without_house(self) -> str:
        """The path as if the room stood in no house: a move of a room to another house chooses no other changes."""
        parts = Path(self.path).parts
        return "/".join((*parts[:2], *(parts[3:] if parts[2] in HOUSES else parts[2:])))

    @property
    def room(self) -> str:
        """The room of the file."""
        return Path(self.path_without_house).parts[2]

    def applied(self, text: str) -> str:
        """Return the file's text with this change."""
        return text[: self.start] + self.after + text[self.end :]


@dataclass(frozen=True, slots=True)
class Scope:
    """The function or class around a node."""

    name: str = ""
    in_function: bool = False
    in_kernel: bool = False

    def inside(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> "Scope":
        """Return the scope of the statements of `node`, which is in this one."""
        is_kernel = any("kernel" in ast.unparse(decorator) for decorator in node.decorator_list)
        in_function = self.in_function or not isinstance(node, ast.ClassDef)
        return Scope(f"{self.name}.{node.name}".lstrip("."), in_function, self.in_kernel or is_kernel)


def walk(node: ast.AST, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
    """Yield the nodes that may be changed: no annotation, no assertion, no pattern of a match."""
    yield node, scope
    parts: list[tuple[ast.AST, Scope]]
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            inner = scope.inside(node)
            outside = node.decorator_list
            if not isinstance(node, ast.ClassDef):
                outside = [*outside, *node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]
            parts = [*((each, scope) for each in outside), *((each, inner) for each in node.body)]
        case ast.AnnAssign():
            parts = [(node.value, scope)] if node.value is not None else []
        case ast.Assert() | ast.pattern():
            parts = []
        case _:
            parts = [(each, scope) for each in ast.iter_child_nodes(node)]
    for each, its_scope in parts:
        yield from walk(each, its_scope)


def other_text(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield the changes of one node that this program knows: the part to replace, and its new text."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in COMPARISONS:
            yield node, f"(({ast.unparse(left)}) {COMPARISONS[type(operator)]} ({ast.unparse(right)}))"
        case ast.BoolOp(op=operator, values=values):
            word = " or " if isinstance(operator, ast.And) else " and "
            yield node, "(" + word.join(f"({ast.unparse(each)})" for each in values) + ")"
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            pass
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield test, f"(not ({ast.unparse(test)}))"
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(value)):
            yield node, str(value + 1)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in ARITHMETIC:
            if not any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in (left, right)):
                yield node, f"(({ast.unparse(left)}) {ARITHMETIC[type(operator)]} ({ast.unparse(right)}))"
        case ast.Expr(value=ast.Call(func=function) | ast.Await(value=ast.Call(func=function))):
            if not ast.unparse(function).startswith("log."):
                yield node, "pass"


class Positions:
    """Where a node's first and last character are in the text."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def of(self, line: int, column: int) -> int:
        """`column` counts bytes, as those of `ast` do."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())


def changes_of(path: Path) -> Iterator[Change]:
    """Yield every change of a file that this program knows."""
    text = path.read_text()
    positions = Positions(text)
    for node, scope in walk(ast.parse(text), Scope()):
        for part, after in other_text(node):
            assert part.end_lineno is not None
            assert part.end_col_offset is not None
            start = positions.of(part.lineno, part.col_offset)
            end = positions.of(part.end_lineno, part.end_col_offset)
            at_import = not scope.in_function or scope.in_kernel
            name = str(path.relative_to(ROOT))
            yield Change(name, scope.name, part.lineno, start, end, text[start:end], after, at_import)


def is_program(change: Change) -> bool:
    """Whether Python reads the changed file: positions inside of formatted strings are not always right."""
    try:
        ast.parse(change.applied((ROOT / change.path).read_text()))
    except SyntaxError:
        return False
    return True


def candidates(rooms: list[str], seed: int) -> Iterator[Change]:
    """Yield the changes of these rooms, one of each line, in an order that depends on the seed."""
    homes = [home for room in rooms for home in (SOURCE / room, *(SOURCE / house / room for house in HOUSES))]
    files = [path for home in homes for path in sorted(home.rglob("*.py"))]
    seen: set[tuple[object, ...]] = set()
    for change in sorted(
        (change for path in files for change in changes_of(path)), key=lambda change: change.rank(seed)
    ):
        if not {(change.path, change.line), change.key} & seen and is_program(change):
            seen |= {(change.path, change.line), change.key}
            yield change


# ---- Which tests execute which place


def with_probes(text: str, changes: dict[int, Change]) -> str:
    """Return a file's text with a call at the place of each change."""
    insertions = []  # position, order among those of one position, text
    functions = list(functions_of(text)) if any(change.at_import for change in changes.values()) else []
    for number, change in changes.items():
        if change.at_import:
            for position, indent in functions:
                insertions.append((position, 1, 0, f"mutation_probe({number})\n{' ' * indent}"))
        else:
            insertions.append((change.start, 1, -change.end, f"(mutation_probe({number}) or ("))
            insertions.append((change.end, 0, -change.start, "))"))
    for position, _, _, piece in sorted(insertions, reverse=True):
        text = text[:position] + piece + text[position:]
    return text


def functions_of(text: str) -> Iterator[tuple[int, int]]:
    """Yield the position and the indentation of the first statement of each function."""
    positions = Positions(text)
    for node, scope in walk(ast.parse(text), Scope()):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not scope.inside(node).in_kernel:
            first = node.body[-1 if len(node.body) == 1 else 1 if ast.get_docstring(node) is not None else 0]
            line = min([first.lineno, *(each.lineno for each in getattr(first, "decorator_list", []))])
            if line > node.lineno and not is_docstring(first):
                yield positions.of(line, first.col_offset), first.col_offset


def is_docstring(statement: ast.stmt) -> bool:
    """Whether a statement is only a constant, as a docstring or `...` is."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def find_tests(folder: str, changes: list[Change], under: list[str]) -> dict[str, Any]:
    """Run a folder's tests once, and return the tests that execute each change and the seconds of those that pass."""
    stored = FOUND / f"{folder.replace('/', ' ')}.json"
    keys = [list(change.key) for change in changes]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    if stored.exists():
        found: dict[str, Any] = json.loads(stored.read_text())
        if found["changes"] == keys and found["commit"] == commit:
            return found
    FOUND.mkdir(parents=True, exist_ok=True)
    by_path: dict[str, dict[int, Change]] = {}
    for number, change in enumerate(changes):
        by_path.setdefault(change.path, {})[number] = change
    face = "src/magicbyte/__init__.py"
    texts = {path: (ROOT / path).read_text() for path in [*by_path, face]}
    probe = SOURCE / "mutation_probe.py"
    with tempfile.TemporaryDirectory() as results:
        try:
            for path, of_path in by_path.items():
                (ROOT / path).write_text(with_probes(texts[path], of_path))
            (Path(results) / "hits").touch()
            probe.write_text(PROBE.read_text().replace('RESULTS = ""', f"RESULTS = {results!r}"))
            (ROOT / face).write_text((ROOT / face).read_text() + "\nimport magicbyte.mutation_probe\n")
            command = [*under, sys.executable, "-m", "pytest", "-p", "magicbyte.mutation_probe", "-m", MARKS]
            subprocess.run([*command, "-p", "no:cacheprovider", "--tb=no", f"tests/{folder}"], cwd=ROOT, check=False)
        finally:
            for path, text in texts.items():
                (ROOT / path).write_text(text)
            probe.unlink(missing_ok=True)
        lines = (Path(results) / "hits").read_text().splitlines()
        seconds = json.loads((Path(results) / "passed").read_text())
    hits: dict[str, list[str]] = {}
    for line in lines:
        place, _, test = line.partition(" ")
        hits.setdefault(place, []).append(test)
    found = {"changes": keys, "commit": commit, "hits": hits, "seconds": seconds}
    stored.write_text(json.dumps(found))
    return found


def tests_of(number: int, found: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the tests that execute a change, and the others of their files; the quickest first."""
    seconds = {test: taken for each in found for test, taken in each["seconds"].items()}
    hits = {test for each in found for test in each["hits"].get(str(number), [])}
    files = {hit.partition("::")[0] for hit in hits}  # what set up a test is a hit of its file
    direct = sorted(hits & seconds.keys(), key=lambda test: seconds[test])
    others = [test for test in seconds if test.partition("::")[0] in files and test not in hits]
    return direct, sorted(others, key=lambda test: seconds[test])


# ---- Trying a change


def noticed_by(change: Change, runs: list[list[str]], longest_s: float, under: list[str]) -> str | None:
    """Apply a change, run the tests, and undo it; return the first test that fails, None if none does."""
    path = ROOT / change.path
    text, status = path.read_text(), path.stat()
    path.write_text(change.applied(text))
    try:
        for tests in runs:
            failure = failure_of(tests, longest_s, under) if tests else None
            if failure is not None:
                return failure
    finally:
        path.write_text(text)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return None


def failure_of(tests: list[str], longest_s: float, under: list[str]) -> str | None:
    """Run some tests until one fails, and return it."""
    with tempfile.NamedTemporaryFile("w", suffix=".tests") as names:
        names.write("\n".join(tests))
        names.flush()
        limit = ["timeout", "--kill-after=10", f"{longest_s:.0f}"]
        pytest = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=line", "-m", MARKS]
        done = subprocess.run(
            [*under, *limit, *pytest, f"@{names.name}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        )
    if done.returncode in {TIMED_OUT, 128 + 9}:
        return f"the tests do not end: {tests[0]} …"
    if done.returncode:
        failures = [line for line in done.stdout.splitlines() if line.startswith(("FAILED tests/", "ERROR tests/"))]
        sys.stdout.write("".join(f"    {line}\n" for line in done.stdout.splitlines()[-6:]))
        return failures[0].split(" - ")[0] if failures else f"the tests cannot be run: {tests[0]} …"
    return None


def main() -> None:
    """Try the changes that the result does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="+", choices=sorted(TESTS))
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--again", action="store_true", help="try those that no test noticed before")
    parser.add_argument("--tests", nargs="+", default=[], help="tests to run instead of those that execute the change")
    parser.add_argument("--under", type=shlex.split, default=[], help="a command before each run, such as 'nice -n 10'")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    dirty = subprocess.run(
        ["git", "status", "--porcelain", "src"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    if dirty.stdout:
        raise SystemExit("src/ has uncommitted changes; commit or stash them first")
    rows: list[dict[str, Any]] = json.loads(options.output.read_text()) if options.output.exists() else []
    known = {(row["path"], row["scope"], row["before"], row["after"]): row for row in rows}
    if options.again:
        open_keys = {
            key for key, row in known.items() if row["noticed"] is None and not row.keys() & {"reason", "mended"}
        }
        changes = [change for change in candidates(options.rooms, options.seed) if change.key in open_keys]
    else:
        fresh = (change for change in candidates(options.rooms, options.seed) if change.key not in known)
        changes = list(islice(fresh, max(0, options.count - len(rows))))
    found = []
    if changes and not options.tests:
        rooms = dict.fromkeys(change.room for change in changes)
        folders = dict.fromkeys(folder for room in rooms for folder in TESTS[room])
        found = [find_tests(folder, changes, options.under) for folder in folders]
    for number, change in enumerate(changes):
        direct, others = (options.tests, []) if options.tests else tests_of(number, found)
        seconds = {test: taken for each in found for test, taken in each["seconds"].items()}
        longest_s = 120 + 10 * sum(seconds.get(test, 10) for test in [*direct, *others])
        noticed = noticed_by(change, [direct, others], longest_s, options.under)
        if change.key in known:
            known[change.key].update({"line": change.line} | ({"mended": noticed} if noticed else {}))
        else:
            rows.append(
                {
                    "path": change.path,
                    "line": change.line,
                    "scope": change.scope,
                    "before": change.before,
                    "after": change.after,
                    **({} if options.tests else {"executed by": len(direct)}),
                    "noticed": noticed,
                }
            )
        options.output.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
        where = f"{change.path}:{change.line}: {change.before!r} -> {change.after!r}"
        sys.stdout.write(f"{number} {where}: {noticed or f'NOT NOTICED by {len(direct)} + {len(others)}'}\n")
        sys.stdout.flush()
    result = Counter(
        "mended"
        if "mended" in row
        else "without effect"
        if "reason" in row
        else "noticed"
        if row["noticed"]
        else "open"
        for row in rows
    )
    sys.stdout.write(", ".join(f"{count} {name}" for name, count in sorted(result.items())) + "\n")


if __name__ == "__main__":
    main()
