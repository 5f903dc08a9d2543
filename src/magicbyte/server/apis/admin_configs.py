"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magicbyte.engine.errors import InvalidConfigError, InvalidRequestError, MagicbyteError
from magicbyte.engine.log.files.names import check_topic_name
from magicbyte.engine.ports import CreateNode, SetNode
from magicbyte.engine.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from magicbyte.engine.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from magicbyte.engine.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalResourceResponse,
)
from magicbyte.engine.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from magicbyte.server.metadata import layout
from magicbyte.server.serving import loggers
from magicbyte.server.serving.request import Request, UnboundHandler
from magicbyte.server.stores import configs
from magicbyte.server.stores.cluster import tell_of_config_change
from magicbyte.server.stores.configs import ConfigChange, ConfigSource, Described, Synonym

if TYPE_CHECKING:
    from magicbyte.engine.ports import MetadataStore
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.topics import Topics

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
_ALL_BROKERS: Final = ""
_STEPS: Final = 30  # for all settings of one resource

Rewrite = Callable[[Mapping[str, str], Mapping[str, str | None]], dict[str, str]]
"""Computes the new own settings of a resource from its own settings and those in force."""


# ---- describing


@dataclass(frozen=True, slots=True)
class ConfigServices:
    """The parts of the broker that these requests use. `config_changed` puts the broker's settings in force."""

    runtime: Runtime
    topics: Topics
    metadata: MetadataStore
    config_changed: Callable[[], None]


async def describe_configs(
    services: ConfigServices, request: Request[DescribeConfigsRequest]
) -> DescribeConfigsResponse:
    """Return settings in force and their sources, once for each resource, even if it is named repeatedly."""
    results = []
    rows: dict[tuple[str, str | None, ConfigSource, tuple[Synonym, ...]], DescribeConfigsResourceResult] = {}
    async for each, keys in request.turns.over(_once(request.message.resources), _STEPS):
        result = DescribeConfigsResult(
            resource_type=each.resource_type, resource_name=each.resource_name, error_message=None
        )
        try:
            found = _described(services, each)
        except MagicbyteError as error:
            result.error_code, result.error_message = error.code, str(error)
        else:
            for one in found:
                if keys is None or one.name in keys:  # most topics share most settings: these share a row
                    key = one.name, one.value, one.source, one.synonyms
                    result.configs.append(rows.get(key) or rows.setdefault(key, _config_row(one, request)))
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _once(
    resources: Iterable[DescribeConfigsResource],
) -> Iterable[tuple[DescribeConfigsResource, set[str] | None]]:
    """Return each resource once, with all requested settings; None: all settings."""
    rows: dict[tuple[int, str], tuple[DescribeConfigsResource, set[str] | None]] = {}
    for each in resources:
        key = each.resource_type, each.resource_name
        keys = set(each.configuration_keys or ()) or None  # none, or an empty list: all
        known = rows.get(key)
        if known is None:
            rows[key] = each, keys
        elif known[1] is not None:
            rows[key] = known[0], None if keys is None else known[1] | keys
    return rows.values()


def _described(services: ConfigServices, resource: DescribeConfigsResource) -> list[Described]:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        check_topic_name(name)
        return configs.describe_topic(services.topics.known(name), services.runtime.config)
    if resource.resource_type == BROKER and name == _ALL_BROKERS:
        return configs.describe_all_brokers(services.runtime.config)
    _check_broker(services, resource.resource_type, name)
    is_broker = resource.resource_type == BROKER
    return configs.describe_broker(services.runtime.config) if is_broker else configs.describe_loggers()


def _check_broker(services: ConfigServices, kind: int, name: str) -> None:
    if kind not in (BROKER, BROKER_LOGGER):
        raise InvalidRequestError(f"resource type {kind}: expected 2 (topic), 4 (broker) or 8 (broker logger)")
    if name != str(services.runtime.node_id):
        raise InvalidRequestError(f"expected this broker, {services.runtime.node_id}, found {name!r}")


def _config_row(described: Described, request: Request[DescribeConfigsRequest]) -> DescribeConfigsResourceResult:
    synonyms = described.synonyms if request.message.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=described.name,
        value=described.value,
        read_only=described.is_read_only,
        is_default=request.version == 0 and described.source is ConfigSource.DEFAULT,  # later versions have the source
        config_source=described.source,
        is_sensitive=described.is_sensitive,
        synonyms=[DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source) for one in synonyms],
        config_type=described.setting.kind,
        documentation=described.setting.doc if request.message.include_documentation else None,
    )


