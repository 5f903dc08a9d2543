"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from magicbyte.engine.cluster import store
from magicbyte.engine.cluster.acls import AclOperation, ResourceType
from magicbyte.engine.cluster.changes import ProposedChange, SettingsChanged
from magicbyte.engine.cluster.image import ClusterImage, ConfigEntity, EntityKind
from magicbyte.engine.errors import ErrorCode, InvalidConfigError, InvalidRequestError, MagicbyteError
from magicbyte.engine.log.files.names import check_topic_name
from magicbyte.engine.protocol.api_key import ApiKey
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
from magicbyte.engine.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from magicbyte.server.serving import loggers
from magicbyte.server.serving.authorization import (
    CLUSTER_REFUSED,
    GROUP_REFUSED,
    TOPIC_REFUSED,
    AuthorizedCaller,
    Rights,
    WholeRight,
    name_of,
    need_of_cluster,
)
from magicbyte.server.serving.request import Request
from magicbyte.server.serving.routes import FEW, MANY, MIB, ONE_NAME, Route
from magicbyte.server.settings.group_settings import check_group_settings
from magicbyte.server.stores import configs
from magicbyte.server.stores.configs import ConfigChange, ConfigSource, Described, Synonym

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.serving.request import Handler

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
_ALL_BROKERS: Final = ""
_FIRST_WITH_TYPES: Final = 1  # of ListConfigResources
_STEPS: Final = 30  # for all settings of one resource

Rewrite = Callable[[Mapping[str, str], Mapping[str, str | None]], dict[str, str]]
"""Computes the new own settings of a resource from its own settings and those in force."""


# ---- describing


async def describe_configs(broker: BrokerParts, request: Request[DescribeConfigsRequest]) -> DescribeConfigsResponse:
    """Return settings in force and their sources, once for each resource, even if it is named repeatedly."""
    results = []
    rows: dict[tuple[str, str | None, ConfigSource, tuple[Synonym, ...]], DescribeConfigsResourceResult] = {}
    async for each, keys in request.turns.over(_once(request.message.resources), _STEPS):
        result = DescribeConfigsResult(
            resource_type=each.resource_type, resource_name=each.resource_name, error_message=None
        )
        try:
            found = _described(broker, each)
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


def _described(broker: BrokerParts, resource: DescribeConfigsResource) -> list[Described]:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        check_topic_name(name)
        return configs.describe_topic(broker.topics.known(name), broker.runtime.config)
    if _has_groups(broker) and resource.resource_type == GROUP:
        own = broker.cluster_store.image.settings.get(_group(name), {})
        return configs.describe_group(own, broker.runtime.offer.group_settings, broker.runtime.config)
    if resource.resource_type == BROKER and name == _ALL_BROKERS:
        return configs.describe_all_brokers(broker.runtime.config)
    _check_broker(broker, resource.resource_type, name)
    is_broker = resource.resource_type == BROKER
    return configs.describe_broker(broker.runtime.config) if is_broker else configs.describe_loggers()


def _has_groups(broker: BrokerParts) -> bool:
    return bool(broker.runtime.offer.group_settings)


def _group(name: str) -> ConfigEntity:
    """Return a group with settings. Raises InvalidRequestError for an empty name."""
    if not name:
        raise InvalidRequestError("expected the name of a group: groups have no settings in common")
    return ConfigEntity(EntityKind.GROUP, name)


def _check_broker(broker: BrokerParts, kind: int, name: str) -> None:
    if kind not in (BROKER, BROKER_LOGGER):
        raise InvalidRequestError(f"resource type {kind}: expected 2 (topic), 4 (broker) or 8 (broker logger)")
    if name != str(broker.runtime.node_id):
        raise InvalidRequestError(f"expected this broker, {broker.runtime.node_id}, found {name!r}")


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


async def alter_configs(broker: BrokerParts, request: Request[AlterConfigsRequest]) -> AlterConfigsResponse:
    """Replace all own settings of topics, brokers and groups."""
    responses = []
    async for resource in request.turns.over(request.message.resources, _STEPS):
        wanted = {one.name: one.value for one in resource.configs}
        response = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        try:
            await _alter(
                broker, resource.resource_type, resource.resource_name, _whole(wanted), request.message.validate_only
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
    broker: BrokerParts, request: Request[IncrementalAlterConfigsRequest]
) -> IncrementalAlterConfigsResponse:
    """Change some settings of topics, brokers and groups."""
    responses = []
    async for resource in request.turns.over(request.message.resources, _STEPS):
        changes = [ConfigChange(one.name, one.config_operation, one.value) for one in resource.configs]
        response = IncrementalResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        validate_only = request.message.validate_only
        try:
            if resource.resource_type == BROKER_LOGGER:
                _check_broker(broker, BROKER_LOGGER, resource.resource_name)
                loggers.change(changes, validate_only=validate_only)
            else:
                await _alter(broker, resource.resource_type, resource.resource_name, _partly(changes), validate_only)
        except MagicbyteError as error:
            response.error_code, response.error_message = error.code, str(error)
        responses.append(response)
    return IncrementalAlterConfigsResponse(responses=responses)


def _partly(changes: list[ConfigChange]) -> Rewrite:
    def rewrite(own: Mapping[str, str], current: Mapping[str, str | None]) -> dict[str, str]:
        return configs.changed(own, current, changes)

    return rewrite


