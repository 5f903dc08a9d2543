"""Facts about the brokers of a cluster, for tests of migrations."""

from magicbyte.engine.releases import Release
from magicbyte.tools.migration.status import BrokerFacts


def broker(number: int, release: str, protocol: str | None = None, form: str | None = None) -> BrokerFacts:
    """Return the facts about a broker of a release with these settings; without any, it does not return settings."""
    settings = {"inter.broker.protocol.version": protocol, "log.message.format.version": form}
    told = {name: text for name, text in settings.items() if text is not None}
    return BrokerFacts(number, f"host{number}:9092", Release.of(release).answered(), told or None)
