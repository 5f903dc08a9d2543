"""Draw the pictures of the documents into docs/images, from committed results, pages and the bundled logs.

Run: .venv/bin/python tools/pictures.py [--check]. A picture follows the reader's choice of light or dark.
"""

import contextlib
import itertools
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner

from magicbyte.cli.main import main
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import Format, encode_records

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs/images"
RESULTS = ROOT / "benchmarks/results"
STYLE: Final = """
text { font: 14px ui-sans-serif, system-ui, sans-serif; fill: #1f2328 }
.dim { fill: #59636e } .small { font-size: 12px } .bold { font-weight: 600 }
.mono { font-family: ui-monospace, monospace }
.paper { fill: #ffffff } .ours { fill: #0969da } .rival { fill: #afb8c1 } .box { fill: #f6f8fa; stroke: #8c959f }
.old { fill: #fff1e5; stroke: #bc4c00 } .new { fill: #ddf4ff; stroke: #0969da } .open { stroke-dasharray: 4 3 }
.line { stroke: #59636e; fill: none; stroke-width: 1.5 } .tip { fill: #59636e } .on { fill: #ffffff }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .dim { fill: #9198a1 } .paper { fill: #0d1117 } .ours { fill: #4493f8 } .rival { fill: #656c76 }
.box { fill: #151b23; stroke: #656c76 } .old { fill: #3d2a1d; stroke: #db6d28 } .new { fill: #132c4a; stroke: #4493f8 }
.line { stroke: #9198a1 } .tip { fill: #9198a1 } .on { fill: #0d1117 } }
"""


def text(x: float, y: float, said: str, kind: str = "", anchor: str = "start") -> str:
    """Return a line of text."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(said)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str = "box") -> str:
    """Return a box."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" class="{kind}"/>'


def labelled(x: float, y: float, width: float, height: float, lines: Iterable[str], kind: str = "box") -> str:
    """Return a box with lines of text in its middle, the first of them bold."""
    given = list(lines)
    top = y + height / 2 - 8 * (len(given) - 1) + 5
    said = [
        text(x + width / 2, top + 17 * at, line, "small dim" if at else "bold", "middle")
        for at, line in enumerate(given)
    ]
    return "\n".join([box(x, y, width, height, kind), *said])


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """Return an arrow from the first point to the second."""
    return f'<path d="M{x1:g} {y1:g} L{x2:g} {y2:g}" class="line" marker-end="url(#tip)"/>'


def drawing(width: int, height: int, title: str, parts: Iterable[str], style: str = "") -> str:
    """Return a picture of `parts`."""
    tip = '<marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
    tip += '<path d="M0 0 L8 4 L0 8 z" class="tip"/></marker>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
    body = "\n".join(parts)
    paper = f'<rect width="{width}" height="{height}" class="paper"/>'
    top = f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n<defs>{tip}</defs>"
    return f"{head}\n{top}\n{paper}\n{body}\n</svg>\n"


def case(name: str, of: str) -> Any:
    """Return a case of a committed result."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["cases"][of]


def chart() -> str:
    """Return the four bars of the README: how many times as much work for the same CPU time as the rival."""
    java = case("decode", "v2 none 100")["ratios"]["java"]["ratio"]
    spark = case("spark", "none, 100 B")["ratios"]["all columns"]["ratio"]
    broker = case("broker", "v2 none 100 B")["produce"]["ratios"]["records_per_cpu_second"]
    mirror = case("mirror", "closed lz4 1000 B")["ratios"]["MirrorMaker 2 3.9.1"]["cpu_seconds_per_GB"]
    rows = [
        ("Decode", "record batches, records of 100 B", "Kafka's Java client", java),
        ("Serve", "produce requests, records of 100 B", "Kafka 3.9.1", broker),
        ("Mirror", "lz4 sets, records of 1 kB", "MirrorMaker 2", mirror),
        ("Spark", "all columns, records of 100 B", "Spark's Kafka source", spark),
    ]  # fmt: skip
    unit, left = 29, 16  # narrow, so that it can be read on a phone
    parts = [text(left, 26, "Work per CPU second, compared with the rival", "bold")]
    for at, (name, what, rival, ratio) in enumerate(rows):
        y = 50 + 84 * at
        parts += [text(left, y + 16, name, "bold"), text(left + 68, y + 16, what, "small dim")]
        parts += [f'<rect x="{left}" y="{y + 25}" width="{unit * ratio:g}" height="18" class="ours"/>']
        parts += [f'<rect x="{left}" y="{y + 46}" width="{unit}" height="14" class="rival"/>']
        parts += [text(left + unit * ratio + 8, y + 39, f"{ratio:.1f} ×", "bold")]
        parts += [text(left + unit + 8, y + 58, rival, "small dim")]
    return drawing(450, 386, "magicbyte compared with its rivals", parts)


def layout_rows(page: str) -> list[tuple[str, str, str]]:
    """Return name, type and position of each field in the first table of a format's page."""
    found = (ROOT / f"docs/formats/{page}.md").read_text(encoding="utf-8").split("| Field | Type | At | Meaning |")[1]
    rows = re.findall(r"^\| (\w+) \| (\w+) \| ([^|]+) \|", found.split("\n\n")[0], re.MULTILINE)
    return [(name, kind, at.strip()) for name, kind, at in rows]


