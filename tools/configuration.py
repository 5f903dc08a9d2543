"""Writes docs/reference/configuration.md from the table of settings. Run: python tools/configuration.py [--check]."""

import sys
from pathlib import Path
from typing import Any

from magicbyte.broker.config import REFUSED, SETTINGS
from magicbyte.broker.settings import INT_MAX, LONG_MAX, Setting, UpdateMode
from magicbyte.broker.topic_config import TOPIC_SETTINGS

PAGE = Path(__file__).resolve().parent.parent / "docs/reference/configuration.md"

# Where Kafka 3.9 has another default: what that is, and why it is another one here.
OTHERWISE = {
    "listeners": "`PLAINTEXT://:9092`; here nobody else on the network gets in unasked",
    "broker.id": "-1, a free number",
    "log.dir": "`kafka-logs` in the folder for temporary files",
    "inter.broker.protocol.version": "3.9-IV0",
}
OURS = {
    "enriched.append.mode",
    "http.address",
    "log.flush.policy",
    "log.head.truncation",
    "max.decompressed.message.bytes",
    "max.open.files",
    "mirror.identical",
    "slow.request.ms",
}

HEAD = """\
# Configuration

This page is made by `tools/configuration.py` from the table that the broker itself uses.

Settings have Kafka's names. What a request to the running broker has set (AlterConfigs or IncrementalAlterConfigs)
counts first, for this broker before for all; then what stands on the command line of `magicbyte serve` as
`name=value`; then what a `server.properties` says. A value that a setting cannot have is refused with one line that
says what was expected. A name that is not in these tables is passed over with a warning: many of Kafka's settings are
about things that are done otherwise here, or not at all. These are refused, since whoever sets them relies on what
they do:

{refused}

A change at run time is on the disk before it is confirmed; it holds at once for what comes, in logs that are open,
too, and after a restart. Which settings of the broker can be changed stands in the column *changes*: *any time*, or
*start* for those that are read only when a broker starts.

**Listeners.** `listeners` may have several, each with a name and a port of its own; `advertised.listeners` says what
clients are told, for those listeners for which it is another address. Only `PLAINTEXT` can be listened on: there is
no TLS and no SASL yet, and a listener of another kind is refused rather than opened without them. A listener that can
be reached from other machines is warned about when the broker starts. `listener.name.NAME.magicbyte.dialect=enriched`
(NAME in small letters) makes a listener whose clients exchange closed enriched sets with topics that hold such; the
default is `kafka`.

**Formats.** `message.format.version` is the format that is stored: `0`, `1`, `2`, `enriched`, or a Kafka version,
which stands for the format that came with it (to 0.9: 0; to 0.10.2: 1; from 0.11 on: 2). Shipped Kafka has only the
names of versions, and passes over the setting from 3.0 on; here it always counts. `enriched` is for the whole life of
a topic: it cannot be set or taken back later. `0.9.0-1` as `inter.broker.protocol.version` stands for `0.10.0-IV0`.

## Topics

For one topic; a topic that does not have a setting of its own has the broker's.

"""
BROKER = """
## The broker

"""
TAIL = """
## Directories of other brokers

A log directory that a Kafka broker left can be served: topics whose logs are found there are taken over, with the ids
that their `partition.metadata` have. Their settings are not in the directory, but in that cluster's metadata. So
nothing is deleted from them until they are set again: they get `retention.ms=-1` and `retention.bytes=-1` of their
own (Kafka's internal topics: `cleanup.policy=compact`). A topic gets the partitions from 0 to the highest that was
found; those in between that the directory does not have are there, and empty.

Where `log.message.format.version` and `inter.broker.protocol.version` are not given, they are those that the directory
was served with before; at the first start those of the oldest release that can have written what lies in it, so that
this release can have it back: see [a log directory changes hands](../commands/metadata.md).
"""


def page() -> str:
    """Return the text of the page."""
    refused = "\n".join(f"- `{name}`: {why}" for name, why in REFUSED.items())
    topics = ["| name | values | default | the broker's | what it is |", "|---|---|---|---|---|"]
    for name, each in sorted(TOPIC_SETTINGS.items()):
        names = [each.broker.name, *(other for other, _ in each.broker.synonyms)] if each.broker else []
        shown = ", ".join(f"`{other}`" for other in names) or "none"
        topics.append(
            f"| {_name(name)} | {_valid(each.setting)} | {_default(each.setting)} | {shown} | {each.setting.doc} |"
        )
    broker = ["| name | values | default | changes | what it is |", "|---|---|---|---|---|"]
    for name, setting in sorted(SETTINGS.items()):
        changes = "start" if setting.update is UpdateMode.READ_ONLY else "any time"
        broker.append(
            f"| {_name(name)} | {_valid(setting)} | {_default(setting)} | {changes} | {_doc(name, setting)} |"
        )
    return HEAD.format(refused=refused) + "\n".join(topics) + "\n" + BROKER + "\n".join(broker) + "\n" + TAIL


def _name(name: str) -> str:
    return f"`{name}` (ours)" if name in OURS else f"`{name}`"


def _valid(setting: Setting[Any]) -> str:
    return setting.valid.replace(f" to {LONG_MAX}", " on").replace(f" to {INT_MAX}", " on")


def _default(setting: Setting[Any]) -> str:
    if setting.default is not None:
        return f"`{setting.default}`" if setting.default else "empty"
    others = " or ".join(f"`{name}`" for name, _ in setting.synonyms)
    return others or "none"


def _doc(name: str, setting: Setting[Any]) -> str:
    return f"{setting.doc} Kafka's default: {OTHERWISE[name]}." if name in OTHERWISE else setting.doc


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