async def _alter(broker: BrokerParts, kind: int, name: str, rewrite: Rewrite, validate_only: bool) -> None:
    if kind == TOPIC:
        await broker.topics.alter(
            name, lambda topic: rewrite(topic.configs, topic.config.settings), validate_only=validate_only
        )
        return
    if kind == GROUP and _has_groups(broker):
        decide = _of_group(broker, _group(name), rewrite)
    else:
        if not (kind == BROKER and name == _ALL_BROKERS):
            _check_broker(broker, kind, name)
        if kind == BROKER_LOGGER:
            raise InvalidRequestError("AlterConfigs cannot change the levels of loggers: use IncrementalAlterConfigs")
        entity = ConfigEntity(EntityKind.BROKER, None if name == _ALL_BROKERS else name)

        def decide(_image: ClusterImage) -> list[ProposedChange]:
            return [SettingsChanged(entity, _of_brokers(broker, rewrite, for_all=entity.name is None))]

    if validate_only:
        decide(broker.cluster_store.image)
    else:
        await store.change(broker.cluster_store, decide)


def _of_group(broker: BrokerParts, entity: ConfigEntity, rewrite: Rewrite) -> store.Decision:
    """Return the decision about the settings of a group, which need not exist."""

    def decide(image: ClusterImage) -> list[ProposedChange]:
        before = image.settings.get(entity, {})
        after = rewrite(before, before)
        check_group_settings(after, broker.runtime.offer.group_settings, broker.runtime.config)
        return [] if after == before else [SettingsChanged(entity, after or None)]

    return decide


def _of_brokers(broker: BrokerParts, rewrite: Rewrite, *, for_all: bool) -> dict[str, str]:
    """Return the new settings of all brokers, or of this one. Raises InvalidRequestError."""
    config = broker.runtime.config
    before = config.of_all if for_all else config.of_this
    after = rewrite(before, config.texts)
    configs.check_broker_changes(before, after)
    of_all, of_this = (after, config.of_this) if for_all else (config.of_all, after)
    trial = copy.copy(config)
    try:
        trial.change(of_all, of_this)
        configs.check_thread_counts(config, trial)
        broker.topics.check_config(trial)
    except InvalidConfigError as error:  # with Kafka's message for a broker's settings
        raise InvalidRequestError(str(error)) from error
    return after


def _of_configs(operation: AclOperation, listed: str, row: type[Any]) -> Rights:
    """Return the check for a request about settings."""

    async def answer(
        _broker: BrokerParts, request: Request[Any], handler: Handler, caller: AuthorizedCaller
    ) -> Message | None:
        message = request.message
        allowed, refused = [], []
        for resource in message.resources:
            code = ErrorCode.NONE
            if resource.resource_type == TOPIC:
                code = TOPIC_REFUSED if not caller.has(operation, ResourceType.TOPIC, resource.resource_name) else code
            elif resource.resource_type in (BROKER, BROKER_LOGGER):
                code = CLUSTER_REFUSED if not caller.has(operation, ResourceType.CLUSTER) else code
            elif resource.resource_type == GROUP:
                code = GROUP_REFUSED if not caller.has(operation, ResourceType.GROUP, resource.resource_name) else code
            if code:
                refused.append(
                    row(error_code=code, resource_type=resource.resource_type, resource_name=resource.resource_name)
                )
            else:
                allowed.append(resource)
        response: Any = await handler(replace(request, message=replace(message, resources=allowed)))
        setattr(response, listed, [*getattr(response, listed), *refused])
        answered: Message = response
        return answered

    answer.__doc__ = (
        f"{name_of(operation)} on the topic (29), the group (30) or, for settings of brokers, on the cluster (31)."
    )
    return answer


async def list_config_resources(
    broker: BrokerParts, request: Request[ListConfigResourcesRequest]
) -> ListConfigResourcesResponse:
    """Return the resources of some types that can have settings, of all types if none is named; groups that have some.

    Version 0 is about subscriptions to client metrics only, and there are none.
    """
    types = set(request.message.resource_types) or {TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP}
    if not types <= {TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP}:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    resources = list[ConfigResource]()
    if request.version >= _FIRST_WITH_TYPES:
        for kind in (BROKER_LOGGER, BROKER):
            if kind in types:
                ids = broker.cluster_view.broker_ids()
                resources += [ConfigResource(resource_name=str(each), resource_type=kind) for each in ids]
        if GROUP in types:
            settings = broker.cluster_store.image.settings
            async for entity in request.turns.over(list(settings)):
                if entity.kind is EntityKind.GROUP and entity.name is not None:
                    resources.append(ConfigResource(resource_name=entity.name, resource_type=GROUP))
        if TOPIC in types:
            async for name in request.turns.over(broker.topics.names()):
                resources.append(ConfigResource(resource_name=name, resource_type=TOPIC))
    return ListConfigResourcesResponse(config_resources=resources)


ROUTES: Final = (
    Route(
        ApiKey.DESCRIBE_CONFIGS,
        range(5),
        describe_configs,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=_of_configs(AclOperation.DESCRIBE_CONFIGS, "results", DescribeConfigsResult),
    ),
    Route(
        ApiKey.ALTER_CONFIGS,
        range(3),
        alter_configs,
        most_bytes=16 * MIB,
        most_elements=MANY,
        rights=_of_configs(AclOperation.ALTER_CONFIGS, "responses", AlterConfigsResourceResponse),
    ),
    Route(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        range(2),
        incremental_alter_configs,
        most_bytes=16 * MIB,
        most_elements=MANY,
        rights=_of_configs(AclOperation.ALTER_CONFIGS, "responses", IncrementalResourceResponse),
    ),
    Route(
        ApiKey.LIST_CONFIG_RESOURCES,
        range(2),
        list_config_resources,
        most_bytes=ONE_NAME,
        most_elements=FEW,
        rights=WholeRight(
            need_of_cluster(AclOperation.DESCRIBE_CONFIGS),
            lambda _: ListConfigResourcesResponse(error_code=CLUSTER_REFUSED),
        ),
    ),
)
