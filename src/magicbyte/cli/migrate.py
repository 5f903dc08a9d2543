"""`magicbyte migrate`: what the upgrade of a cluster would break, and where it stands."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from magicbyte.cli.brokers import client_of, format_option
from magicbyte.cli.options import OutputPath
from magicbyte.cli.output import say, say_json
from magicbyte.public.sources import explained

if TYPE_CHECKING:
    from magicbyte.migration.check import Check, Finding
    from magicbyte.releases import Release

BREAKS = 1


@click.group()
def migrate() -> None:
    """Say what a cluster's upgrade would break. Nothing is changed."""


@migrate.command()
@click.option("-b", "--bootstrap", metavar="HOST:PORT[,…]", help="Brokers of the cluster, of any version.")
@click.option("--to", "target", default="4", show_default=True, metavar="RELEASE",
              help="The release to go to, 3.0 or later; 4 is the latest that is known of it.")  # fmt: skip
@click.option("--request-log", "request_logs", multiple=True, metavar="PATH",
              type=click.Path(exists=True, path_type=Path),
              help="A broker's request log, or the folder of its kafka-request.log*. Can be given several times.",
              )  # fmt: skip
@click.option("--metrics", "pages", multiple=True, metavar="URL",
              help="Numbers of a broker: http://HOST:PORT/metrics. Can be given several times.")  # fmt: skip
@click.option("--topic", "topics", multiple=True, help="Only this topic. Can be given several times.")
@click.option("--looks", type=click.IntRange(0, 10_000), default=32, show_default=True,
              help="Places of a partition at which to look for old formats.")  # fmt: skip
@click.option("--html", type=OutputPath(), metavar="FILE", help="Write a page, too.")
@format_option
def check(form: str, html: Path | None, target: str, **given: Any) -> None:
    """Say which clients, settings and stored formats a release of Kafka refuses or changes, and what to do.

    With -b: settings, stored formats and, of magicbyte brokers with --http, all clients. Kafka's own brokers tell of
    clients by --request-log and --metrics. Exit status: 0 nothing breaks, 1 something does, 2 wrong use.
    """
    from magicbyte.log.files.outputs import put_whole, refuse_overlap
    from magicbyte.migration.check_page import html_page

    asked = _Asked(release=_release(target), **given)
    if not (asked.bootstrap or asked.request_logs or asked.pages):
        raise click.UsageError("expected -b HOST:PORT, --request-log FILE or --metrics URL")
    if html is not None:
        refuse_overlap(html, asked.request_logs)
    found = asyncio.run(_check(asked))
    if html is not None:
        put_whole(html, html_page(found).encode())
    if form == "json":
        say_json(found.to_json())
    else:
        say(*_text(found))
    click.get_current_context().exit(BREAKS if found.breaks else 0)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the command line says, by the names of its options."""

    release: Release
    bootstrap: str | None
    request_logs: tuple[Path, ...]
    pages: tuple[str, ...]
    topics: tuple[str, ...]
    looks: int


def _release(text: str) -> Release:
    from magicbyte.releases import Release, release_meant

    try:
        release = release_meant(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--to") from error
    if release.line < Release.of("3.0").line:
        raise click.BadParameter(f"{text}: expected 3.0 or later", param_hint="--to")
    return release


async def _check(asked: _Asked) -> Check:
    from magicbyte.migration import look, planner
    from magicbyte.migration.check import Facts, check

    facts, notes, pages = Facts(), list[str](), list[str]()
    if asked.bootstrap is not None:
        with explained("migrate check", "brokers from 0.8.2 on can be asked"):
            async with client_of(asked.bootstrap, client_id=planner.CLIENT_ID) as client:
                facts, notes, pages = await look.look_at_cluster(client, asked.topics, asked.looks)
    for page in dict.fromkeys([*pages, *asked.pages]):
        if (note := await look.look_at_numbers(page, facts.sightings)) is not None:
            notes.append(note)
    for path in look.request_logs(asked.request_logs):
        if (note := await asyncio.to_thread(look.look_at_request_log, path, facts.sightings)) is not None:
            notes.append(note)
    if not len(facts.sightings):
        notes.append("clients are not known: that takes --http of magicbyte brokers, --request-log or --metrics")
    return check(facts, asked.release, notes)


def _text(found: Check) -> Iterator[str]:
    for each in found.findings:
        yield f"{each.weight.value.upper()} {each.kind} {each.subject}"
        yield f"  {each.what}"
        yield from (f"  {refused.text}" for refused in each.refused)
        yield f"  -> {each.do}"
    yield f"Kafka {found.target}: {_sum(found.findings)}; looked at {found.looked_at}"
    yield from (f"note: {each}" for each in found.notes)


def _sum(findings: tuple[Finding, ...]) -> str:
    from magicbyte.migration.check import Weight

    counts = {weight: sum(each.weight is weight for each in findings) for weight in Weight}
    return (
        f"{counts[Weight.BREAKS]} would break, {counts[Weight.CHANGES]} would change, "
        f"{counts[Weight.UNKNOWN]} not known"
    )