SIZES: Final = {"int8": 1, "int16": 2, "int32": 4, "uint32": 4, "int64": 8}
CELL, HIGH, LEFT, TOP = 84, 44, 56, 62


def bytes_of(page: str, title: str) -> str:
    """Return a format as rows of eight bytes; a field that crosses the end of a row continues in the next one."""
    rows = layout_rows(page)
    fixed = list(itertools.takewhile(lambda row: row[1] in SIZES, rows))
    parts = [text(16, 26, title, "bold")]
    parts += [text(LEFT + CELL * at + CELL / 2, 52, str(at), "small dim", "middle") for at in range(8)]
    end = 0
    for name, kind, at in fixed:
        assert int(at) == end, (page, name)
        parts += cells(name, end, SIZES[kind])
        end += SIZES[kind]
    last = (end + 7) // 8
    parts += [text(LEFT - 10, TOP + HIGH * row + 25, str(8 * row), "small dim", "end") for row in range(last)]
    y = TOP + HIGH * last + 4
    rest = ", ".join(f"{name}: {kind}" for name, kind, _ in rows[len(fixed) :])
    parts += [
        box(LEFT, y, 8 * CELL - 3, 34, "box open"),
        text(LEFT + 4 * CELL, y + 22, f"then {rest}", "small", "middle"),
    ]
    return drawing(LEFT + 8 * CELL + 16, y + 50, title, parts)


def cells(name: str, start: int, size: int) -> Iterator[str]:
    """Yield the boxes of a field of `size` bytes; its name stands in the widest of them."""
    pieces = []
    while size:
        taken = min(8 - start % 8, size)
        pieces.append((start, taken))
        start, size = start + taken, size - taken
    named = max(pieces, key=lambda piece: piece[1])
    for piece in pieces:
        row, column = divmod(piece[0], 8)
        kind = {"magic": "new", "crc": "old"}.get(name, "box")
        yield box(LEFT + CELL * column, TOP + HIGH * row, CELL * piece[1] - 3, HIGH - 4, kind)
        said = short(name, piece[1]) if piece == named else "…"
        yield text(LEFT + CELL * (column + piece[1] / 2) - 1, TOP + HIGH * row + 25, said, "small", "middle")


def short(name: str, cells: int) -> str:
    """Return as much of a name as fits."""
    most = 12 * cells
    return name if len(name) <= most else name[: most - 1] + "…"


def conversions() -> str:
    """Return what becomes of timestamp and header of one record, from each format to each: by converting it."""
    formats = [Format.V0, Format.V1, Format.V2, Format.ENRICHED]
    names = {Format.V0: "v0", Format.V1: "v1", Format.V2: "v2", Format.ENRICHED: "enriched"}
    parts = [text(16, 26, "Converted: what is kept besides offset, key and value", "bold")]
    parts += [text(202 + 170 * at, 60, f"to {names[each]}", "bold", "middle") for at, each in enumerate(formats)]
    for row, source in enumerate(formats):
        y = 74 + 62 * row
        parts.append(text(114, y + 30, f"from {names[source]}", "bold", "end"))
        for column, target in enumerate(formats):
            has, holds = can_hold(source), can_hold(target)
            lost, kept = sorted(has - holds), sorted(has & holds)
            lines = [", ".join(kept) or "nothing more", f"lost: {', '.join(lost)}" if lost else "nothing lost"]
            parts.append(labelled(122 + 170 * column, y, 160, 52, lines, "new" if not lost else "old"))
    return drawing(806, 330, "The conversion matrix", parts)


def can_hold(form: Format) -> set[str]:
    """Return which of timestamp and headers a format holds: by encoding a record that has both, and decoding it."""
    written = encode_records([Record(0, 1_700_000_000_000, 0, b"key", b"value", (("name", b"value"),))], form)
    (record,) = [each for columns in decode(memoryview(written), dialect=form.dialect) for each in columns]
    held = {"timestamp"} if record.timestamp == 1_700_000_000_000 else set()
    return held | ({"headers"} if record.headers else set())


