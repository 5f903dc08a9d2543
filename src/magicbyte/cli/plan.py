"""`magicbyte plan`: the state of a migration between message formats, its next step, and the cost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from magicbyte.access.clock import SystemClock
from magicbyte.cli.base import Command
from magicbyte.cli.brokers import client_of
from magicbyte.cli.client_settings import client_options
from magicbyte.cli.options import FormatName, format_option, key_values
from magicbyte.cli.output import say, say_json
from magicbyte.cli.render import many, size_text, table_lines
from magicbyte.engine.errors import InvalidConfigError
from magicbyte.engine.printable import time_text
from magicbyte.public.sources import explained

if TYPE_CHECKING:
    from magicbyte.cli.options import F
    from magicbyte.engine.records.encode import Format
    from magicbyte.tools.migration.brokers import GivenSettings
    from magicbyte.tools.migration.evidence import Unknown
    from magicbyte.tools.migration.planner import Estimate, MigrationPlan, TopicFacts, TopicPlan
    from magicbyte.tools.migration.status import BrokerFacts

Json = dict[str, Any]


def _given(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> GivenSettings:
    from magicbyte.tools.migration.brokers import GivenSettings

    try:
        return GivenSettings.parse(texts)
    except InvalidConfigError as error:
        raise click.BadParameter(str(error)) from None


def given_option(command: F) -> F:
    """Add --broker-setting: `broker_settings`, those that brokers do not return."""
    return click.option("--broker-setting", "broker_settings", multiple=True, callback=_given,
                        metavar="[ID:]NAME=VALUE",
                        help="Protocol or format of a broker that does not return its settings, as those before 0.11; "
                        "without ID of all such brokers. Can be given several times.")(command)  # fmt: skip


def topic_settings(command: F) -> F:
    """Add [KEY=VALUE]...: `settings` of topics that no source reports."""
    return click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")(command)


@click.command(
    cls=Command,
    examples=(
        "magicbyte plan --dir tour/logs/kafka-0.8.2.2 --rehearse 0",
        "magicbyte plan -b localhost:9092 --to v2 --rehearse 0 --json",
    ),
)
@click.option("-b", "--bootstrap", "--bootstrap-server", "bootstrap", metavar="HOST:PORT[,…]",
              help="Brokers of the cluster, of any version.")  # fmt: skip
@client_options
@click.option("--dir", "directories", type=click.Path(exists=True, path_type=Path), multiple=True, metavar="DIR",
              help="A log directory: stored formats are then exact. Can be given several times.")  # fmt: skip
@click.option("--http", metavar="HOST:PORT", help="The metrics of a `magicbyte serve --http`; found by -b.")
@click.option("--window", type=click.FloatRange(0, 3600), default=0, metavar="SECONDS", show_default="since its start",
              help="How long to watch the metrics of brokers.")  # fmt: skip
@click.option("--topic", "topics", multiple=True, help="Only this topic. Can be given several times.")
@click.option("--to", "target", type=FormatName(), help="The format to go to.  [default: the next]")
@click.option("--rehearse", type=click.IntRange(0), default=4, show_default=True, metavar="TOPICS",
              help="Rehearse the step for N topics, the busiest first; some seconds each.")  # fmt: skip
@click.option("--looks", type=click.IntRange(1, 10_000), default=32, show_default=True,
              help="Offsets of a partition to sample without --dir.")  # fmt: skip
@given_option
@format_option
@topic_settings
def plan(form: str, settings: tuple[str, ...], **given: Any) -> None:
    """Show where each topic stands between two message formats, its next step, and the cost.

    With --dir: stored formats, segment by segment, and when retention deletes the old ones. With -b: settings, group
    members and, of a magicbyte broker with --http, which clients read and write which format. Both can be combined.
    KEY=VALUE are settings of topics that no source reports, such as retention.ms=86400000. A step that depends on
    something unknown is to find it out.
    """
    asked = PlanOptions(settings=key_values(settings), **given)
    if not (asked.bootstrap or asked.directories):
        raise click.UsageError("expected -b HOST:PORT, --dir DIR, or both")
    found = asyncio.run(_planned(asked, stored_facts(asked)))
    if form == "json":
        say_json(found.to_json())
    else:
        say(*plan_text(found))


async def _planned(asked: PlanOptions, stored: Mapping[str, TopicFacts]) -> MigrationPlan:
    return await made_plan(asked, await plan_evidence(asked, stored))


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options of the command, by name."""

    bootstrap: str | None
    directories: tuple[Path, ...]
    http: str | None
    window: float
    topics: tuple[str, ...]
    target: Format | None
    rehearse: int
    looks: int
    settings: Mapping[str, str]
    broker_settings: GivenSettings


