"""Write the page of `magicbyte migrate check --html`: one file, without scripts or external links."""

from __future__ import annotations

from html import escape
from typing import Final

from magicbyte.engine.printable import printable
from magicbyte.tools.migration.check import Check, UpgradeFinding

_STYLE: Final = (
    "body{font:15px/1.5 sans-serif;margin:2em;max-width:75em}table{border-collapse:collapse;width:100%}"
    "td,th{border:1px solid #ccc;padding:.4em .6em;text-align:left;vertical-align:top}"
    ".breaks{background:#fde4e1}.changes{background:#fff6d6}"
)


def html_page(check: Check) -> str:
    """Return a check as an HTML page. Text from clients and brokers is escaped."""
    title = f"Upgrade to Kafka {check.target}: {check.verdict.value}"
    rows = "\n".join(_row(each) for each in check.findings)
    notes = "".join(f"<li>{_text(each)}</li>" for each in check.notes)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body><h1>{_text(title)}</h1>\n"
        f"<p>Looked at: {check.looked_at}.</p>\n"
        f"<table><tr><th>Weight</th><th>What</th><th>Why</th><th>What to do</th></tr>\n{rows}\n</table>\n"
        f"<ul>{notes}</ul></body></html>\n"
    )


def _row(finding: UpgradeFinding) -> str:
    why = "<br>".join([_text(finding.what), *(_text(each.text) for each in finding.refused)])
    cells = (finding.weight.value, f"{finding.kind} {finding.subject}")
    first = "".join(f"<td>{_text(each)}</td>" for each in cells)
    kind = finding.weight.value.replace(" ", "-")
    return f'<tr class="{kind}">{first}<td>{why}</td><td>{_text(finding.do)}</td></tr>'


def _text(text: str) -> str:
    return escape(printable(text))
