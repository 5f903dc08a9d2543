"""Serve /metrics and /health over HTTP. docs/reference/metrics.md lists every name."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from magicbyte.access.net.descriptors import for_pages, limit
from magicbyte.access.net.exposition import Family, counter, disk_bytes, gauge, health_page, metrics_page
from magicbyte.access.net.http import Page, Pages
from magicbyte.access.security.quotas import QuotaType
from magicbyte.access.security.settings import token_in
from magicbyte.access.security.tls import Store, TlsSettings, server_context
from magicbyte.engine.compiled import kernel
from magicbyte.engine.errors import ErrorCode, InvalidConfigError
from magicbyte.engine.groups.classic.rules import GroupState
from magicbyte.engine.protocol import APIS
from magicbyte.engine.sentinels import NO_BROKER
from magicbyte.server.serving.metrics import Conversion, Moved, Times, TopicMetrics, now_ns

if TYPE_CHECKING:
    import ssl
    from collections.abc import Collection

    from magicbyte.engine.log.live.log_directory import LogDirectory
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.server.apis.sessions import Sessions
    from magicbyte.server.coordinating.coordinators import Coordinators
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.server.stores.cluster_view import ClusterView
    from magicbyte.server.stores.membership import ControllerRequests
    from magicbyte.server.stores.topics import Topics

_MOST_CLIENTS: Final = 500  # with quotas, of each kind
_QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_RUNNING, _STOPPING = 3, 6  # Kafka's numbers of a broker's states
_TOPIC_COUNTERS: Final[tuple[tuple[str, str, Callable[[TopicMetrics], int]], ...]] = (
    ("messagesin", "Records received from producers.", lambda it: _sum(it.produced, lambda each: each.records)),
    (
        "bytesin",
        "Bytes of record batches received from producers.",
        lambda it: _sum(it.produced, lambda each: each.bytes),
    ),
    (
        "bytesout",
        "Bytes of stored record batches sent to consumers and followers.",
        lambda it: _sum(it.fetched, lambda each: each.bytes),
    ),
    ("totalproducerequests", "Partitions in Produce requests.", lambda it: it.produce_requests),
    ("totalfetchrequests", "Partition reads for Fetch requests.", lambda it: it.fetch_requests),
    ("failedproducerequests", "Record batches that were rejected.", lambda it: it.sets_refused),
    ("failedfetchrequests", "Partition reads of Fetch requests that failed.", lambda it: it.fetches_failed),
    (
        "producemessageconversions",
        "Records that were converted while they were appended.",
        lambda it: _sum(it.produced, lambda each: each.records, converted=True),
    ),
    (
        "fetchmessageconversions",
        "Records that were converted for fetches.",
        lambda it: _sum(it.fetched, lambda each: each.records, converted=True),
    ),
)


class PageServices(Struct, frozen=True):
    """The parts of the broker that the pages show. `listeners`: names; `clients`: the connected clients."""

    runtime: Runtime
    cluster_id: str
    logs: LogDirectory
    topics: Topics
    cluster_view: ClusterView
    coordinators: Coordinators
    sessions: Sessions
    controller: ControllerRequests
    uncleanable_bytes: Callable[[], dict[TopicPartition, int]]
    clients: Callable[[], Sequence[tuple[str, str, str]]]
    listeners: Collection[str]


def pages(services: PageServices) -> Pages:
    """Return the pages of a broker. Reads the files of their token and certificates. Raises InvalidConfigError."""
    health = health_page(lambda: _health(services))
    idle = LoopIdle()
    found: dict[str, Page] = {"/metrics": metrics_page(lambda: families(services, idle)), "/health": health}
    found |= {"/health/ready": health, "/health/live": health_page(lambda: (True, {"live": True}))}
    config = services.runtime.config
    token = None if config.http_token_file is None else token_in(config.http_token_file)
    return Pages(found, for_pages(limit()), token=token, context=_context(config))


def _context(config: BrokerConfig) -> ssl.SSLContext | None:
    """Return the TLS context of the pages, None without TLS. Raises InvalidConfigError."""
    trusted = None if (path := config.http_ssl_truststore_location) is None else Store(path, "PEM")
    if config.http_ssl_keystore_location is None:
        if trusted is not None:
            raise InvalidConfigError("http.ssl.truststore.location: expected http.ssl.keystore.location with it")
        return None
    settings = TlsSettings(trusted, Store(config.http_ssl_keystore_location, "PEM"))
    return server_context(settings, "none" if trusted is None else "required")


def _health(services: PageServices) -> tuple[bool, Mapping[str, Any]]:
    fault = services.logs.health.error
    ready = fault is None and not services.runtime.is_stopping
    return ready, {
        "live": True,
        "ready": ready,
        "brokerId": services.runtime.node_id,
        "clusterId": services.cluster_id,
        "logDirectories": [{"path": services.logs.path, "error": None if fault is None else str(fault)}],
        "offlinePartitions": [str(key) for key in services.topics.offline()],
    }


class LoopIdle:
    """The idle ratio of the event loop's thread, on which it must be created and read."""

    WINDOW_S: Final = 60.0
    SHORTEST_S: Final = 1.0

    def __init__(self) -> None:
        self._looks = deque([(time.monotonic(), time.thread_time())])

    def share(self) -> float:
        """Return the ratio of the last minute, or since the last call if that was earlier."""
        now, cpu_s = time.monotonic(), time.thread_time()
        looks = self._looks
        while len(looks) > 1 and looks[1][0] <= now - self.WINDOW_S:
            looks.popleft()
        since, cpu_before_s = looks[0]
        if now - looks[-1][0] >= self.SHORTEST_S:
            looks.append((now, cpu_s))
        return min(max(1 - (cpu_s - cpu_before_s) / max(now - since, 0.001), 0.0), 1.0)


