"""Report a run as JSON and as one self-contained HTML file."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magicbyte.engine.log.files.outputs import put_whole
from magicbyte.engine.log.files.store import ObjectStore
from magicbyte.spark.pipeline.runner import stage_names
from magicbyte.spark.pipeline.sink import NUMBERS, PAGE

if TYPE_CHECKING:
    from magicbyte.spark.pipeline.driver import PipelineRun

Json = dict[str, Any]

_MOST_BARS = 40
_STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#1b2733;"
    "background:#fff}h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse}"
    "td,th{padding:.2rem .8rem .2rem 0;text-align:left;border-bottom:1px solid #dde3ea}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.bad{color:#a4161a}svg{width:100%;height:auto}"
    "svg text{font:12px system-ui,sans-serif;fill:#1b2733}.scroll{overflow-x:auto}"
    "@media(prefers-color-scheme:dark){body{background:#12181f;color:#dfe7ef}svg text{fill:#dfe7ef}"
    "td,th{border-color:#2b3744}.bad{color:#ff8a8a}}"
)


def stage_sums(units: Iterable[Json]) -> list[Json]:
    """Return for each stage, in order: partitions, bytes before and after it, and seconds.

    A repeated stage gets a number: `inventory`, `inventory 2`.
    """
    sums: dict[str, Json] = {}
    for unit in units:
        names = stage_names(stage["do"] for stage in unit["stages"])
        for name, stage in zip(names, unit["stages"], strict=True):
            known = sums.setdefault(name, {"do": name, "partitions": 0, "bytesIn": 0, "bytesOut": 0, "seconds": 0.0})
            known["partitions"] += 1
            for each in ("bytesIn", "bytesOut", "seconds"):
                known[each] += stage[each]
    return [{**each, "seconds": round(each["seconds"], 3)} for each in sums.values()]


def formats(units: Iterable[Json]) -> tuple[Json, Json]:
    """Return bytes by format and codec, as counted by the first and the last `inventory` stage of each partition."""
    first: Json = {}
    last: Json = {}
    for unit in units:
        seen = [stage["formats"] for stage in unit["stages"] if stage["do"] == "inventory"]
        for sums, found in ((first, seen[:1]), (last, seen[1:][-1:])):
            for each in found[0] if found else []:
                name = f"magic {each['magic']}, {each['codec']}"
                sums[name] = sums.get(name, 0) + each["bytes"]
    return first, last


def as_json(done: PipelineRun) -> Json:
    """Return the complete report of a run."""
    outputs = [output for unit in done.units for output in unit.get("outputs", [])]
    before, after = formats(done.units)
    return {
        "pipeline": done.pipeline.name,
        "sink": None if done.pipeline.sink is None else str(done.pipeline.sink),
        "manifest": None if done.manifest is None else done.manifest["number"],
        "master": done.master,
        "startedMs": done.started_ms,
        "seconds": done.seconds,
        "status": done.status,
        "partitions": len(done.units),
        "doneBefore": done.kept,
        "bytesIn": sum(unit["bytes"] for unit in done.units),
        "bytesOut": sum(each["size"] for output in outputs for each in output["files"] if _is_data(each["name"])),
        "stages": stage_sums(done.units),
        "formatsBefore": before,
        "formatsAfter": after,
        "units": done.units,
    }


def _is_data(name: str) -> bool:
    return name.endswith((".log", ".parquet"))


def write_report(done: PipelineRun) -> Path | str | None:
    """Write the report to the configured folder, or beside the outputs; return its path, None without either.

    It replaces the report of an earlier run.
    """
    pipeline = done.pipeline
    folder = pipeline.report or pipeline.sink
    if folder is None:
        return None
    report = as_json(done)
    if isinstance(folder, str):
        store = ObjectStore(folder)
        store.put(NUMBERS, (json.dumps(report, indent=1) + "\n").encode())
        store.put(PAGE, as_html(report).encode())
        return store.path(PAGE)
    folder.mkdir(parents=True, exist_ok=True)
    put_whole(folder / NUMBERS, (json.dumps(report, indent=1) + "\n").encode())
    put_whole(folder / PAGE, as_html(report).encode())
    return folder / PAGE


# ---- the page


def as_html(report: Json) -> str:
    """Return the HTML page of a report from `as_json`."""
    units: list[Json] = report["units"]
    saved = report["bytesIn"] - report["bytesOut"]
    facts = [
        ("partitions", f"{report['partitions']:,}, of which earlier runs did {report['doneBefore']:,}"),
        ("bytes in", f"{report['bytesIn']:,}"),
        ("bytes out", f"{report['bytesOut']:,} ({saved:,} saved)" if report["sink"] else "nothing is written"),
        ("time", f"{report['seconds']:,} s at {report['master']}"),
        ("sink", f"{report['sink']}, manifest {report['manifest']}" if report["sink"] else "none"),
    ]
    bad = [unit for unit in units if unit["outcome"] != "done"]
    parts = [
        f"<h1>{html.escape(report['pipeline'])}</h1>",
        _table((), facts),
        "<h2>Stages</h2>",
        _table(
            ("stage", "partitions", "bytes in", "bytes out", "seconds of workers"),
            [(each["do"], each["partitions"], each["bytesIn"], each["bytesOut"], each["seconds"])
             for each in report["stages"]],
        ),
        _bars("Seconds of workers by stage", [(each["do"], each["seconds"]) for each in report["stages"]]),
        _bars("Bytes by format, before", sorted(report["formatsBefore"].items())),
        _bars("Bytes by format, after", sorted(report["formatsAfter"].items())),
        _bars(f"Seconds by partition, the {_MOST_BARS} longest",
              sorted(((unit["unit"], unit["seconds"]) for unit in units), key=lambda pair: -pair[1])[:_MOST_BARS]),
        _bars(f"Bytes by partition, the {_MOST_BARS} largest",
              sorted(((unit["unit"], unit["bytes"]) for unit in units), key=lambda pair: -pair[1])[:_MOST_BARS]),
    ]  # fmt: skip
    if bad:
        rows = [(unit["unit"], unit["outcome"], unit["error"]) for unit in bad]
        parts += ["<h2 class=bad>Not done</h2>", _table(("partition", "outcome", "why"), rows)]
    body = "\n".join(part for part in parts if part)
    title = html.escape(report["pipeline"])
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style>\n{body}\n</html>\n"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    def cell(value: object) -> str:
        if isinstance(value, (int, float)):
            return f"<td class=n>{value:,}</td>"
        return f"<td>{html.escape(str(value))}</td>"

    top = "".join(f"<th>{html.escape(each)}</th>" for each in head)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f"<div class=scroll><table>{f'<tr>{top}</tr>' if head else ''}{body}</table></div>"


def _bars(title: str, rows: Sequence[tuple[str, float]]) -> str:
    """Return a bar chart with its numbers; an empty string without rows."""
    if not rows:
        return ""
    largest = max(value for _, value in rows) or 1
    drawn = "".join(
        f'<text x="0" y="{20 * at + 14}">{html.escape(name[-40:])}</text>'
        f'<rect x="260" y="{20 * at + 3}" width="{440 * value / largest:.1f}" height="14" fill="#3d7ea6"/>'
        f'<text x="{268 + 440 * value / largest:.1f}" y="{20 * at + 14}">{value:,}</text>'
        for at, (name, value) in enumerate(rows)
    )
    return (
        f"<h2>{html.escape(title)}</h2>"
        f'<svg viewBox="0 0 820 {20 * len(rows) + 6}" role="img" aria-label="{html.escape(title)}">{drawn}</svg>'
    )
