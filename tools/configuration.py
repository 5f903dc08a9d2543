"""Writes docs/reference/configuration.md from the table of settings. Run: python tools/configuration.py [--check]."""

import sys
from pathlib import Path
from typing import Any

from magicbyte.server.settings.config import REFUSED, SETTINGS
from magicbyte.server.settings.group_settings import GROUP_SETTINGS
from magicbyte.server.settings.listener_settings import OF_LISTENERS
from magicbyte.server.settings.settings import INT_MAX, LONG_MAX, Setting, UpdateMode
from magicbyte.server.settings.topic_config import TOPIC_SETTINGS

PAGE = Path(__file__).resolve().parent.parent / "docs/reference/configuration.md"

# Where Kafka 3.9 has another default: what that is, and why it is another one here.
OTHERWISE = {
    "listeners": "`PLAINTEXT://:9092`; here other machines get no access by default",
    "broker.id": "-1, the next free id",
    "log.dir": "`kafka-logs` in the directory for temporary files",
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
    "replica.scrub.bytes.per.second",
    "replica.scrub.interval.ms",
    "slow.request.ms",
}

HEAD = """\
# Settings

Every setting of the broker and of its topics: values, default, meaning. `tools/configuration.py` writes this page
from the table that the broker itself uses.

Settings have Kafka's names. A value is taken from the first of these places that has one:

1. a request to the running broker (AlterConfigs, IncrementalAlterConfigs): for this broker, then for all brokers;
2. the command line of `magicbyte serve`, as `name=value`;
3. the file that `--config` names, a `server.properties`.

An invalid value is refused with one line that says what was expected. A name that is not in these tables is ignored
with a warning: many of Kafka's settings have no counterpart here. Their values are checked
nevertheless. These are refused, because a user who sets them relies on them:

{refused}

A change at run time is on disk before it is confirmed. It takes effect at once, also for open logs, and survives a
restart. The column *changes* says which settings of the broker can change: *any time*, or only at the next *start*.

**Listeners.** `listeners` may have several listeners, each with a name and a port of its own. `advertised.listeners`
has the addresses that clients are given where these differ. The broker warns at its start about a listener that other
machines reach without authentication. TLS and SASL: [security](../broker/security.md).
`listener.name.NAME.magicbyte.dialect=enriched`, with NAME in lower case, makes a listener whose clients exchange
enriched sets unopened with enriched topics. The default is `kafka`.

**Formats.** `message.format.version` is the stored format: `0`, `1`, `2`, `enriched`, or a Kafka version. A version
stands for the format that it introduced or kept: up to 0.9 for 0, up to 0.10.2 for 1, from 0.11 on for 2. Kafka
accepts only versions, and ignores the setting from 3.0 on; here it always counts. A topic is `enriched` for its whole
life: the value cannot be set or removed later. As `inter.broker.protocol.version`, `0.9.0-1` stands for `0.10.0-IV0`.

## Topics

Settings of one topic. A topic without a setting of its own uses the broker's setting in the fourth column.

"""
GROUPS = """
## Groups

Settings of one group, for `kafka-configs --entity-type groups` and requests with resource type 32. They act from the
next heartbeat of each member on. The group need not exist. A group without a setting of its own uses the first broker
setting in the fourth column, the others bound its values. Which settings there are depends on `as.version`: none
before 4.0. Those of share and streams groups are stored and described, but have no effect.

"""
BROKER = """
## The broker

"""
SECURITY = """
## TLS and SASL of listeners

[Security](../broker/security.md) has values and meanings. These apply to all listeners, and with the prefix
`listener.name.NAME.` to one: {names}.

These always have the prefix: `listener.name.NAME.MECHANISM.sasl.jaas.config`,
`listener.name.NAME.MECHANISM.connections.max.reauth.ms`.
"""
TAIL = """
## Directories of other brokers

The broker can serve a log directory that a Kafka broker left. It adopts the topics whose logs it finds, with the ids
in their `partition.metadata`. Topic settings are not in the directory but in the metadata of the old cluster. Until
you set them again nothing is deleted: adopted topics get `retention.ms=-1` and `retention.bytes=-1`, Kafka's internal
topics `cleanup.policy=compact`. A topic gets all partitions from 0 to the highest one found. Missing partitions in
between are empty.

`log.message.format.version` and `inter.broker.protocol.version` default to the values that the directory was last
served with. At the first start they default to those of the oldest release that can have written the directory, so
that this release can take it back: see [a log directory changes hands](../commands/metadata.md).
"""


def page() -> str:
    """Return the text of the page."""
    refused = "\n".join(f"- `{name}`: {why}" for name, why in REFUSED.items())
    topics = ["| name | values | default | broker setting | description |", "|---|---|---|---|---|"]
    for name, each in sorted(TOPIC_SETTINGS.items()):
        names = [each.broker.name, *(other for other, _ in each.broker.synonyms)] if each.broker else []
        shown = ", ".join(f"`{other}`" for other in names) or "none"
        topics.append(
            f"| {_name(name)} | {_valid(each.setting)} | {_default(each.setting)} | {shown} | {each.setting.doc} |"
        )
    groups = ["| name | values | default | broker settings | description |", "|---|---|---|---|---|"]
    for name, own in sorted(GROUP_SETTINGS.items()):
        shown = ", ".join(f"`{other.name}`" for other in (own.broker, own.least, own.most) if other) or "none"
        valid, default = _valid(own.setting), _default(own.setting)
        groups.append(f"| {_name(name)} | {valid} | {default} | {shown} | {own.setting.doc} |")
    broker = ["| name | values | default | changes | description |", "|---|---|---|---|---|"]
    for name, setting in sorted(SETTINGS.items()):
        changes = "start" if setting.update is UpdateMode.READ_ONLY else "any time"
        broker.append(
            f"| {_name(name)} | {_valid(setting)} | {_default(setting)} | {changes} | {_doc(name, setting)} |"
        )
    security = SECURITY.format(names=", ".join(f"`{name}`" for name in sorted(OF_LISTENERS)))
    tables = ("\n".join(topics), GROUPS + "\n".join(groups), BROKER + "\n".join(broker))
    return HEAD.format(refused=refused) + "\n".join(tables) + "\n" + security + TAIL


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