@dataclass(slots=True)
class PlanEvidence:
    """The facts for a plan. `brokers`: None without -b. `pages`: metrics of brokers, by broker."""

    topics: Mapping[str, TopicFacts]
    brokers: list[BrokerFacts] | None
    pages: Mapping[int, str]
    notes: list[str]


async def plan_evidence(asked: PlanOptions, stored: Mapping[str, TopicFacts]) -> PlanEvidence:
    """Return the facts for a command line. `stored`: by `stored_facts`. Raises NetworkError, BrokerError."""
    from magicbyte.tools.migration import planner
    from magicbyte.tools.migration.sightings import CLIENT_ID

    if asked.bootstrap is None:
        return PlanEvidence(stored, None, {}, [])
    with explained("plan", "brokers from 0.8.2 on can be asked"):
        async with client_of(asked.bootstrap, client_id=CLIENT_ID) as client:
            looks = 0 if asked.directories else asked.looks
            found = await planner.look_at_cluster(client, asked.topics, looks, asked.settings, asked.broker_settings)
            pages = await planner.metrics_pages(client, found.notes)
    return PlanEvidence(planner.joined(stored, found.topics), found.brokers, pages, found.notes)


async def made_plan(asked: PlanOptions, evidence: PlanEvidence, *, knows_clients: bool | None = None) -> MigrationPlan:
    """Return the plan for a command line. `knows_clients`: None if the metrics of brokers alone tell of clients."""
    from magicbyte.tools.migration import planner

    pages = [asked.http] if asked.http is not None else list(evidence.pages.values())
    used = await planner.look_at_all_metrics(pages, asked.window) if pages else None
    notes = list(evidence.notes)
    if knows_clients is None:
        unknown = _unknown_clients(asked, evidence, pages, has_clients=used is not None and used.has_clients)
        knows_clients = not unknown
        notes += [each.text for each in unknown]
    return await planner.plan(
        evidence.topics,
        used,
        now_ms=SystemClock().now_ms(),
        target=asked.target,
        rehearsals=asked.rehearse,
        notes=notes,
        brokers=evidence.brokers,
        knows_clients=knows_clients,
    )


def _unknown_clients(
    asked: PlanOptions, evidence: PlanEvidence, pages: Sequence[str], *, has_clients: bool
) -> list[Unknown]:
    """Return why the clients are not known. A page that is named tells those of one broker."""
    from magicbyte.tools.migration.evidence import GIVE_PAGES, ClientSource, silent_brokers, unknown_clients

    brokers = [broker.id for broker in evidence.brokers or ()]
    tell = [broker for broker, page in evidence.pages.items() if page in pages]
    silent = silent_brokers(brokers, tell, is_told=asked.http is not None and len(brokers) <= 1)
    sources = [ClientSource(page, int(has_clients)) for page in pages]
    return unknown_clients(sources, silent, has_clients=has_clients, give=GIVE_PAGES)


def stored_facts(asked: PlanOptions) -> dict[str, TopicFacts]:
    """Return the facts about the directories; internal topics only if they are named.

    Called without an event loop: Ctrl-C and SIGTERM end it, which they would not in a thread.
    """
    if not asked.directories:
        return {}
    from magicbyte.engine.log.files.directory import discover
    from magicbyte.engine.log.files.left_out import in_use
    from magicbyte.engine.log.files.partitions import choose
    from magicbyte.tools.migration.planner import look_at_directories

    partitions = choose(in_use(discover([str(each) for each in asked.directories])), asked.topics)
    named = [each for each in partitions if asked.topics or not (each.topic or "__").startswith("__")]
    return look_at_directories(named, asked.settings)


# ---- text


