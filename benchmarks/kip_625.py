"""KIP-625's table: sizes and times of a MetadataResponse with its integers fixed, and variable at their best and worst.

The messages are those of tests/engine/protocol/kip_625.py, version 9. "Struct" is an interpreter that walks the schema
at each call (tests/engine/protocol/interpreter.py), "Buffer" generated code, as the document calls its two ways. Each
figure is the median of rounds in which all cases take turns. The document's own table, of Java, stands beside; it does
not say what was done in the time that it prints, so only its ratios to fixed are compared. The plot shows the size of
the message
of 93 partitions when each integer of each partition is one value.

Run: python benchmarks/kip_625.py   (written to benchmarks/results/kip_625.json, .md and .svg)
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import harness

HERE = Path(__file__).parent
sys.path[0] = str(HERE.parent / "tests")  # instead of benchmarks/, which has a protocol.py, too

from engine.protocol import interpreter  # noqa: E402  (the tests' modules)
from engine.protocol.generated import Codec, compiled  # noqa: E402
from engine.protocol.kip_625 import BEST, EXAMPLES, FIXED, VERSION, WORST, Example  # noqa: E402
from magicbyte.schema import MessageSchema, check  # noqa: E402

ROUNDS = 15
TURN_SECONDS = 0.1
TIMES = ("Struct serialize", "Struct deserialize", "Buffer serialize", "Buffer deserialize")
DOCUMENT = {  # bytes, then the times as printed
    "fixed": (FIXED, 56458, 14416, 7215, 11508),
    "variable (best case)": (BEST, 65226, 14713, 7667, 10155),
    "variable (worst case)": (WORST, 81328, 14755, 21400, 17681),
}
Row = dict[str, float]
Work = Callable[[], object]


def works(codec: Codec, values: interpreter.Values) -> tuple[int, dict[str, Work]]:
    """Return the size of a message and what is timed, by the names of TIMES."""
    schema, message = codec.schema, codec.message(values)
    data = bytes(message.encode(VERSION))
    assert data == interpreter.write(schema, VERSION, values)
    assert codec.read(VERSION, data) == values == interpreter.read(schema, VERSION, data)[0]
    return len(data), dict(
        zip(
            TIMES,
            (
                lambda: interpreter.write(schema, VERSION, values),
                lambda: interpreter.read(schema, VERSION, data),
                lambda: message.encode(VERSION),
                lambda: codec.kind.read(data, VERSION),
            ),
            strict=True,
        )
    )


def microseconds(work: Work, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        work()
    return 1e6 * (time.perf_counter() - start) / calls


def rows(example: Example) -> dict[str, Row]:
    """Return bytes and microseconds of the three cases."""
    fixed, encoded = compiled(example.fixed_schema), compiled(example.encoded_schema)
    cases = dict(
        zip(
            DOCUMENT,
            (works(fixed, example.best()), works(encoded, example.best()), works(encoded, example.worst())),
            strict=True,
        )
    )
    calls = {
        (case, name): max(1, round(1e6 * TURN_SECONDS / min(microseconds(work, 3) for _ in range(5))))
        for case, (_, named) in cases.items()
        for name, work in named.items()
    }
    measured: dict[tuple[str, str], list[float]] = {key: [] for key in calls}
    for _ in range(ROUNDS):
        for (case, name), number in calls.items():
            measured[case, name].append(microseconds(cases[case][1][name], number))
    return {
        case: {"bytes": size} | {name: round(statistics.median(measured[case, name]), 1) for name in TIMES}
        for case, (size, _) in cases.items()
    }


# ---- the size by value


def packed(schema_text: str) -> MessageSchema:
    """Return a schema with packed integers for its unpacked ones."""
    message, errors = check(schema_text.replace('"unpacked', '"packed'))
    assert message is not None, errors
    return message


def sizes_by_value(example: Example) -> dict[str, list[tuple[int, int]]]:
    """Return, for each kind of encoding, the number of bits of the value and the size of the message."""
    unpacked = example.encoded_schema
    schemas = {"unpacked": unpacked, "packed": packed(Path(unpacked.path).read_text(encoding="utf-8"))}
    found = {
        "fixed": [
            (bits, len(interpreter.write(example.fixed_schema, VERSION, example.of_value(0)))) for bits in (0, 31)
        ]
    }
    for kind, schema in schemas.items():
        for sign, name in ((1, f"{kind}, positive"), (-1, f"{kind}, negative")):
            found[name] = [
                (bits, len(interpreter.write(schema, VERSION, example.of_value(sign * ((1 << bits) - 1)))))
                for bits in range(1 if sign < 0 else 0, 32)
            ]
    return found


WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 420, 64, 24, 170, 52
HIGHEST = 4200  # bytes
COLOURS = {
    "fixed": ("#555555", ""),
    "unpacked, positive": ("#0072b2", ""),
    "unpacked, negative": ("#0072b2", "6 4"),
    "packed, positive": ("#d55e00", ""),
    "packed, negative": ("#d55e00", "2 4"),
}


def picture(lines: dict[str, list[tuple[int, int]]]) -> str:
    """Return the plot as SVG."""

    def x(bits: float) -> float:
        return LEFT + bits * (WIDTH - LEFT - RIGHT) / 31

    def y(size: float) -> float:
        return HEIGHT - BOTTOM - size * (HEIGHT - TOP - BOTTOM) / HIGHEST

    def text(left: float, top: float, content: str, anchor: str = "middle", more: str = "") -> str:
        return f'<text x="{left:.1f}" y="{top:.1f}" text-anchor="{anchor}"{more}>{content}</text>'

    def drawn() -> Iterator[str]:
        yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        yield ' font-family="sans-serif" font-size="12">'
        yield '<rect width="100%" height="100%" fill="#ffffff"/>'
        for size in range(0, HIGHEST, 500):
            yield f'<path d="M{x(0):.1f} {y(size):.1f}H{x(31):.1f}" stroke="#dddddd"/>'
            yield text(x(0) - 8, y(size) + 4, str(size), "end")
        for bits in (0, 6, 7, 13, 14, 20, 21, 27, 28, 31):
            yield f'<path d="M{x(bits):.1f} {y(0):.1f}v5" stroke="#333333"/>'
            yield text(x(bits), y(0) + 19, str(bits))
        yield text(
            x(15.5),
            HEIGHT - 12,
            "bits of the value: every integer of every partition is 2^bits - 1, or less by its sign",
        )
        yield text(
            16, y(HIGHEST / 2), "bytes of the message", "middle", f' transform="rotate(-90 16 {y(HIGHEST / 2):.1f})"'
        )
        for at, (name, points) in enumerate(lines.items()):
            colour, dashes = COLOURS[name]
            way = " ".join(f"{x(bits):.1f},{y(size):.1f}" for bits, size in points)
            style = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes or "none"}"'
            yield f'<polyline points="{way}" {style}/>'
            top = TOP + 20 + 22 * at
            yield f'<path d="M{WIDTH - RIGHT + 16} {top}h26" {style}/>'
            yield text(WIDTH - RIGHT + 50, top + 4, name, "start")
        yield "</svg>"

    return "\n".join(drawn()) + "\n"


# ---- the page


def page(results: dict[str, object]) -> str:
    """Return the results as Markdown."""
    machine = results["machine"]
    assert isinstance(machine, dict)
    lines = [
        "# KIP-625's size table, measured",
        "",
        f"Written by `{results['command']}` on {results['date']}: {machine['cpu']}, Python {machine['python']}, one",
        "core. The figures are in [kip_625.json](kip_625.json). Times are microseconds for one message.",
    ]
    cases = results["cases"]
    assert isinstance(cases, dict)
    for example in EXAMPLES:
        measured = cases[example.name]["rows"]
        lines += [
            "",
            f"## {example.partitions} partitions",
            "",
            f"{cases[example.name]['what']}",
            "",
            f"| Encoding | Size/byte | {' | '.join(f'{name}/μs' for name in TIMES)} |",
            f"|---|{'---:|' * (len(TIMES) + 1)}",
            *(
                f"| {case} | {row['bytes']} | {' | '.join(format(row[name], ',.1f') for name in TIMES)} |"
                for case, row in measured.items()
            ),
        ]
    lines += [
        "",
        "## Beside the document",
        "",
        "Each figure divided by that of `fixed` in its own table: the document's (Java), then ours of 100 partitions.",
        "",
        f"| Encoding | Size | {' | '.join(TIMES)} |",
        f"|---|{'---:|' * (len(TIMES) + 1)}",
    ]
    ours = cases[EXAMPLES[0].name]["rows"]
    for case, theirs in list(DOCUMENT.items())[1:]:
        both = zip(theirs, DOCUMENT["fixed"], ours[case].values(), ours["fixed"].values(), strict=True)
        cells = [f"{a / b:.2f}, {c / d:.2f}" for a, b, c, d in both]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    lines += [
        "",
        "Generated Python reads and writes the fixed integers of a partition in one step, varints one after the other:",
        "here, more than in Java, fewer bytes are paid for with time.",
        "",
        f"{FIXED} and {BEST} bytes are sizes of a message; {WORST} is out of reach of every message that takes {FIXED}",
        "bytes fixed: a varint adds at most a byte to an int32 or an int16, and around every int16 there are more",
        f"bytes that are no integers. So no message grows by more than a quarter, and {FIXED} bytes to 4019 at most",
        "(`tests/engine/protocol/test_kip_625.py`).",
        "",
        "## Size by value",
        "",
        "The message of 93 partitions when all integers of its partitions have one value. Unpacked, a negative",
        "number takes the most bytes; packed, numbers need a byte more from one bit less on, whatever their sign.",
        "",
        "![Size of the message by the bits of its integers](kip_625.svg)",
        "",
    ]
    return "\n".join(lines)


WHAT = {
    "100 partitions": "One topic of 100 partitions on two brokers; every integer of the message unpacked.",
    "93 partitions": "One topic of 93 partitions on two brokers; the integers of its partitions unpacked.",
}

if __name__ == "__main__":
    harness.save(
        "kip_625", __doc__, {example.name: {"what": WHAT[example.name], "rows": rows(example)} for example in EXAMPLES}
    )
    RESULTS = HERE / "results"
    (RESULTS / "kip_625.md").write_text(page(json.loads((RESULTS / "kip_625.json").read_text())), encoding="utf-8")
    (RESULTS / "kip_625.svg").write_text(picture(sizes_by_value(EXAMPLES[1])), encoding="utf-8")
