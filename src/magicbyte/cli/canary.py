"""`magicbyte migrate canary`: choose the canary broker for a format, and judge it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from magicbyte.cli.base import Command
from magicbyte.cli.brokers import bootstrap_option, client_of
from magicbyte.cli.client_sources import access_options, page_access
from magicbyte.cli.options import format_option
from magicbyte.cli.output import complain, say, say_json
from magicbyte.cli.render import table_lines
from magicbyte.public.sources import explained

if TYPE_CHECKING:
    from magicbyte.tools.migration.canary import BrokerRates, CanaryChoice, CanaryReport

_NOT_WELL = 1
_COLUMNS = (
    "records in/s",
    "converted/s",
    "of it for followers",
    "failed",
    "produce ms",
    "fetch ms",
    "cpu",
    "under-replicated",
)


def _pages(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[int, str]:
    pages = {}
    for each in given:
        number, equals, page = each.partition("=")
        if not (equals and page and number.isascii() and number.isdigit()):
            raise click.BadParameter(f"expected ID=URL, such as 1=http://host1:9404/metrics, found {each!r}")
        pages[int(number)] = page
    return pages


@click.command(
    cls=Command,
    examples=(
        "magicbyte migrate canary -b localhost:9092",
        "magicbyte migrate canary -b localhost:9092 --broker 2 --watch 600",
    ),
)
@bootstrap_option
@click.option("--broker", type=click.IntRange(0), metavar="ID",
              help="The canary. [default: the broker that leads the fewest partitions]")  # fmt: skip
@click.option("--max-leaders", type=click.FloatRange(0, 100), default=10, show_default=True, metavar="PERCENT",
              help="The largest share of the cluster's partitions that a canary may lead.")  # fmt: skip
@click.option("--watch", type=click.FloatRange(1, 86_400), metavar="SECONDS",
              help="How long to compare the canary with the other brokers, before a verdict.")  # fmt: skip
@click.option("--metrics", "pages", multiple=True, metavar="ID=URL", callback=_pages,
              help="Metrics of a broker: 1=http://HOST:PORT/metrics. Not needed for magicbyte brokers.")  # fmt: skip
@access_options
@format_option
def canary(
    bootstrap: str, broker: int | None, max_leaders: float, watch: float | None, pages: dict[int, str], form: str
) -> None:
    """Choose a canary, the broker that first stores a new format; with --watch, evaluate it. Nothing is changed.

    Exit status: 0 a suitable canary, or one that keeps its format; 1 a canary that leads too many partitions, should
    roll back, or had no traffic; 2 wrong use or no answer.
    """
    if watch is not None and broker is None:
        raise click.UsageError("--watch compares one broker with the others: expected --broker ID")
    choice, report = asyncio.run(_looked(bootstrap, broker, watch, pages))
    leads_too_much = choice.percent > max_leaders
    if form == "json":
        say_json({**choice.to_json(), **({} if report is None else report.to_json())})
    else:
        say(f"broker {choice.broker} leads {choice.leads} of {choice.partitions} partitions ({choice.percent:.1f} %)")
        say(*(() if report is None else _report_text(report)))
    if leads_too_much:
        complain(
            f"broker {choice.broker} leads more than {max_leaders:g} % of the partitions: move leaders away first "
            "(magicbyte topics reassign), or raise --max-leaders"
        )
    is_well = not leads_too_much if report is None else report.keeps
    click.get_current_context().exit(0 if is_well else _NOT_WELL)


async def _looked(
    bootstrap: str, broker: int | None, watch: float | None, pages: Mapping[int, str]
) -> tuple[CanaryChoice, CanaryReport | None]:
    from magicbyte.tools.migration import look, planner
    from magicbyte.tools.migration.canary import CanaryChoice, choose_canary, judge_canary
    from magicbyte.tools.migration.sightings import CLIENT_ID

    notes: list[str] = []
    with explained("migrate canary", "brokers from 0.8.2 on can be asked"):
        async with client_of(bootstrap, client_id=CLIENT_ID) as client:
            leads, controller = await look.look_at_leads(client)
            if broker is not None and broker not in leads:
                known = ", ".join(map(str, sorted(leads)))
                raise click.BadParameter(f"no broker {broker} is alive: expected one of {known}", param_hint="--broker")
            own = {} if watch is None else await planner.metrics_pages(client, notes)
    choice = choose_canary(leads, controller)
    if broker is not None:
        choice = CanaryChoice(broker, leads[broker], choice.partitions)
    if watch is None:
        return choice, None
    for note in notes:
        complain(note)
    access = page_access()
    known_pages = {number: (page, None) for number, page in own.items()} | {
        number: (page, access) for number, page in pages.items()
    }
    if choice.broker not in known_pages or len(known_pages) == 1:
        raise click.UsageError(
            "expected metrics of the canary and of another broker: give --metrics ID=URL, or http.address to "
            "magicbyte brokers"
        )
    found = await look.look_at_rates(known_pages, watch)
    (judged,) = (each for each in found if each.broker == choice.broker)
    return choice, judge_canary(judged, [each for each in found if each.broker != choice.broker])


def _report_text(found: CanaryReport) -> Iterator[str]:
    yield from table_lines(
        [["broker", *_COLUMNS], _row(found.canary, "*"), *(_row(each, "") for each in found.others)], left=set()
    )
    yield from (f"  {each}" for each in found.reasons)
    yield f"verdict: {found.verdict.value}"


def _row(broker: BrokerRates, mark: str) -> list[str]:
    figures = (broker.produce_ms, broker.fetch_ms, broker.cpu)
    return [
        f"{broker.broker}{mark}",
        f"{broker.records_in:,.0f}",
        f"{broker.converted:,.0f}",
        f"{broker.for_followers:,.0f}",
        f"{broker.failed:.2%}",
        *("-" if each is None else f"{each:.2f}" for each in figures),
        "-" if broker.under_replicated is None else f"{broker.under_replicated:.0f}",
    ]