def families(services: PageServices, idle: LoopIdle) -> Iterator[Family]:
    """Yield all current metrics of a broker."""
    yield from _topics(services)
    yield from _conversions(services)
    yield from _requests(services)
    yield from _askings(services)
    yield from _logs(services)
    yield from _cluster(services)
    yield from _groups(services)
    yield from _connections(services)
    yield from _quotas(services)
    yield from _work(idle)


def _sum(moved: Mapping[Conversion, Moved], what: Callable[[Moved], int], *, converted: bool = False) -> int:
    return sum(what(each) for key, each in moved.items() if not converted or key.source is not key.target)


def _topics(services: PageServices) -> Iterator[Family]:
    """Yield Kafka's counters of each topic and, without that label, of all."""
    metrics = services.runtime.metrics
    for name, meaning, value in _TOPIC_COUNTERS:
        family, total = counter(f"kafka_server_brokertopicmetrics_{name}", meaning), value(metrics.deleted)
        for topic, each in metrics.topics.items():
            found = value(each)
            family.add(found, topic=topic)
            total += found
        family.add(total)
        yield family


def _conversions(services: PageServices) -> Iterator[Family]:
    """Yield the counts of sets by formats before and after: equal ones stayed closed."""
    size = counter("magicbyte_moved_bytes", "Bytes of batches: as received for produce, as stored for fetch.")
    sets = counter("magicbyte_moved_sets", "Batches; file slices for fetches without conversion.")
    records = counter("magicbyte_moved_records", "Records of these batches, where they were decoded.")
    spent = counter(
        "magicbyte_moved_seconds", "Time to validate and convert produced batches, and to convert fetched ones."
    )
    zero_copy = counter("magicbyte_zero_copy_bytes", "Bytes sent with zero-copy (sendfile).")
    avoided = counter("magicbyte_recompressions_avoided", "Compressed batches stored without recompression.")
    done = counter("magicbyte_recompressions_done", "Batches compressed by the broker.")
    for topic, counted in services.runtime.metrics.topics.items():
        for direction, table in (("produce", counted.produced), ("fetch", counted.fetched)):
            for what, moved in table.items():
                labels: dict[str, object] = {
                    "direction": direction,
                    "topic": topic,
                    "source": what.source.value,
                    "target": what.target.value,
                    "version": what.version,
                    "client_id": what.client.id,
                    "software": what.client.software,
                    "software_version": what.client.version,
                }
                size.add(moved.bytes, **labels)
                sets.add(moved.sets, **labels)
                records.add(moved.records, **labels)
                spent.add(moved.time_ns / 1e9, **labels)
        closed = sum(moved.bytes for what, moved in counted.fetched.items() if what.source is what.target)
        zero_copy.add(closed, topic=topic)
        avoided.add(counted.recompressions_avoided, topic=topic)
        done.add(counted.recompressions_done, topic=topic)
    yield from (size, sets, records, spent, zero_copy, avoided, done)


