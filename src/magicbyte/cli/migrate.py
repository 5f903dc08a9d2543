"""`magicbyte migrate`: check an upgrade of a cluster, and show and take the steps of a format migration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from magicbyte.access.clock import SystemClock
from magicbyte.cli.base import CommandGroup
from magicbyte.cli.brokers import bootstrap_option, client_of
from magicbyte.cli.canary import canary
from magicbyte.cli.client_settings import client_options
from magicbyte.cli.client_sources import ClientSources, clients_options
from magicbyte.cli.options import FormatName, OutputPath, format_option, key_values
from magicbyte.cli.output import bad, complain, doubtful, good, say, say_json
from magicbyte.cli.plan import (
    PlanOptions,
    format_text,
    given_option,
    made_plan,
    plan_evidence,
    plan_text,
    stored_facts,
    topic_settings,
)
from magicbyte.cli.render import table_lines
from magicbyte.public.sources import explained

if TYPE_CHECKING:
    from magicbyte.cli.options import F
    from magicbyte.engine.records.encode import Format
    from magicbyte.engine.releases import Release
    from magicbyte.tools.migration.brokers import GivenSettings
    from magicbyte.tools.migration.check import Check, UpgradeFinding
    from magicbyte.tools.migration.evidence import ClientSource, Unknown
    from magicbyte.tools.migration.planner import MigrationPlan, TopicFacts
    from magicbyte.tools.migration.procedure import Instruction
    from magicbyte.tools.migration.rollback import RollBack
    from magicbyte.tools.migration.sightings import Sightings
    from magicbyte.tools.migration.status import BrokerFacts, ClusterStage, OldClient

BREAKS = 1
NOT_KNOWN = 2
_DAY_MS = 86_400_000
_LOOKS = 8  # sampled offsets of a partition before its format is set


@click.group(cls=CommandGroup)
def migrate() -> None:
    """Check what an upgrade of a cluster would break; show and take the steps of a format migration."""


migrate.add_command(canary)


def days_option(command: F) -> F:
    """Add --days: an int or None."""
    return click.option("--days", type=click.IntRange(1, 36_500), metavar="N",
                        help="Only clients with a request in the last N days, or without a date.")(command)  # fmt: skip


@migrate.command(examples=("magicbyte migrate check -b localhost:9092 --to 4",))
@click.option("-b", "--bootstrap", "--bootstrap-server", "bootstrap", metavar="HOST:PORT[,…]",
              help="Brokers of the cluster, of any version.")  # fmt: skip
@client_options
@click.option("--to", "target", default="4", show_default=True, metavar="RELEASE",
              help="The target release, 3.0 or later; 4 stands for the latest known 4.x.")  # fmt: skip
@clients_options
@click.option("--topic", "topics", multiple=True, help="Only this topic. Can be given several times.")
@click.option("--looks", type=click.IntRange(0, 10_000), default=32, show_default=True,
              help="Offsets of a partition to sample for old formats.")  # fmt: skip
@days_option
@click.option("--html", type=OutputPath(), metavar="FILE", help="Also write an HTML page.")
@format_option
def check(form: str, html: Path | None, target: str, **given: Any) -> None:
    """Show which clients, settings and stored formats a release of Kafka refuses or changes, and the remedies.

    With -b: settings, stored formats and, of magicbyte brokers with http.address, all clients. Clients of Kafka's own
    brokers are known from --request-log, --capture and --metrics. Exit status: 0 nothing breaks, 1 something does, 2
    not known, for what is named, or wrong use.
    """
    from magicbyte.engine.log.files.outputs import put_whole, refuse_overlap
    from magicbyte.tools.migration.check_page import html_page
    from magicbyte.tools.migration.sightings import Sightings

    asked = _Asked(release=_release(target), **given)
    if not (asked.bootstrap or asked.sources):
        raise click.UsageError("expected -b HOST:PORT, --request-log FILE, --capture FILE or --metrics URL")
    if html is not None:
        refuse_overlap(html, asked.sources.files)
    sightings = Sightings()
    report = asyncio.run(_check(asked, sightings, asked.sources.read_files(sightings)))
    if html is not None:
        put_whole(html, html_page(report).encode())
    if form == "json":
        say_json(report.to_json())
    else:
        say(*_text(report))
    click.get_current_context().exit(exit_status(report))


def exit_status(report: Check) -> int:
    """Return the exit status of `check`."""
    from magicbyte.tools.migration.check import Verdict

    return {Verdict.BREAKS: BREAKS, Verdict.UNKNOWN: NOT_KNOWN, Verdict.NOTHING: 0}[report.verdict]


@dataclass(frozen=True, slots=True)
class _Asked:
    """The options of `check`, by name."""

    release: Release
    bootstrap: str | None
    sources: ClientSources
    topics: tuple[str, ...]
    looks: int
    days: int | None


def _release(text: str) -> Release:
    from magicbyte.engine.releases import release_meant

    try:
        release = release_meant(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--to") from error
    if not release.is_since("3.0"):
        raise click.BadParameter(f"{text}: expected 3.0 or later", param_hint="--to")
    return release


async def _check(asked: _Asked, sightings: Sightings, files: Sequence[ClientSource]) -> Check:
    """Check the cluster and the clients. `sightings`: the requests in `files`."""
    from magicbyte.tools.migration import look
    from magicbyte.tools.migration.check import Facts, check
    from magicbyte.tools.migration.evidence import silent_brokers, unknown_clients
    from magicbyte.tools.migration.sightings import CLIENT_ID

    cluster = look.ClusterLook(Facts(), [], {})
    if asked.bootstrap is not None:
        with explained("migrate check", "brokers from 0.8.2 on can be asked"):
            async with client_of(asked.bootstrap, client_id=CLIENT_ID) as client:
                cluster = await look.look_at_cluster(client, asked.topics, asked.looks)
    facts, notes = cluster.facts, cluster.notes
    facts.sightings = sightings
    pages = [f"http://{page}/metrics" for page in cluster.pages.values()]
    sources = [*await asked.sources.look_at_pages(sightings, pages), *files]
    notes += _forgotten(sightings, asked.days)
    silent = silent_brokers(map(int, facts.brokers), cluster.pages, is_told=bool(asked.sources))
    facts.unknown += unknown_clients(sources, silent, has_clients=sightings.has_clients)
    notes += [source.note for source in sources if source.note is not None]
    return check(facts, asked.release, notes)


def _forgotten(sightings: Sightings, days: int | None) -> list[str]:
    """Forget clients whose last request is more than `days` days old, and return a note on them."""
    if days is None:
        return []
    now_ms = SystemClock().now_ms()  # both are dates
    count = sightings.forget_before(now_ms - days * _DAY_MS)
    return [f"{count} kinds of requests are left out: the last was more than {days} days ago"] if count else []


def _text(report: Check) -> Iterator[str]:
    from magicbyte.tools.migration.check import Verdict, Weight

    for each in report.findings:
        line = f"{each.weight.value.upper()} {each.kind} {each.subject}"
        yield bad(line) if each.weight is Weight.BREAKS else doubtful(line)
        yield f"  {each.what}"
        yield from (f"  {refused.text}" for refused in each.refused)
        yield f"  -> {each.do}"
    verdict = f"Kafka {report.target}: {report.verdict.value}: {_sum(report.findings)}; looked at {report.looked_at}"
    yield {Verdict.BREAKS: bad, Verdict.UNKNOWN: doubtful, Verdict.NOTHING: good}[report.verdict](verdict)
    yield from (f"note: {each}" for each in report.notes)


def _sum(findings: tuple[UpgradeFinding, ...]) -> str:
    from magicbyte.tools.migration.check import Weight

    counts = {weight: sum(each.weight is weight for each in findings) for weight in Weight}
    return (
        f"{counts[Weight.BREAKS]} would break, {counts[Weight.CHANGES]} would change, "
        f"{counts[Weight.UNKNOWN]} not known"
    )


# ---- status


def look_options(command: F) -> F:
    """Add the options of `status` and `next` that collect facts: those of `PlanOptions` without http and settings."""
    for option in reversed(_LOOK_OPTIONS):
        command = option(command)
    return command


_LOOK_OPTIONS = (
    bootstrap_option,
    click.option("--to", "target", type=FormatName(), help="The format to go to.  [default: the next]"),
    click.option("--dir", "directories", type=click.Path(exists=True, path_type=Path), multiple=True, metavar="DIR",
                 help="A log directory: stored formats are then exact, not sampled. Can be given several times."),
    clients_options,
    click.option("--window", type=click.FloatRange(0, 3600), default=0, metavar="SECONDS",
                 show_default="since its start", help="How long to watch the metrics of brokers."),
    click.option("--topic", "topics", multiple=True, help="Only this topic. Can be given several times."),
    click.option("--rehearse", type=click.IntRange(0), default=4, show_default=True, metavar="TOPICS",
                 help="Rehearse the step for N topics, the busiest first; some seconds each."),
    click.option("--looks", type=click.IntRange(1, 10_000), default=32, show_default=True,
                 help="Offsets of a partition to sample without --dir."),
    given_option,
    days_option,
    format_option,
    topic_settings,
)  # fmt: skip


@migrate.command(examples=("magicbyte migrate status -b localhost:9092 --to v2",))
@look_options
def status(form: str, sources: ClientSources, days: int | None, settings: tuple[str, ...], **given: Any) -> None:
    """Show the stage of a cluster in the two-phase migration to a format: brokers, old clients, topics, next step.

    What is not known is named; a step that depends on it is to find it out. KEY=VALUE are settings of topics that no
    broker returns. Exit status: 0 no conflicting settings were found, 1 some were, 2 wrong use or no answer.
    """
    found = _status(PlanOptions(http=None, settings=key_values(settings), **given), sources, days)
    if form == "json":
        say_json(found.to_json())
    else:
        say(*_status_text(found))
    click.get_current_context().exit(BREAKS if found.stage.dangers else 0)


@dataclass(frozen=True, slots=True)
class _MigrationStatus:
    stage: ClusterStage
    brokers: Sequence[BrokerFacts]
    clients: Sequence[OldClient]
    plan: MigrationPlan
    notes: Sequence[str]
    unknown_clients: Sequence[Unknown]

    def to_json(self) -> dict[str, Any]:
        return {
            **self.stage.to_json(),
            "clusterBrokers": [broker.to_json() for broker in self.brokers],
            "oldClients": [each.to_json() for each in self.clients],
            "plan": self.plan.to_json(),
            "notes": list(self.notes),
        }


def _status(asked: PlanOptions, sources: ClientSources, days: int | None) -> _MigrationStatus:
    from magicbyte.tools.migration.sightings import Sightings

    sightings = Sightings()
    files = sources.read_files(sightings)
    return asyncio.run(_status_of_cluster(asked, sources, sightings, files, stored_facts(asked), days))


async def _status_of_cluster(
    asked: PlanOptions,
    sources: ClientSources,
    sightings: Sightings,
    files: Sequence[ClientSource],
    stored: Mapping[str, TopicFacts],
    days: int | None,
) -> _MigrationStatus:
    """Return the status. `sightings`: the requests in `files`. `stored`: by `stored_facts`."""
    from magicbyte.tools.migration.evidence import silent_brokers, unknown_clients
    from magicbyte.tools.migration.status import old_clients, stage_of_cluster, target_of

    evidence = await plan_evidence(asked, stored)
    assert evidence.brokers is not None, "-b is required"
    pages = [f"http://{page}/metrics" for page in evidence.pages.values()]
    read = [*await sources.look_at_pages(sightings, pages), *files]
    notes = [*_forgotten(sightings, days), *(source.note for source in read if source.note is not None)]
    silent = silent_brokers((broker.id for broker in evidence.brokers), evidence.pages, is_told=bool(sources))
    unknown = unknown_clients(read, silent, has_clients=sightings.has_clients)
    plan = await made_plan(asked, evidence, knows_clients=not unknown)
    stages = [each.stage for each in plan.topics]
    target = target_of(stages, asked.target)
    clients = old_clients(sightings, target)
    stage = stage_of_cluster(evidence.brokers, stages, target, clients, unknown)
    return _MigrationStatus(stage, evidence.brokers, clients, plan, notes, unknown)


def _status_text(status: _MigrationStatus) -> Iterator[str]:
    stage = status.stage
    yield _stage_text(stage)
    yield from (f"DANGER {each}" for each in stage.dangers)
    yield ""
    yield from table_lines([["broker", "address", "software", "knows", "protocol", "format"],
                            *(_broker_row(broker) for broker in status.brokers)], left={1, 2, 3, 4, 5})  # fmt: skip
    if status.clients:
        yield from ("", f"clients before format {stage.target.title}:", *(f"  {each.text}" for each in status.clients))
    if stage.unknown:
        yield from ("", "not known:", *(f"  {each.text}" for each in stage.unknown))
    yield ""
    yield from plan_text(status.plan)
    yield from (f"note: {each}" for each in status.notes)


def _stage_text(stage: ClusterStage) -> str:
    about = f" (brokers {', '.join(map(str, stage.brokers))})" if stage.brokers else ""
    return f"to format {stage.target.title}: {stage.phase.value}; next: {stage.step.value}{about}"


def _broker_row(broker: BrokerFacts) -> list[str]:
    from magicbyte.tools.migration.status import FORMAT, PROTOCOL

    protocol = "none" if broker.has_no_protocol else broker.to_json()["protocol"] or "not known"
    form = "none" if broker.has_no_protocol else "not known" if broker.format is None else broker.format.title
    return [
        str(broker.id),
        broker.address,
        broker.software,
        format_text(broker.knows),
        protocol + (" (given)" if PROTOCOL in broker.given else ""),
        form + (" (given)" if FORMAT in broker.given else ""),
    ]


# ---- next and apply


@migrate.command("next", examples=("magicbyte migrate next -b localhost:9092 --to v2",))
@look_options
@click.option("--wait", type=click.FloatRange(0, 604_800), metavar="SECONDS",
              help="Wait at most this long until the brokers have been restarted, and check the step.")  # fmt: skip
def next_step(
    wait: float | None, form: str, sources: ClientSources, days: int | None, settings: tuple[str, ...], **given: Any
) -> None:
    """Print the next step of a migration as a procedure. Nothing is changed.

    A step that depends on something unknown is to find it out. KEY=VALUE are settings of topics that no broker
    returns. Exit status: 0; 1 if --wait ended before the step was done, or found conflicting settings.
    """
    from magicbyte.tools.migration.procedure import procedure

    asked = PlanOptions(http=None, settings=key_values(settings), **given)
    status = _status(asked, sources, days)
    topics = {each.facts.name: each.stage for each in status.plan.topics}
    steps = procedure(status.stage, status.brokers, topics, asked.bootstrap or "", status.clients)
    printed: dict[str, Any] = {**status.stage.to_json(), "steps": [each.to_json() for each in steps]}
    if form == "text":
        say(_stage_text(status.stage))
        say(*_numbered(steps))
    is_well = True
    if wait is not None:
        is_well, waited = _waited(asked, status, wait, form, lambda: _status(asked, sources, days))
        printed |= waited
    if form == "json":
        say_json(printed)
    click.get_current_context().exit(0 if is_well else BREAKS)


def _waited(
    asked: PlanOptions,
    status: _MigrationStatus,
    seconds: float,
    form: str,
    look_again: Callable[[], _MigrationStatus],
) -> tuple[bool, dict[str, Any]]:
    """Wait for the restarts of a step. Return whether it succeeded, and its JSON."""
    from magicbyte.cli.migrate_wait import wait_for
    from magicbyte.tools.migration.waiting import RESTARTS

    if status.stage.step not in RESTARTS:
        complain(f"{status.stage.step.value}: no broker is restarted for it, there is nothing to wait for")
        return True, {}
    assert asked.bootstrap is not None, "-b is required"
    progress = asyncio.run(wait_for(asked.bootstrap, status.stage, [broker.id for broker in status.brokers], seconds))
    waited: dict[str, Any] = {"waited": progress.to_json()}
    if not progress.is_done:
        complain(f"{'not known' if progress.is_over else f'not done after {seconds:g} s'}: {progress.text}")
        return False, waited
    now = look_again().stage
    if form == "text":
        say(f"done; {_stage_text(now)}", *(f"DANGER {each}" for each in now.dangers))
    return not now.dangers, {**waited, "then": now.to_json()}


@migrate.command(examples=("magicbyte migrate apply -b localhost:9092 --topic orders --to v2",))
@bootstrap_option
@click.option("--to", "target", type=FormatName(), required=True, help="The format that new records are stored in.")
@click.option("--topic", "topics", multiple=True, required=True, help="The topic. Can be given several times.")
@clients_options
@given_option
@days_option
@click.option("--force", is_flag=True, help="Set it despite the reasons against it.")
def apply(
    bootstrap: str,
    sources: ClientSources,
    broker_settings: GivenSettings,
    target: Format,
    topics: tuple[str, ...],
    days: int | None,
    *,
    force: bool,
) -> None:
    """Set topics' message.format.version, unless that would break or cost something, or the effect is not known.

    Exit status: 0 done, 1 refused or not applied by the brokers, 2 wrong use.
    """
    asked = PlanOptions(bootstrap, (), None, 0, topics, target, 0, _LOOKS, {}, broker_settings)
    found = _status(asked, sources, days)
    against = _against(found, topics, target)
    for objection in against:
        complain(f"{'overridden' if force else 'refused'}: {objection}")
    if against and not force:
        complain("nothing was changed; --force overrides this")
    elif asyncio.run(_set_format(bootstrap, topics, target)):
        say(
            f"new records of {', '.join(topics)} are stored in format {target.title}; "
            "magicbyte migrate status shows the rest"
        )
        return
    click.get_current_context().exit(BREAKS)


def _against(status: _MigrationStatus, topics: Iterable[str], target: Format) -> list[str]:
    from magicbyte.tools.migration.procedure import objections

    against = [
        f"{name}: it is enriched" for name in topics if name not in {each.facts.name for each in status.plan.topics}
    ]
    for each in status.plan.topics:
        against += objections(status.brokers, status.clients, each, target, status.unknown_clients)
    return list(dict.fromkeys(against))


async def _set_format(bootstrap: str, topics: Iterable[str], target: Format) -> bool:
    """Set the format of topics. Return whether the brokers have applied it. Raises BrokerError."""
    from magicbyte.access.client.admin import ConfigResource, alter_configs, describe_configs
    from magicbyte.engine.log.append.rules import stored_format
    from magicbyte.engine.releases import MAGIC_NAMES
    from magicbyte.tools.migration.procedure import TOPIC_FORMAT
    from magicbyte.tools.migration.sightings import CLIENT_ID

    done = True
    with explained("migrate apply", "brokers from 0.11 on change settings"):
        async with client_of(bootstrap, client_id=CLIENT_ID) as client:
            for topic in topics:
                await alter_configs(client, ConfigResource.TOPIC, topic, {TOPIC_FORMAT: MAGIC_NAMES[int(target.value)]})
                setting = (await describe_configs(client, ConfigResource.TOPIC, topic)).get(TOPIC_FORMAT)
                if setting is None or setting.value is None or stored_format(setting.value) != target:
                    complain(f"{topic}: the brokers have not applied {TOPIC_FORMAT}")
                    done = False
    return done


# ---- rollback


@migrate.command(examples=("magicbyte migrate rollback -b localhost:9092 --broker 2 --to v1",))
@bootstrap_option
@click.option("--broker", type=click.IntRange(0), required=True, metavar="ID", help="The canary.")
@click.option("--to", "target", type=FormatName(), required=True, help="The format to return to.")
@click.option("--looks", type=click.IntRange(1, 10_000), default=32, show_default=True,
              help="Offsets of a partition to sample for the new format.")  # fmt: skip
@given_option
@click.option("--force", is_flag=True, help="Print the procedure despite the reasons against it.")
@format_option
def rollback(
    bootstrap: str,
    broker: int,
    target: Format,
    looks: int,
    broker_settings: GivenSettings,
    form: str,
    *,
    force: bool,
) -> None:
    """Print the roll-back of a canary to an older format, and what it would lose. Nothing is changed.

    Exit status: 0 it can be rolled back, 1 it would lose records or have no effect, 2 wrong use.
    """
    plan = asyncio.run(_roll_back(bootstrap, broker, target, looks, broker_settings))
    if form == "json":
        say_json(plan.to_json())
    else:
        for reason in plan.refused:
            complain(f"{'overridden' if force else 'refused'}: {reason}")
        for name, others in plan.spread.items():
            say(f"{name}: the copies on brokers {', '.join(map(str, others))} hold the new format, too")
        for name, others in plan.unknown.items():
            say(f"{name}: the formats of the copies on brokers {', '.join(map(str, others))} are not known")
        if force or not plan.refused:
            say(*_numbered(plan.steps))
    click.get_current_context().exit(BREAKS if plan.refused and not force else 0)


async def _roll_back(
    bootstrap: str, broker: int, target: Format, looks: int, broker_settings: GivenSettings
) -> RollBack:
    from magicbyte.tools.migration import look
    from magicbyte.tools.migration.brokers import look_at_brokers
    from magicbyte.tools.migration.rollback import roll_back
    from magicbyte.tools.migration.sightings import CLIENT_ID

    with explained("migrate rollback", "brokers from 0.8.2 on can be asked"):
        async with client_of(bootstrap, client_id=CLIENT_ID) as client:
            brokers = await look_at_brokers(client, broker_settings)
            canary = next((each for each in brokers if each.id == broker), None)
            if canary is None:
                known = ", ".join(str(each.id) for each in brokers)
                raise click.BadParameter(f"no broker {broker} is alive: expected one of {known}", param_hint="--broker")
            led = await look.look_at_led(client, broker, looks, target)
    return roll_back(canary, brokers, led, target, bootstrap)


def _numbered(steps: Iterable[Instruction]) -> Iterator[str]:
    for number, step in enumerate(steps, 1):
        yield f"{number}. {step.do}"
        if step.command is not None:
            yield f"   {step.command}"