def migration() -> str:
    """Return the two phases of a format migration."""
    parts = [text(16, 26, "The two-phase migration from message format 1 to 2", "bold")]
    columns = [
        ("Before", "old broker", ("stores 1", "old"), "old", "old"),
        ("Phase 1", "new broker", ("stores 1", "old"), "old", "being upgraded"),
        ("Phase 2", "new broker", ("stores 2", "new"), "being upgraded", "most are new"),
        ("Done", "new broker", ("stores 2", "new"), "new", "new"),
    ]
    for at, (name, broker, (stores, kind), producers, consumers) in enumerate(columns):
        x = 16 + 200 * at
        parts += [text(x + 85, 56, name, "bold", "middle")]
        parts += [labelled(x, 70, 170, 46, ("producers", producers)), arrow(x + 85, 116, x + 85, 142)]
        parts += [labelled(x, 144, 170, 46, (broker, stores), kind), arrow(x + 85, 190, x + 85, 216)]
        parts += [labelled(x, 218, 170, 46, ("consumers", consumers))]
        if at < 3:
            parts.append(arrow(x + 172, 167, x + 198, 167))
    notes = ("", "converts for new producers;", "converts for old consumers", "retention removes format 1")
    more = ("", "zero-copy for consumers", "and old producers: upgrade them", "")
    for at in range(4):
        parts += [
            text(101 + 200 * at, 286, notes[at], "small dim", "middle"),
            text(101 + 200 * at, 302, more[at], "small dim", "middle"),
        ]
    return drawing(816, 318, "The two-phase migration", parts)


def flow() -> str:
    """Return how bytes flow through the rooms."""
    parts = [text(16, 26, "How bytes flow through the house", "bold")]
    parts += [
        labelled(16, 48, 170, 46, ("files", "log directories, URLs"), "old"),
        labelled(16, 190, 170, 46, ("clients", "Kafka's protocol"), "old"),
    ]
    parts += [
        labelled(230, 48, 170, 46, ("log/files", "segments, indexes")),
        labelled(230, 190, 170, 46, ("net, protocol", "frames, messages")),
    ]
    parts += [labelled(230, 119, 170, 46, ("log/append, log/live", "rules, served logs"))]
    parts += [
        labelled(444, 48, 170, 46, ("records: scan", "headers only: shallow")),
        labelled(444, 119, 170, 46, ("codecs, kernels", "decode records: deep")),
    ]
    parts += [labelled(444, 190, 170, 46, ("broker", "sendfile of a slice"))]
    parts += [labelled(658, 48, 170, 46, ("archive, cli", "inventory, verify, convert"), "new")]
    parts += [
        labelled(658, 119, 170, 46, ("public, spark", "objects, Arrow, rows"), "new"),
        labelled(658, 190, 170, 46, ("mirror", "closed sets, new headers"), "new"),
    ]
    parts += [
        arrow(186, 71, 228, 71),
        arrow(400, 71, 442, 71),
        arrow(614, 71, 656, 71),
        arrow(529, 94, 529, 117),
        arrow(614, 142, 656, 142),
    ]
    parts += [
        arrow(186, 213, 228, 213),
        arrow(400, 213, 442, 213),
        arrow(315, 190, 315, 167),
        arrow(315, 119, 315, 96),
        arrow(614, 213, 656, 213),
    ]
    return drawing(844, 256, "How bytes flow", parts)


