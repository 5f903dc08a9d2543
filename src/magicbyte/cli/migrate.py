"""`magicbyte migrate`: check an upgrade of a cluster, and show and take the steps of a format migration."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from magicbyte.cli.base import CommandGroup
from magicbyte.cli.brokers import bootstrap_option, client_of
from magicbyte.cli.canary import canary
from magicbyte.cli.client_settings import client_options
from magicbyte.cli.client_sources import ClientSources, clients_options
from magicbyte.cli.options import FormatName, OutputPath, format_option
from magicbyte.cli.output import bad, complain, doubtful, good, say, say_json
from magicbyte.cli.plan import PlanOptions, format_text, made_plan, plan_text, stored_facts
from magicbyte.cli.render import table_lines
from magicbyte.clock import SystemClock
from magicbyte.public.sources import explained

if TYPE_CHECKING:
    from magicbyte.cli.options import F
    from magicbyte.migration.check import Check, UpgradeFinding
    from magicbyte.migration.planner import MigrationPlan, TopicFacts
    from magicbyte.migration.procedure import Instruction
    from magicbyte.migration.rollback import RollBack
    from magicbyte.migration.sightings import Sightings
    from magicbyte.migration.status import BrokerFacts, ClusterStage, OldClient
    from magicbyte.records.encode import Format
    from magicbyte.releases import Release

BREAKS = 1
_DAY_MS = 86_400_000
_LOOKS = 8  # sampled offsets of a partition before its format is set


@click.group(cls=CommandGroup)
def migrate() -> None:
    """Check what an upgrade of a cluster would break; show and take the steps of a format migration."""


migrate.add_command(canary)


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
@click.option("--days", type=click.IntRange(1, 36_500), metavar="N",
              help="Only clients with a request in the last N days, or without a date.")  # fmt: skip
@click.option("--html", type=OutputPath(), metavar="FILE", help="Also write an HTML page.")
@format_option
def check(form: str, html: Path | None, target: str, **given: Any) -> None:
    """Show which clients, settings and stored formats a release of Kafka refuses or changes, and the remedies.

    With -b: settings, stored formats and, of magicbyte brokers with --http, all clients. Clients of Kafka's own brokers
    are known from --request-log, --capture and --metrics. Exit status: 0 nothing breaks, 1 something does, 2 wrong use.
    """
    from magicbyte.log.files.outputs import put_whole, refuse_overlap
    from magicbyte.migration.check_page import html_page
    from magicbyte.migration.sightings import Sightings

    asked = _Asked(release=_release(target), **given)
    if not (asked.bootstrap or asked.sources):
        raise click.UsageError("expected -b HOST:PORT, --request-log FILE, --capture FILE or --metrics URL")
    if html is not None:
        refuse_overlap(html, asked.sources.files)
    sightings = Sightings()
    notes = asked.sources.read_files(sightings)
    report = asyncio.run(_check(asked, sightings, notes))
    if html is not None:
        put_whole(html, html_page(report).encode())
    if form == "json":
        say_json(report.to_json())
    else:
        say(*_text(report))
    click.get_current_context().exit(BREAKS if report.breaks else 0)


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
    from magicbyte.releases import release_meant

    try:
        release = release_meant(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--to") from error
    if not release.is_since("3.0"):
        raise click.BadParameter(f"{text}: expected 3.0 or later", param_hint="--to")
    return release


async def _check(asked: _Asked, sightings: Sightings, of_files: Sequence[str]) -> Check:
    """Check the cluster and the clients. `sightings`, `of_files`: the requests in files, and notes on them."""
    from magicbyte.migration import look
    from magicbyte.migration.check import Facts, check
    from magicbyte.migration.sightings import CLIENT_ID

    facts, notes, pages = Facts(), list[str](), list[str]()
    if asked.bootstrap is not None:
        with explained("migrate check", "brokers from 0.8.2 on can be asked"):
            async with client_of(asked.bootstrap, client_id=CLIENT_ID) as client:
                facts, notes, pages = await look.look_at_cluster(client, asked.topics, asked.looks)
    facts.sightings = sightings
    notes += [*await asked.sources.look_at_pages(sightings, pages), *of_files]
    if asked.days is not None:
        now_ms = SystemClock().now_ms()  # both are dates
        if count := facts.sightings.forget_before(now_ms - asked.days * _DAY_MS):
            notes.append(f"{count} kinds of requests are left out: the last was more than {asked.days} days ago")
    if not len(facts.sightings):
        notes.append(
            "clients are not known: that takes --http of magicbyte brokers, --request-log, --capture or --metrics"
        )
    return check(facts, asked.release, notes)


def _text(report: Check) -> Iterator[str]:
    from magicbyte.migration.check import Weight

    for each in report.findings:
        line = f"{each.weight.value.upper()} {each.kind} {each.subject}"
        yield bad(line) if each.weight is Weight.BREAKS else doubtful(line)
        yield f"  {each.what}"
        yield from (f"  {refused.text}" for refused in each.refused)
        yield f"  -> {each.do}"
    verdict = f"Kafka {report.target}: {_sum(report.findings)}; looked at {report.looked_at}"
    yield bad(verdict) if report.breaks else good(verdict)
    yield from (f"note: {each}" for each in report.notes)


def _sum(findings: tuple[UpgradeFinding, ...]) -> str:
    from magicbyte.migration.check import Weight

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
    format_option,
)  # fmt: skip


@migrate.command(examples=("magicbyte migrate status -b localhost:9092 --to v2",))
@look_options
def status(form: str, sources: ClientSources, **given: Any) -> None:
    """Show the stage of a cluster in the two-phase migration to a format: brokers, old clients, topics, next step.

    Exit status: 0 sound, 1 conflicting settings, 2 wrong use.
    """
    found = _status(PlanOptions(http=None, settings={}, **given), sources)
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

    def to_json(self) -> dict[str, Any]:
        return {
            **self.stage.to_json(),
            "clusterBrokers": [each.to_json() for each in self.brokers],
            "oldClients": [each.to_json() for each in self.clients],
            "plan": self.plan.to_json(),
            "notes": list(self.notes),
        }


def _status(asked: PlanOptions, sources: ClientSources) -> _MigrationStatus:
    from magicbyte.migration.sightings import Sightings

    sightings = Sightings()
    notes = sources.read_files(sightings)
    return asyncio.run(_status_of_cluster(asked, sources, sightings, notes, stored_facts(asked)))


async def _status_of_cluster(
    asked: PlanOptions,
    sources: ClientSources,
    sightings: Sightings,
    of_files: Sequence[str],
    stored: Mapping[str, TopicFacts],
) -> _MigrationStatus:
    """Return the status. `sightings`, `of_files`: requests in files, and notes on them. `stored`: by `stored_facts`."""
    from magicbyte.migration import look, planner
    from magicbyte.migration.sightings import CLIENT_ID
    from magicbyte.migration.status import old_clients, stage_of_cluster, target_of

    assert asked.bootstrap is not None, "-b is required"
    with explained("migrate status", "brokers from 0.8.2 on can be asked"):
        async with client_of(asked.bootstrap, client_id=CLIENT_ID) as client:
            brokers = await look.look_at_brokers(client)
            notes = list[str]()
            own = [f"http://{each}/metrics" for each in await planner.metrics_addresses(client, notes)]
    notes += [*await sources.look_at_pages(sightings, own), *of_files]
    plan = await made_plan(asked, stored)
    stages = [each.stage for each in plan.topics]
    target = target_of(stages, asked.target)
    return _MigrationStatus(
        stage_of_cluster(brokers, stages, target), brokers, old_clients(sightings, target), plan, notes
    )


def _status_text(status: _MigrationStatus) -> Iterator[str]:
    stage = status.stage
    yield _stage_text(stage)
    yield from (f"DANGER {each}" for each in stage.dangers)
    yield ""
    yield from table_lines([["broker", "address", "software", "knows", "protocol", "format"],
                            *(_broker_row(each) for each in status.brokers)], left={1, 2, 3, 4, 5})  # fmt: skip
    if status.clients:
        yield from ("", f"clients before format {stage.target.title}:", *(f"  {each.text}" for each in status.clients))
    yield ""
    yield from plan_text(status.plan)
    yield from (f"note: {each}" for each in status.notes)


def _stage_text(stage: ClusterStage) -> str:
    about = f" (brokers {', '.join(map(str, stage.brokers))})" if stage.brokers else ""
    return f"to format {stage.target.title}: {stage.phase.value}; next: {stage.step.value}{about}"


def _broker_row(broker: BrokerFacts) -> list[str]:
    protocol = "none" if broker.has_no_protocol else broker.to_json()["protocol"] or "-"
    return [
        str(broker.id),
        broker.address,
        broker.software,
        format_text(broker.knows),
        protocol,
        format_text(broker.format),
    ]


# ---- next and apply


@migrate.command("next", examples=("magicbyte migrate next -b localhost:9092 --to v2",))
@look_options
@click.option("--wait", type=click.FloatRange(0, 604_800), metavar="SECONDS",
              help="Wait at most this long until the brokers have been restarted, and check the step.")  # fmt: skip
def next_step(wait: float | None, form: str, sources: ClientSources, **given: Any) -> None:
    """Print the next step of a migration as a procedure. Nothing is changed.

    Exit status: 0; 1 if --wait ended before the step was done, or found conflicting settings.
    """
    from magicbyte.migration.procedure import procedure

    asked = PlanOptions(http=None, settings={}, **given)
    status = _status(asked, sources)
    topics = {each.facts.name: each.stage for each in status.plan.topics}
    steps = procedure(status.stage, status.brokers, topics, asked.bootstrap or "")
    printed: dict[str, Any] = {**status.stage.to_json(), "steps": [each.to_json() for each in steps]}
    if form == "text":
        say(_stage_text(status.stage))
        say(*_numbered(steps))
    is_well = True
    if wait is not None:
        is_well, waited = _waited(asked, status, wait, form, sources)
        printed |= waited
    if form == "json":
        say_json(printed)
    click.get_current_context().exit(0 if is_well else BREAKS)


def _waited(
    asked: PlanOptions, status: _MigrationStatus, seconds: float, form: str, sources: ClientSources
) -> tuple[bool, dict[str, Any]]:
    """Wait for the restarts of a step. Return whether it succeeded, and its JSON."""
    from magicbyte.cli.migrate_wait import wait_for
    from magicbyte.migration.waiting import RESTARTS

    if status.stage.step not in RESTARTS:
        complain(f"{status.stage.step.value}: no broker is restarted for it, there is nothing to wait for")
        return True, {}
    assert asked.bootstrap is not None, "-b is required"
    progress = asyncio.run(wait_for(asked.bootstrap, status.stage, [each.id for each in status.brokers], seconds))
    waited: dict[str, Any] = {"waited": progress.to_json()}
    if not progress.is_done:
        complain(f"not done after {seconds:g} s: {progress.text}")
        return False, waited
    now = _status(asked, sources).stage
    if form == "text":
        say(f"done; {_stage_text(now)}", *(f"DANGER {each}" for each in now.dangers))
    return not now.dangers, {**waited, "then": now.to_json()}


@migrate.command(examples=("magicbyte migrate apply -b localhost:9092 --topic orders --to v2",))
@bootstrap_option
@click.option("--to", "target", type=FormatName(), required=True, help="The format that new records are stored in.")
@click.option("--topic", "topics", multiple=True, required=True, help="The topic. Can be given several times.")
@clients_options
@click.option("--force", is_flag=True, help="Set it despite the reasons against it.")
def apply(bootstrap: str, sources: ClientSources, target: Format, topics: tuple[str, ...], *, force: bool) -> None:
    """Set topics' message.format.version, unless that would break or cost something.

    Exit status: 0 done, 1 refused or not applied by the brokers, 2 wrong use.
    """
    asked = PlanOptions(bootstrap, (), None, 0, topics, target, 0, _LOOKS, {})
    found = _status(asked, sources)
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
    from magicbyte.migration.procedure import objections

    against = [
        f"{name}: it is enriched" for name in topics if name not in {each.facts.name for each in status.plan.topics}
    ]
    for each in status.plan.topics:
        stored = {form for form, _ in each.facts.stored}
        against += objections(status.brokers, status.clients, each.stage, stored, target)
    return list(dict.fromkeys(against))


async def _set_format(bootstrap: str, topics: Iterable[str], target: Format) -> bool:
    """Set the format of topics. Return whether the brokers have applied it. Raises BrokerError."""
    from magicbyte.client.admin import ConfigResource, alter_configs, describe_configs
    from magicbyte.log.append.rules import stored_format
    from magicbyte.migration.procedure import FORMAT
    from magicbyte.migration.sightings import CLIENT_ID
    from magicbyte.releases import MAGIC_NAMES

    done = True
    with explained("migrate apply", "brokers from 0.11 on change settings"):
        async with client_of(bootstrap, client_id=CLIENT_ID) as client:
            for topic in topics:
                await alter_configs(client, ConfigResource.TOPIC, topic, {FORMAT: MAGIC_NAMES[int(target.value)]})
                setting = (await describe_configs(client, ConfigResource.TOPIC, topic)).get(FORMAT)
                if setting is None or setting.value is None or stored_format(setting.value) != target:
                    complain(f"{topic}: the brokers have not applied {FORMAT}")
                    done = False
    return done


# ---- rollback


@migrate.command(examples=("magicbyte migrate rollback -b localhost:9092 --broker 2 --to v1",))
@bootstrap_option
@click.option("--broker", type=click.IntRange(0), required=True, metavar="ID", help="The canary.")
@click.option("--to", "target", type=FormatName(), required=True, help="The format to return to.")
@click.option("--looks", type=click.IntRange(1, 10_000), default=32, show_default=True,
              help="Offsets of a partition to sample for the new format.")  # fmt: skip
@click.option("--force", is_flag=True, help="Print the procedure despite the reasons against it.")
@format_option
def rollback(bootstrap: str, broker: int, target: Format, looks: int, form: str, *, force: bool) -> None:
    """Print the roll-back of a canary to an older format, and what it would lose. Nothing is changed.

    Exit status: 0 it can be rolled back, 1 it would lose records or have no effect, 2 wrong use.
    """
    plan = asyncio.run(_roll_back(bootstrap, broker, target, looks))
    if form == "json":
        say_json(plan.to_json())
    else:
        for reason in plan.refused:
            complain(f"{'overridden' if force else 'refused'}: {reason}")
        for name, others in plan.spread.items():
            say(f"{name}: the copies on brokers {', '.join(map(str, others))} hold the new format, too")
        if force or not plan.refused:
            say(*_numbered(plan.steps))
    click.get_current_context().exit(BREAKS if plan.refused and not force else 0)


async def _roll_back(bootstrap: str, broker: int, target: Format, looks: int) -> RollBack:
    from magicbyte.migration import look
    from magicbyte.migration.rollback import roll_back
    from magicbyte.migration.sightings import CLIENT_ID

    with explained("migrate rollback", "brokers from 0.8.2 on can be asked"):
        async with client_of(bootstrap, client_id=CLIENT_ID) as client:
            brokers = await look.look_at_brokers(client)
            canary = next((each for each in brokers if each.id == broker), None)
            if canary is None:
                known = ", ".join(str(each.id) for each in brokers)
                raise click.BadParameter(f"no broker {broker} is alive: expected one of {known}", param_hint="--broker")
            led = await look.look_at_led(client, broker, looks)
    return roll_back(canary, brokers, led, target, bootstrap)


def _numbered(steps: Iterable[Instruction]) -> Iterator[str]:
    for number, step in enumerate(steps, 1):
        yield f"{number}. {step.do}"
        if step.command is not None:
            yield f"   {step.command}"