def _requests(services: PageServices) -> Iterator[Family]:
    """Yield counts, errors and times of requests."""
    prefix = "kafka_network_requestmetrics"
    requests = counter(f"{prefix}_requests", "Answered requests, by API and version.")
    errors = counter(f"{prefix}_errors", "Error codes in responses, NONE included, one for each topic or partition.")
    total = Family(f"{prefix}_totaltimems", "Time until the response was ready.", "summary")
    local = Family(
        f"{prefix}_localtimems",
        "Processing time: the total time without waits for records or group members.",
        "summary",
    )
    remote = Family(f"{prefix}_remotetimems", "Time that requests waited for records or group members.", "summary")
    for key, counted in services.runtime.metrics.apis.items():
        counted.sort()
        name, waited = APIS[key].name, counted.waited
        for version, count in counted.requests.items():
            requests.add(count, request=name, version=version)
        for code, count in counted.errors.items():
            errors.add(count, request=name, error=ErrorCode(code).name)
        for family, times in ((total, counted.total), (local, counted.local)):
            family.add_summary(times.count, times.sum_ns / 1e6, _quantiles_ms(times), request=name)
        at_once = counted.total.count - waited.count
        remote.add_summary(counted.total.count, waited.sum_ns / 1e6, _quantiles_ms(waited, none=at_once), request=name)
    yield from (requests, errors, total, local, remote)


def _askings(services: PageServices) -> Iterator[Family]:
    """Yield requests by client and version, to check whether clients are ready for a release without old versions."""
    requests = counter("magicbyte_client_requests", "Answered requests, by client, address, API and version.")
    last = gauge("magicbyte_client_last_request_timestamp_seconds", "Time of the last answered request.")
    now_s, now = services.runtime.clock.now_ms() / 1000, now_ns()
    for asking, asked in services.runtime.metrics.asked.items():
        labels: dict[str, object] = {
            "client_id": asking.client.id,
            "software": asking.client.software,
            "software_version": asking.client.version,
            "address": asking.address,
            "request": APIS[asking.api_key].name,
            "version": asking.version,
        }
        requests.add(asked.count, **labels)
        last.add(round(now_s - (now - asked.last_ns) / 1e9, 3), **labels)
    yield from (requests, last)


def _quantiles_ms(times: Times, *, none: int = 0) -> dict[float, float]:
    return {share: times.quantile(share, none=none) / 1e6 for share in _QUANTILES}


def _logs(services: PageServices) -> Iterator[Family]:
    size = gauge("kafka_log_log_size", "Size of the log in bytes.")
    start = gauge("kafka_log_log_logstartoffset", "Log start offset.")
    end = gauge("kafka_log_log_logendoffset", "Log end offset.")
    segments = gauge("kafka_log_log_numlogsegments", "Number of segments.")
    under = gauge("kafka_cluster_partition_underminisr", "1 if fewer replicas are in sync than min.insync.replicas.")
    at_least = gauge("kafka_cluster_partition_atminisr", "1 if exactly min.insync.replicas are in sync.")
    for key, log in services.logs.logs.items():
        topic = services.topics.get(key.topic)
        if topic is None:  # a left-over log, or a topic that the controller has not announced yet
            continue
        wanted = topic.config.min_insync_replicas
        in_sync = services.cluster_view.in_sync(*key)
        for family, value in (
            (size, log.size),
            (start, log.log_start_offset),
            (end, log.log_end_offset),
            (segments, len(log.segments)),
            (under, int(wanted > in_sync)),
            (at_least, int(wanted == in_sync)),
        ):
            family.add(value, topic=key.topic, partition=key.partition)
    offline = gauge("kafka_log_logmanager_offlinelogdirectorycount", "Number of failed log directories.")
    offline.add(_failed(services))
    which = gauge("kafka_log_logmanager_logdirectoryoffline", "1 if the log directory has failed.")
    which.add(_failed(services), logDirectory=services.logs.path)
    files = gauge("magicbyte_open_files", "Open log files, limited by max.open.files.")
    files.add(services.logs.files.descriptors)
    scarce = counter("magicbyte_out_of_descriptors", "Failures to open a log file for lack of file descriptors.")
    scarce.add(services.logs.files.refused)
    aside = gauge("magicbyte_quarantine_files", "Files and directories in quarantine/ at the start of the broker.")
    aside_bytes = gauge("magicbyte_quarantine_bytes", "Bytes of the files in quarantine/, holes included.")
    for family, value in zip((aside, aside_bytes), services.logs.quarantined, strict=True):
        family.add(value, logDirectory=services.logs.path)
    yield from (aside, aside_bytes)
    cleaner = "kafka_log_logcleanermanager_uncleanable"
    uncleanable = services.uncleanable_bytes()
    partitions = gauge(f"{cleaner}_partitions_count", "Partitions with damaged segments that compaction skips.")
    partitions.add(len(uncleanable), logDirectory=services.logs.path)
    left = gauge(f"{cleaner}_bytes", "Bytes of the damaged segments that compaction skips.")
    left.add(sum(uncleanable.values()), logDirectory=services.logs.path)
    metrics = services.runtime.metrics
    scrubbed = counter("magicbyte_scrub_bytes", "Bytes of logs that were checked (replica.scrub.interval.ms).")
    scrubbed.add(metrics.scrubbed_bytes)
    repaired = counter("magicbyte_scrub_repaired", "Damaged ranges that were repaired from other replicas.")
    repaired.add(metrics.scrub_repaired)
    unrepaired = gauge("magicbyte_scrub_unrepaired", "Damaged ranges that the last check could not repair.")
    unrepaired.add(metrics.scrub_unrepaired)
    yield from (scrubbed, repaired, unrepaired)
    found = metrics.syncs
    syncs = Family("kafka_log_logflushstats_logflushrateandtimems", "Time of log syncs.", "summary")
    syncs.add_summary(found.count, found.sum_ns / 1e6, _quantiles_ms(found))
    yield from (size, start, end, segments, under, at_least, offline, which, files, scarce, partitions, left, syncs)


