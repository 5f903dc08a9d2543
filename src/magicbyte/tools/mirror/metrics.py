"""Metrics of a mirror for Prometheus, by topic of the source."""

from __future__ import annotations

from collections.abc import Mapping

from magicbyte.access.net.exposition import Family, counter, gauge
from magicbyte.tools.mirror.copier import Copied


def families(copied: Mapping[str, Copied], saved: Mapping[str, float]) -> list[Family]:
    """Return the current metrics; `saved`: CPU seconds by topic."""
    sets = counter("magicbyte_mirror_sets", "Sets that were copied, by whether they stayed closed.")
    size = counter(
        "magicbyte_mirror_bytes", "Bytes of the source's sets that were copied, by whether they stayed closed."
    )
    records = counter("magicbyte_mirror_records", "Records that were copied, where headers contain their number.")
    lost = counter("magicbyte_mirror_lost_offsets", "Offsets that the source had deleted before they were copied.")
    parked = counter("magicbyte_mirror_parked_sets", "Sets, or records of some, that were put aside.")
    lag = gauge("magicbyte_mirror_lag_offsets", "Offsets not yet copied, as of the last response of the source.")
    spared = gauge(
        "magicbyte_mirror_saved_cpu_seconds", "CPU time that decompression of the closed sets would have taken."
    )
    for topic, counted in copied.items():
        for state, count, length in (
            ("closed", counted.closed_sets, counted.closed_bytes),
            ("opened", counted.opened_sets, counted.opened_bytes),
        ):
            sets.add(count, topic=topic, state=state)
            size.add(length, topic=topic, state=state)
        records.add(counted.records, topic=topic)
        lost.add(counted.lost, topic=topic)
        parked.add(counted.parked, topic=topic)
        lag.add(counted.lag, topic=topic)
        if topic in saved:
            spared.add(saved[topic], topic=topic)
    return [sets, size, records, lost, parked, lag, spared]
