"""Change the code at places chosen by a seed, one at a time, and see whether a test notices.

    .venv/bin/python tools/mutate.py --seed 38 --count 100 -o tests/mutations.json metadata rescue migration

A room's own tests run first, then those of the rooms that use it. A change that none notices is a rule without a test,
or a change without an effect: then a reason can be written beside it in the result, which later runs keep. The file is
restored after each change; nothing runs in a tree with uncommitted changes.
"""

import argparse
import ast
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "magicbyte"
TESTS = {  # of each room, in the order in which they run
    "metadata": ("metadata", "broker/test_lost_metadata.py", "broker"),
    "rescue": ("rescue", "cli"),
    "migration": ("migration", "cli", "broker/test_planner.py"),
    "mirror": ("mirror", "cli"),
    "client": ("client", "cli", "mirror", "broker"),
    "spark": ("spark",),
}
MARKS = "not interop and not campaign and not slow"
LONGEST_S = 900

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*"}


@dataclass(frozen=True, slots=True)
class Change:
    """Other text for a part of a file: `start` and `end` count characters."""

    path: str
    line: int
    start: int
    end: int
    before: str
    after: str


def changes_of(path: Path) -> Iterator[Change]:
    """Yield every change of a file that this program knows."""
    text = path.read_text()
    tree = ast.parse(text)
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data = text.encode()

    def position(line: int, column: int) -> int:
        return len(data[: starts[line - 1] + column].decode())

    def change(first: ast.AST, after: str, last: ast.AST | None = None) -> Change:
        last = last or first
        start = position(first.lineno, first.col_offset)  # type: ignore[attr-defined]
        end = position(last.end_lineno, last.end_col_offset)  # type: ignore[attr-defined]
        return Change(str(path.relative_to(ROOT)), first.lineno, start, end, text[start:end], after)  # type: ignore[attr-defined]

    skipped = {
        id(part)
        for node in ast.walk(tree)
        for each in (
            [node.returns, *(a.annotation for a in ast.walk(node.args) if isinstance(a, ast.arg))]
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            else [node.annotation]
            if isinstance(node, ast.AnnAssign)
            else [node]
            if isinstance(node, ast.Assert)
            else []
        )
        if each is not None
        for part in ast.walk(each)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in COMPARISONS:
                words = f"{ast.unparse(left)} {COMPARISONS[type(operator)]} {ast.unparse(right)}"
                yield change(node, f"({words})")
            case ast.BoolOp(op=operator, values=values):
                word = " or " if isinstance(operator, ast.And) else " and "
                yield change(node, "(" + word.join(f"({ast.unparse(each)})" for each in values) + ")")
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield change(test, f"(not ({ast.unparse(test)}))")
            case ast.Constant(value=bool(value)):
                yield change(node, str(not value))
            case ast.Constant(value=int(value)):
                yield change(node, str(value + 1))
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in ARITHMETIC:
                if not any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in (left, right)):
                    yield change(node, f"({ast.unparse(left)} {ARITHMETIC[type(operator)]} {ast.unparse(right)})")
            case ast.Expr(value=ast.Call(func=function) | ast.Await(value=ast.Call(func=function))):
                if not ast.unparse(function).startswith("log."):
                    yield change(node, "pass")


def chosen(rooms: list[str], seed: int, count: int) -> list[Change]:
    """Return `count` changes of these rooms, of different lines, in an order that depends on the seed."""
    every = [
        change
        for room in rooms
        for path in sorted((SOURCE / room).rglob("*.py"))
        for change in sorted(changes_of(path), key=lambda change: (change.start, change.end, change.after))
    ]
    random.Random(seed).shuffle(every)
    lines: dict[tuple[str, int], Change] = {}
    for change in every:
        lines.setdefault((change.path, change.line), change)
    return list(lines.values())[:count]


def noticed_by(change: Change, room: str) -> str | None:
    """Apply a change, run the tests, and undo it; return the first test that fails, None if none does."""
    path = ROOT / change.path
    text = path.read_text()
    path.write_text(text[: change.start] + change.after + text[change.end :])
    try:
        for folder in TESTS[room]:
            command = [
                sys.executable,
                "-m",
                "pytest",
                f"tests/{folder}",
                "-x",
                "-q",
                "-n2",
                "--dist=loadgroup",
                "-m",
                MARKS,
            ]
            try:
                done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_S, check=False)
            except subprocess.TimeoutExpired:
                return f"tests/{folder} do not end"
            if done.returncode:
                failures = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
                return failures[0].split(" - ")[0] if failures else f"tests/{folder} cannot be run"
    finally:
        path.write_text(text)
    return None


def main() -> None:
    """Run the changes that the result does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="+", choices=sorted(TESTS))
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--again", action="store_true", help="also run changes that no test noticed before")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    dirty = subprocess.run(
        ["git", "status", "--porcelain", "src"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    if dirty.stdout:
        raise SystemExit("src/ has uncommitted changes; commit or stash them first")
    known = {}
    if options.output.exists():
        known = {(row["path"], row["before"], row["after"]): row for row in json.loads(options.output.read_text())}
    rows = []
    for change in chosen(options.rooms, options.seed, options.count):
        row = known.get((change.path, change.before, change.after))
        if row is None or (options.again and row["noticed"] is None and "reason" not in row):
            room = Path(change.path).parts[2]
            row = {
                "path": change.path,
                "before": change.before,
                "after": change.after,
                "noticed": noticed_by(change, room),
            }
        rows.append(row | {"line": change.line})
        options.output.write_text(json.dumps(rows, indent=1) + "\n")
        noticed = row["noticed"] or "NOT NOTICED"
        sys.stdout.write(f"{change.path}:{change.line}: {change.before!r} -> {change.after!r}: {noticed}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