def _failed(services: PageServices) -> int:
    return int(services.logs.health.error is not None)


def _cluster(services: PageServices) -> Iterator[Family]:
    """Yield the state of the cluster."""
    topics = [services.topics.known(name) for name in services.topics.names()]
    known = [(topic, each) for topic in topics for each in services.cluster_view.partitions(topic.name)]
    partitions, number, is_controller = len(known), services.runtime.node_id, services.cluster_view.is_controller
    here = sum(number in each.replicas for _, each in known)
    led = [] if _failed(services) else [(topic, each) for topic, each in known if each.leader == number]
    lost = here if _failed(services) else len(services.topics.offline())
    leaderless = sum(each.leader == NO_BROKER for _, each in known) if is_controller else 0
    lacking = sum(topic.config.min_insync_replicas > len(each.isr) for topic, each in led)
    behind = sum(len(each.isr) < len(each.replicas) for _, each in led)
    elsewhere = sum(each.leader not in (NO_BROKER, *each.replicas[:1]) for _, each in known) if is_controller else 0
    for name, meaning, value in (
        (
            "server_kafkaserver_brokerstate",
            "3: running. 6: controlled shutdown.",
            _STOPPING if services.runtime.is_stopping else _RUNNING,
        ),
        ("server_replicamanager_partitioncount", "Replicas on this broker.", here),
        ("server_replicamanager_leadercount", "Partitions whose leader is this broker.", len(led)),
        (
            "server_replicamanager_underreplicatedpartitions",
            "Led partitions with fewer in-sync replicas than replicas.",
            behind,
        ),
        (
            "server_replicamanager_underminisrpartitioncount",
            "Led partitions with fewer in-sync replicas than min.insync.replicas.",
            lacking,
        ),
        ("server_replicamanager_offlinereplicacount", "Replicas on this broker that are offline.", lost),
        (
            "controller_kafkacontroller_activecontrollercount",
            "1 if this broker is the active controller.",
            int(is_controller),
        ),
        ("controller_kafkacontroller_offlinepartitionscount", "Partitions without a leader.", max(leaderless, lost)),
        ("controller_kafkacontroller_globaltopiccount", "Topics in the cluster.", len(topics)),
        ("controller_kafkacontroller_globalpartitioncount", "Partitions in the cluster.", partitions),
        (
            "controller_kafkacontroller_preferredreplicaimbalancecount",
            "Partitions whose leader is not the preferred leader.",
            elsewhere,
        ),
        (
            "server_fetchsessioncache_numincrementalfetchsessions",
            "Incremental fetch sessions.",
            len(services.sessions),
        ),
    ):
        family = gauge(f"kafka_{name}", meaning)
        family.add(value)
        yield family
    for name, meaning, value in (
        ("server_replicamanager_isrshrinks", "ISR shrinks of led partitions.", services.runtime.metrics.isr_shrinks),
        ("server_replicamanager_isrexpands", "ISR expands of led partitions.", services.runtime.metrics.isr_expands),
        (
            "server_replicamanager_failedisrupdates",
            "ISR changes that the metadata tree refused.",
            services.runtime.metrics.failed_isr_updates,
        ),
        (
            "controller_controllerstats_uncleanleaderelections",
            "Unclean leader elections.",
            services.controller.unclean_elections,
        ),
    ):
        family = counter(f"kafka_{name}", meaning)
        family.add(value)
        yield family


