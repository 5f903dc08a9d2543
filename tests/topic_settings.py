"""Settings of a topic by Kafka's names, in the form in which `log/` takes them: as brokers make it."""

from __future__ import annotations

from collections.abc import Mapping

from magicbyte.engine.log.append.rules import AppendRules
from magicbyte.engine.log.cleaning.compaction import CompactionConfig
from magicbyte.engine.log.files.index_writer import LATEST_RULES, IndexRules
from magicbyte.engine.log.live.config import LogConfig
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.server.settings.topic_config import check_overrides, resolve

BROKER = BrokerConfig()


def log_config(settings: Mapping[str, str], rules: IndexRules = LATEST_RULES) -> LogConfig:
    return resolve(check_overrides(settings), BROKER, rules).log


def append_rules(settings: Mapping[str, str]) -> AppendRules:
    return resolve(check_overrides(settings), BROKER).append


def compaction_config(settings: Mapping[str, str]) -> CompactionConfig:
    return resolve(check_overrides(settings), BROKER).compaction