# ---- changing


async def alter_configs(services: ConfigServices, request: Request[AlterConfigsRequest]) -> AlterConfigsResponse:
    """Replace all own settings of topics and brokers."""
    responses = []
    async for resource in request.turns.over(request.message.resources, _STEPS):
        wanted = {one.name: one.value for one in resource.configs}
        response = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        try:
            await _alter(
                services, resource.resource_type, resource.resource_name, _whole(wanted), request.message.validate_only
            )
        except MagicbyteError as error:
            response.error_code, response.error_message = error.code, str(error)
        responses.append(response)
    return AlterConfigsResponse(responses=responses)


def _whole(wanted: Mapping[str, str | None]) -> Rewrite:
    def rewrite(_own: Mapping[str, str], _current: Mapping[str, str | None]) -> dict[str, str]:
        given = {name: value for name, value in wanted.items() if value is not None}
        if len(given) < len(wanted):
            raise InvalidRequestError("expected a value for each setting")
        return given

    return rewrite


async def incremental_alter_configs(
    services: ConfigServices, request: Request[IncrementalAlterConfigsRequest]
) -> IncrementalAlterConfigsResponse:
    """Change some settings of topics and brokers."""
    responses = []
    async for resource in request.turns.over(request.message.resources, _STEPS):
        changes = [ConfigChange(one.name, one.config_operation, one.value) for one in resource.configs]
        response = IncrementalResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        validate_only = request.message.validate_only
        try:
            if resource.resource_type == BROKER_LOGGER:
                _check_broker(services, BROKER_LOGGER, resource.resource_name)
                loggers.change(changes, validate_only=validate_only)
            else:
                await _alter(services, resource.resource_type, resource.resource_name, _partly(changes), validate_only)
        except MagicbyteError as error:
            response.error_code, response.error_message = error.code, str(error)
        responses.append(response)
    return IncrementalAlterConfigsResponse(responses=responses)


def _partly(changes: list[ConfigChange]) -> Rewrite:
    def rewrite(own: Mapping[str, str], current: Mapping[str, str | None]) -> dict[str, str]:
        return configs.changed(own, current, changes)

    return rewrite


async def _alter(services: ConfigServices, kind: int, name: str, rewrite: Rewrite, validate_only: bool) -> None:
    async with services.runtime.directory:
        if kind == TOPIC:
            topic = services.topics.known(name)
            own = rewrite(topic.configs, topic.config.settings)
            await services.runtime.writing.run(services.topics.alter, name, dict(own), validate_only=validate_only)
            return
        if not (kind == BROKER and name == _ALL_BROKERS):
            _check_broker(services, kind, name)
        if kind == BROKER_LOGGER:
            raise InvalidRequestError("AlterConfigs cannot change the levels of loggers: use IncrementalAlterConfigs")
        await _alter_broker(services, name, rewrite, validate_only=validate_only)


async def _alter_broker(services: ConfigServices, name: str, rewrite: Rewrite, *, validate_only: bool) -> None:
    config, for_all = services.runtime.config, name == _ALL_BROKERS
    before = config.of_all if for_all else config.of_this
    after = rewrite(before, config.texts)
    configs.check_broker_changes(before, after)
    of_all, of_this = (after, config.of_this) if for_all else (config.of_all, after)
    trial = copy.copy(config)
    try:
        trial.change(of_all, of_this)
        configs.check_thread_counts(config, trial)
        services.topics.check_config(trial)
    except InvalidConfigError as error:  # with Kafka's message for a broker's settings
        raise InvalidRequestError(str(error)) from error
    if validate_only:
        return
    entity = layout.DEFAULT_ENTITY if for_all else name
    path, metadata = layout.config_path("brokers", entity), services.metadata
    data, now_ms = layout.dump_config(after), services.runtime.clock.now_ms()

    def change() -> None:
        node = SetNode(path, data) if metadata.exists(path) is not None else CreateNode(path, data)
        metadata.transaction([node, *tell_of_config_change(metadata, "brokers", entity, now_ms, config.tree_protocol)])

    await services.runtime.writing.run(change)
    config.change(of_all, of_this)
    services.config_changed()


HANDLERS: Final[Mapping[type, UnboundHandler]] = {
    DescribeConfigsRequest: describe_configs,
    AlterConfigsRequest: alter_configs,
    IncrementalAlterConfigsRequest: incremental_alter_configs,
}