def _groups(services: PageServices) -> Iterator[Family]:
    """Yield the number of groups by state; none before the coordinator's first use."""
    states = services.coordinators.group_states()
    total = gauge("kafka_coordinator_group_groupmetadatamanager_numgroups", "Consumer groups.")
    total.add(sum(states.values()))
    yield total
    for state in GroupState:
        if state is not GroupState.DEAD:
            name = state.name.lower().replace("_", "")
            family = gauge(
                f"kafka_coordinator_group_groupmetadatamanager_numgroups{name}",
                f"Consumer groups in state {state.value}.",
            )
            family.add(states.get(state, 0))
            yield family


def _connections(services: PageServices) -> Iterator[Family]:
    """Yield open connections, under Kafka's names, whose networkProcessor is always 0 here, and by client."""
    count = gauge("kafka_server_socket_server_metrics_connection_count", "Open connections, by listener.")
    now = gauge("magicbyte_connections", "Open connections, by listener and client software.")
    clients = services.clients()
    at = Counter(each[0] for each in clients)
    for listener in services.listeners:
        count.add(at[listener], listener=listener, networkProcessor=0)
    for (listener, name, version), number in Counter(clients).items():
        now.add(number, listener=listener, software=name, software_version=version)
    yield from (count, now)


def _quotas(services: PageServices) -> Iterator[Family]:
    """Yield the usage of clients with quotas, the most recent ones, under Kafka's names: an absent user or id is ""."""
    quotas, now_ms = services.runtime.quotas, services.runtime.clock.monotonic_ms()
    for kind, name, used in (
        (QuotaType.PRODUCE, "produce", "byte_rate"),
        (QuotaType.FETCH, "fetch", "byte_rate"),
        (QuotaType.REQUEST, "request", "request_time"),
    ):
        meter = quotas.meters[kind]
        rate = gauge(f"kafka_server_{name}_{used}", f"The usage of a client with a {kind.value}, per second.")
        wait = gauge(f"kafka_server_{name}_throttle_time", f"Average ms of throttling, by {kind.value}.")
        limit = gauge(f"magicbyte_{name}_quota", f"The {kind.value} in force.")
        for entity, use in meter.used.latest(_MOST_CLIENTS):
            labels: dict[str, object] = {"user": entity.user, "client_id": entity.client_id}
            rate.add(use.rate.per_second(now_ms), **labels)
            wait.add(meter.average_wait_ms(use, now_ms), **labels)
            limit.add(use.limit, **labels)
        yield from (rate, wait, limit)
    tokens = gauge("kafka_server_controllermutation_tokens", "Partitions that a client may still create or delete now.")
    for entity, bucket in quotas.mutations.used.latest(_MOST_CLIENTS):
        tokens.add(bucket.last, user=entity.user, client_id=entity.client_id)
    yield tokens


def _work(idle: LoopIdle) -> Iterator[Family]:
    """Yield the load. One thread does the work of Kafka's network and request handler threads."""
    share = idle.share()
    for name, meaning in (
        ("network_socketserver_networkprocessoravgidle", "Fraction of time in which the event loop is idle, 0 to 1."),
        ("server_kafkarequesthandlerpool_requesthandleravgidle", "The same value: one event loop does both."),
    ):
        family = gauge(f"kafka_{name}_percent", meaning)
        family.add(share)
        yield family
    for name, value in disk_bytes().items():
        meaning = f"Bytes of this process's disk {name}s."
        family = gauge(f"kafka_server_kafkaserver_linux_disk_{name}_bytes", meaning)
        family.add(value)
        yield family
    tasks = gauge("magicbyte_tasks", "Tasks on the event loop.")
    tasks.add(len(asyncio.all_tasks()))
    loaded = gauge("magicbyte_kernels_loaded", "1 if the compiled kernels are loaded.")
    loaded.add(int(kernel.worth_compiling(kernel.WORTH_CALLING)))
    yield from (tasks, loaded)