def in_logs(arguments: list[list[str]]) -> list[str]:
    """Return what commands print where the bundled logs are."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        CliRunner().invoke(main, ["tour", "--unpack", "tour"])
        Path("tour/logs").rename("logs")
        on_a_terminal = {"FORCE_COLOR": "1", "NO_COLOR": None}
        printed = [CliRunner(env=on_a_terminal).invoke(main, each, color=True).stdout for each in arguments]
        return [each.replace(f"{Path.cwd()}/", "") for each in printed]


SCENES: Final = (
    ["inventory", "logs"],
    ["cat", "logs/kafka-4.3.1/basic-zstd-0", "--from", "34", "-n", "5"],
    ["dump", "--anatomy", "logs/kafka-0.8.2.2/basic-none-0/00000000000000000000.log", "--at", "6039"],
    ["verify", "logs"],
    ["salvage", "logs/kafka-0.10.2.2/crash-flip-0", "--out", "whole"],
    ["diff", "logs/kafka-0.10.2.2/crash-flip-0", "whole", "--on-damage", "skip"],
    ["convert", "logs/kafka-0.8.2.2/basic-none-0", "--to", "v2", "--codec", "zstd", "--out", "newer", "--verify"],
    ["diff", "logs/kafka-0.8.2.2/basic-none-0", "newer", "--ignore", "timestamps"],
)
SECONDS: Final = 4
LINES, COLUMNS = 18, 100


MONO: Final = "\n.mono { font-size: 13px; white-space: pre }"
COLORS: Final = ("red", "green", "yellow", "blue", "magenta", "cyan")
SGR: Final = re.compile(r"\x1b\[([0-9;]*)m")


def colored(x: float, y: float, line: str) -> str:
    """Return a line of a terminal, with the colors of its escape sequences, cut at COLUMNS."""
    kinds: list[str] = []
    parts, left = [], COLUMNS
    for at, piece in enumerate(SGR.split(line)):
        if at % 2:
            for code in map(int, piece.split(";") if piece else ["0"]):
                named = {0: None, 1: "bold", 2: "dim"}.get(code, "")
                if named is None:
                    kinds = []
                elif name := named or (COLORS[code % 10 - 1] if code // 10 in (3, 9) and 1 <= code % 10 <= 6 else ""):
                    kinds.append(name)
        elif shown := piece[:left]:
            left -= len(shown)
            parts.append(f'<tspan class="{" ".join(kinds)}">{escape(shown)}</tspan>' if kinds else escape(shown))
    return f'<text x="{x:g}" y="{y:g}" class="mono" text-anchor="start">{"".join(parts)}</text>'


def inventory() -> str:
    """Return the table of formats that `magicbyte inventory` prints of the bundled logs: it can be read on a phone."""
    (printed,) = in_logs([["inventory", "logs"]])
    lines = printed.rstrip().rpartition("\n\n")[2].splitlines()
    width, height = 8 * max(map(len, lines)) + 36, 20 * len(lines) + 56
    parts = [box(8, 8, width - 16, height - 16)]
    parts += [text(20, 36, f"$ magicbyte inventory logs | tail -{len(lines)}", "mono bold")]
    parts += [colored(20, 60 + 20 * row, line) for row, line in enumerate(lines)]
    return drawing(width, height, "The formats of the bundled logs", parts, MONO)


def recording() -> str:
    """Return the commands of the tour on a terminal, one scene after the other; without motion the first one."""
    count = len(SCENES)
    shown = 100 / count
    style = f"""{MONO}
.scene {{ opacity: 0; animation: scene {SECONDS * count}s step-end infinite }}
@keyframes scene {{ 0% {{ opacity: 1 }} {shown:.2f}% {{ opacity: 0 }} }}
@media (prefers-reduced-motion: reduce) {{ .scene {{ animation: none }} .scene:first-of-type {{ opacity: 1 }} }}
.red {{ fill: #cf222e }} .green {{ fill: #1a7f37 }} .yellow {{ fill: #9a6700 }} .blue {{ fill: #0969da }}
.magenta {{ fill: #8250df }} .cyan {{ fill: #1b7c83 }}
@media (prefers-color-scheme: dark) {{
.red {{ fill: #ff7b72 }} .green {{ fill: #56d364 }} .yellow {{ fill: #e3b341 }} .blue {{ fill: #79c0ff }}
.magenta {{ fill: #d2a8ff }} .cyan {{ fill: #56d4dd }} }}
"""
    parts = [box(8, 8, 824, 20 * LINES + 40)]
    for at, (words, printed) in enumerate(zip(SCENES, in_logs(list(SCENES)), strict=True)):
        lines = [line.replace("\t", "  ") for line in printed.splitlines()[:LINES]]
        drawn = [text(24, 36, "$ magicbyte " + " ".join(words), "mono bold")]
        drawn += [colored(24, 60 + 20 * row, line) for row, line in enumerate(lines)]
        parts.append(f'<g class="scene" style="animation-delay: {SECONDS * at}s">\n' + "\n".join(drawn) + "\n</g>")
    return drawing(840, 20 * LINES + 56, "The tour, recorded", parts, style)


PICTURES: Final[dict[str, Callable[[], str]]] = {
    "chart": chart,
    "conversions": conversions,
    "flow": flow,
    "inventory": inventory,
    "migration": migration,
    "tour": recording,
    "message-v0": lambda: bytes_of("message-v0", "Message v0, magic 0: Kafka 0.8 and 0.9"),
    "message-v1": lambda: bytes_of("message-v1", "Message v1, magic 1: Kafka 0.10"),
    "record-batch-v2": lambda: bytes_of("record-batch-v2", "Record batch v2, magic 2: from Kafka 0.11 on"),
    "enriched": lambda: bytes_of("enriched", "Enriched message, magic 1: a proposal"),
}


def run(*, check: bool) -> list[str]:
    """Draw all pictures, or only name those that are not as they would be drawn."""
    stale = []
    for name, draw in PICTURES.items():
        path, drawn = IMAGES / f"{name}.svg", draw()
        if not path.exists() or path.read_text(encoding="utf-8") != drawn:
            stale.append(name)
            if not check:
                path.write_text(drawn, encoding="utf-8")
    return stale


if __name__ == "__main__":
    checking = "--check" in sys.argv
    changed = run(check=checking)
    sys.stdout.writelines(f"{'stale' if checking else 'drawn'}: {name}\n" for name in changed)
    sys.exit(checking and bool(changed))
