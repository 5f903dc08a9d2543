"""Metrics in Prometheus's format, and health as JSON: pages of long-running processes.

Kafka's own metrics have the names that the common rules of the Prometheus JMX exporter give to Kafka's MBeans, so that
dashboards made for Kafka show them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from magicbyte.access.clock import SystemClock, cpu_s
from magicbyte.access.net.http import Answer, Page
from magicbyte.engine.printable import printable_label

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_STARTED_S = SystemClock().now_ms() / 1000


class Family(Struct):
    """The samples of one metric, each with its labels. A counter's `name` is without its `_total`."""

    name: str
    help: str
    kind: Literal["counter", "gauge", "summary"]
    samples: list[tuple[str, dict[str, str], float]] = field(default_factory=list)

    def add(self, value: float, /, **labels: object) -> None:
        """Add a sample. A label's name may end in _ if it would be a Python keyword."""
        suffix = "_total" if self.kind == "counter" else ""
        self.samples.append((suffix, _texts(labels), value))

    def add_summary(self, count: int, total: float, quantiles: Mapping[float, float], /, **labels: object) -> None:
        """Add a summary: count, sum, and quantiles."""
        texts = _texts(labels)
        self.samples += [("", {**texts, "quantile": str(share)}, each) for share, each in quantiles.items()]
        self.samples += [("_count", texts, count), ("_sum", texts, total)]


def _texts(labels: Mapping[str, object]) -> dict[str, str]:
    """Return labels as text without control characters, as clients choose their own names."""
    return {name.rstrip("_"): printable_label(str(each)) for name, each in labels.items()}


def counter(name: str, help_: str) -> Family:
    """Return a counter; `name` is without `_total`."""
    return Family(name, help_, "counter")


def gauge(name: str, help_: str) -> Family:
    """Return a gauge."""
    return Family(name, help_, "gauge")


def metrics_page(collect: Callable[[], Iterable[Family]]) -> Page:
    """Return the page of the metrics that `collect` returns on the event loop; the text is rendered in a thread."""

    async def page(accept: str) -> Answer:
        families = [*collect(), *process()]
        return await asyncio.to_thread(_render, families, accept)

    return page


def health_page(look: Callable[[], tuple[bool, Mapping[str, Any]]]) -> Page:
    """Return a JSON page of the result of `look`, with status 503 if it is unhealthy."""

    async def page(_: str) -> Answer:
        is_well, facts = look()
        status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
        return Answer("application/json", json.dumps(facts, indent=2).encode() + b"\n", status)

    return page


def process() -> list[Family]:
    """Return the resource usage of this process, by the standard names of Prometheus clients."""
    cpu = counter("process_cpu_seconds", "Processor time of this process, in seconds.")
    cpu.add(cpu_s())
    started = gauge("process_start_time_seconds", "When this process started, in seconds since 1970.")
    started.add(_STARTED_S)
    families = [cpu, started]
    if sys.platform == "linux":
        resident = gauge("process_resident_memory_bytes", "Memory of this process.")
        peak = gauge("magicbyte_process_peak_resident_bytes", "The largest memory use of this process so far.")
        with open("/proc/self/status", "rb") as file:
            said = dict(line.split(b":", 1) for line in file)
        resident.add(int(said[b"VmRSS"].split()[0]) << 10)
        peak.add(int(said[b"VmHWM"].split()[0]) << 10)
        files = gauge("process_open_fds", "Files and sockets that this process has open.")
        with os.scandir("/proc/self/fd") as those:
            files.add(sum(1 for _ in those) - 1)  # without the one that this opens
        families += [resident, peak, files]
    return families


def disk_bytes() -> dict[Literal["read", "write"], int]:
    """Return the bytes that this process read from and wrote to disks; nothing if the system does not report them."""
    try:
        with open("/proc/self/io", "rb") as file:
            said = dict(line.split(b":", 1) for line in file)
    except OSError:
        return {}
    return {"read": int(said[b"read_bytes"]), "write": int(said[b"write_bytes"])}


class _Collected:
    """The collected metrics, as a registry for the library's writer."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import Metric

        for family in self._families:
            found = Metric(family.name, family.help, family.kind)
            for suffix, labels, value in family.samples:
                found.add_sample(family.name + suffix, labels, value)
            yield found


def _render(families: Iterable[Family], accept: str) -> Answer:
    from prometheus_client.exposition import choose_encoder  # takes 30 ms, so not at the start

    encode, content_type = choose_encoder(accept)
    registry: Any = _Collected(families)  # the writer only calls `collect`
    return Answer(content_type, encode(registry))