def plan_text(whole_plan: MigrationPlan) -> list[str]:
    """Return the lines of `magicbyte plan`."""
    rows = [["topic", "format", "stored", "phase", "next step", "old format leaves"]]
    rows += [
        [
            topic_plan.facts.name,
            _format_text(topic_plan.facts),
            _stored_text(topic_plan.facts),
            _phase_text(topic_plan),
            _step_text(topic_plan),
            _leaves_text(topic_plan),
        ]
        for topic_plan in whole_plan.topics
    ]
    lines = [*table_lines(rows, left={0, 1, 2, 3, 4, 5})]
    for topic_plan in whole_plan.topics:
        if topic_plan.uses or topic_plan.facts.members:
            lines += ["", f"{topic_plan.facts.name}:", *(f"  {line}" for line in _details(topic_plan))]
    if whole_plan.cpu_s is not None:
        memory = size_text(whole_plan.memory_bytes or 0)
        lines += [
            "",
            f"the broker used {whole_plan.cpu_s:.3f} of a core for {whole_plan.looked_s:.0f} s, "
            f"and has {memory} in use",
        ]
    total_now, total_after = whole_plan.total_now, whole_plan.total_after
    if total_now is not None and total_after is not None:
        lines.append(f"in all, the steps change that by {total_after['cpu'] - total_now['cpu']:+.3f} of a core and "
                     f"{size_text(total_after['moreMemoryBytes'])} more of memory")  # fmt: skip
    if any(plan.facts.configured is not None and not plan.facts.knows_format for plan in whole_plan.topics):
        lines.append(
            "note: ?: the newest stored format; the setting is not known, message.format.version=VERSION gives it"
        )
    return lines + [f"note: {each}" for each in whole_plan.notes]


def format_text(form: Format | None) -> str:
    """Return the name of a format, `-` if it is not known."""
    return "-" if form is None else form.title


def _format_text(facts: TopicFacts) -> str:
    """Return the format of new records, with a `?` if only the newest stored one is known."""
    return format_text(facts.configured) + ("" if facts.knows_format or facts.configured is None else "?")


def _phase_text(topic_plan: TopicPlan) -> str:
    from magicbyte.tools.offline.migration import Phase

    phase = topic_plan.stage.phase
    return phase.value if phase in (Phase.DONE, Phase.UNKNOWN) else f"{phase.value} to {topic_plan.stage.target.title}"


def _stored_text(facts: TopicFacts) -> str:
    total = sum(each.bytes for each in facts.stored.values())
    by_format: dict[str, int] = {}
    for (form, _), each in sorted(facts.stored.items(), key=lambda item: item[0][0].value):
        by_format[form.title] = by_format.get(form.title, 0) + each.bytes
    shares = ", ".join(f"{form}: {100 * size / total:.0f}%" for form, size in by_format.items())
    return shares + (" (samples)" if facts.shares and shares else "") or "-"


def _step_text(found: TopicPlan) -> str:
    stage = found.stage
    if stage.step.name == "SET_FORMAT":
        return f"message.format.version={stage.target.value}"
    return stage.step.value


def _leaves_text(found: TopicPlan) -> str:
    if found.leaves_ms is None:
        return "never" if found.leaves is False else "not known"
    return time_text(found.leaves_ms)[:16] if found.leaves_ms else "-"


def _details(topic_plan: TopicPlan) -> list[str]:
    lines = []
    for use in topic_plan.uses:
        does = f"reads up to {use.format.title}, Fetch" if use.is_consumer else f"sends {use.format.title}, Produce"
        software = f" ({use.software})" if use.software else ""
        converted = f", {use.converted / use.seconds:.1f} records/s converted" if use.converted else ""
        behind = "  <- before the next step" if use in topic_plan.stage.who else ""
        lines.append(
            f"{use.client_id or 'without a client id'}{software} {does} v{use.request_version}: "
            f"{size_text(use.bytes_per_s)}/s{converted}{behind}"
        )
    for group, members in topic_plan.facts.members.items():
        lines.append(f"group {group}: {many(len(members), 'client')}: {', '.join(sorted(members))}")
    if topic_plan.now is not None and topic_plan.after is not None:
        lines.append(f"now:   {_estimate_text(topic_plan.now)}")
        lines.append(
            f"after: {_estimate_text(topic_plan.after)}, {size_text(topic_plan.after.memory_bytes or 0)} more memory"
        )
    return lines


def _estimate_text(found: Estimate) -> str:
    return (
        f"{found.cpu_s:.4f} of a core, {found.converted_records:.0f} records/s converted, "
        f"{size_text(found.zero_copy_bytes)}/s without a copy, {size_text(found.converted_bytes)}/s with"
    )
