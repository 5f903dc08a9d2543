"""DescribeClientQuotas and AlterClientQuotas (KIP-546, KIP-612), with the error codes of 2.8."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from magicbyte.access.security.quotas import CONNECTION_RATE, TYPES, WHOLE_QUOTAS
from magicbyte.access.security.scram import HASHES
from magicbyte.engine.cluster import store
from magicbyte.engine.cluster.acls import AclOperation, ResourceType
from magicbyte.engine.cluster.changes import ConnectionRateChanged, ProposedChange, QuotasChanged
from magicbyte.engine.cluster.quotas import NO_NAME, QuotaEntity
from magicbyte.engine.errors import ErrorCode, MagicbyteError, RequestRefusedError
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages import alter_client_quotas as altering
from magicbyte.engine.protocol.messages import describe_client_quotas as describing
from magicbyte.engine.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)
from magicbyte.engine.protocol.messages.describe_client_quotas import DescribeClientQuotasResponse
from magicbyte.server.serving.authorization import (
    CLUSTER_REFUSED,
    AuthorizedCaller,
    WholeRight,
    need_of_cluster,
)
from magicbyte.server.serving.request import Request
from magicbyte.server.serving.routes import FEW, MANY, MIB, ONE_NAME, Route

if TYPE_CHECKING:
    from magicbyte.engine.cluster.image import ClusterImage
    from magicbyte.engine.cluster.store import Decision
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.serving.request import Handler

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_EXACT, _DEFAULT, _ANY = range(3)  # how a filter matches
_STEPS: Final = 20  # for an entity
_NEAR: Final = 1e-6  # tolerance of whole numbers


class QuotaFilter(Struct, frozen=True):
    """A filter for a name. `name`: exactly that, None for the default; `is_any`: any name or the default."""

    name: str | None = None
    is_any: bool = False

    def matches(self, name: str | None) -> bool:
        """Return whether an entity's name matches."""
        return self.is_any or name == self.name


async def describe(
    broker: BrokerParts, request: Request[describing.DescribeClientQuotasRequest]
) -> describing.DescribeClientQuotasResponse:
    """Return the quotas of all entities that match a filter."""
    try:
        filters = _filters(request.message.components)
    except RequestRefusedError as error:
        return describing.DescribeClientQuotasResponse(error_code=error.code, error_message=str(error), entries=None)
    image = broker.cluster_store.image
    is_strict = request.message.strict
    entries = list[describing.EntryData]()
    if IP not in filters:
        async for entity, values in request.turns.over(image.quotas.items(), _STEPS):
            parts = ((USER, entity.user), (CLIENT_ID, entity.client_id))
            if all(_is_meant(name, filters.get(kind), is_strict) for kind, name in parts):
                entries.append(_entry({kind: name for kind, name in parts if name != NO_NAME}, values))
    if IP in filters or not (filters or is_strict):
        wanted = filters.get(IP, QuotaFilter(is_any=True))
        async for address, rate in request.turns.over(image.connection_rates.items(), _STEPS):
            if wanted.matches(address):
                entries.append(_entry({IP: address}, {CONNECTION_RATE: rate}))
    return describing.DescribeClientQuotasResponse(error_message=None, entries=entries)


def _is_meant(name: str | None, wanted: QuotaFilter | None, is_strict: bool) -> bool:
    """Return whether an entity's name, or `NO_NAME`, matches the filter for its type."""
    if wanted is None:
        return name == NO_NAME or not is_strict
    return name != NO_NAME and wanted.matches(name)


def _entry(entity: Mapping[str, str | None], values: Mapping[str, float]) -> describing.EntryData:
    return describing.EntryData(
        entity=[describing.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        values=[describing.ValueData(key=name, value=value) for name, value in values.items()],
    )


def _filters(components: Sequence[describing.ComponentData]) -> dict[str, QuotaFilter]:
    """Return the filters by type of entity. Raises RequestRefusedError."""
    filters: dict[str, QuotaFilter] = {}
    for component in components:
        kind = component.entity_type
        if component.match_type not in (_EXACT, _DEFAULT, _ANY) or (
            component.match_type == _EXACT and component.match is None
        ):
            why = f"expected a match type of 0 with a name, 1 or 2, found {component.match_type}"
            raise RequestRefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, why)
        if not kind or kind in filters:
            why = f"expected types of entities, each once, found {kind!r}"
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, why)
        if kind not in (USER, CLIENT_ID, IP):
            raise RequestRefusedError(ErrorCode.UNSUPPORTED_VERSION, f"entities of type {kind[:80]!r} have no quotas")
        filters[kind] = QuotaFilter(
            component.match if component.match_type == _EXACT else None, component.match_type == _ANY
        )
    if IP in filters and len(filters) > 1:
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "expected an ip alone, without a user or client-id")
    return filters


async def alter(
    broker: BrokerParts, request: Request[altering.AlterClientQuotasRequest]
) -> altering.AlterClientQuotasResponse:
    """Change quotas, each entity by itself; of a repeated entity the last change counts."""
    message, turns, results = request.message, request.turns, []
    once: dict[tuple[tuple[str, str | None], ...], altering.AlterClientQuotasRequestEntryData] = {}
    async for change in turns.over(message.entries):
        once[tuple((part.entity_type, part.entity_name) for part in change.entity)] = change
        await turns.take(len(change.entity) + len(change.ops))
    async for named, change in turns.over(once.items(), _STEPS):
        result = altering.AlterClientQuotasResponseEntryData(
            error_message=None,
            entity=[
                altering.AlterClientQuotasResponseEntityData(entity_type=kind, entity_name=name)
                for kind, name in sorted(dict(named).items(), key=itemgetter(0))  # Kafka's order
            ],
        )
        try:
            entity = dict(named)  # of a repeated type the last name counts
            decide = _decision(entity, change.ops)
            if not message.validate_only:
                await store.change(broker.cluster_store, decide)
        except MagicbyteError as error:
            result.error_code, result.error_message = error.code, str(error)
        results.append(result)
    return altering.AlterClientQuotasResponse(entries=results)


def _decision(entity: Mapping[str, str | None], ops: Iterable[altering.OpData]) -> Decision:
    """Return the decision on the quotas of an entity. Raises RequestRefusedError."""
    _check_entity(entity)
    values = {op.key: None if op.remove else _value(op, is_address=IP in entity) for op in ops}

    def decide(image: ClusterImage) -> list[ProposedChange]:
        if IP in entity:
            address = entity[IP]
            return [ConnectionRateChanged(address, values.get(CONNECTION_RATE, image.connection_rates.get(address)))]
        client = QuotaEntity(entity.get(USER, NO_NAME), entity.get(CLIENT_ID, NO_NAME))
        limits = {**image.quotas.get(client, {}), **values}
        return [QuotasChanged(client, {name: value for name, value in limits.items() if value is not None})]

    return decide


def _check_entity(entity: Mapping[str, str | None]) -> None:
    """Raise RequestRefusedError unless an entity may have quotas."""
    if not entity:
        raise _refusal("expected a user, a client-id or an ip, found nothing")
    for kind, name in entity.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise _refusal(f"entities of type {kind[:80]!r} have no quotas")
        if name == "":
            raise _refusal(f"{kind}: expected a name, or null for the default")
    if IP not in entity:
        return
    address = entity[IP]
    if len(entity) > 1:
        raise _refusal("expected an ip alone, without a user or client-id")
    if address is not None:
        try:
            ipaddress.IPv4Address(address)
        except ValueError:
            raise _refusal(f"ip: expected an IPv4 address, found {address[:80]!r}") from None


def _value(op: altering.OpData, *, is_address: bool) -> float:
    """Return the limit of an operation. Raises RequestRefusedError."""
    name, value = op.key, op.value
    if name in HASHES and not is_address:
        raise RequestRefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{name}: expected a quota, not a credential")
    if (name != CONNECTION_RATE) if is_address else (name not in TYPES):
        known = CONNECTION_RATE if is_address else ", ".join(TYPES)
        raise _refusal(f"expected one of {known}, found {name[:80]!r}")
    if math.isnan(value):
        return 0.0
    if name in WHOLE_QUOTAS:
        if not 0 <= value <= float(WHOLE_QUOTAS[name]) or abs(value - round(value)) > _NEAR:
            raise _refusal(f"{name}: expected a whole number from 0 to {WHOLE_QUOTAS[name]}, found {value}")
        return float(round(value))
    return value


def _refusal(why: str) -> RequestRefusedError:
    return RequestRefusedError(ErrorCode.INVALID_REQUEST, why)


async def _authorized_alter_quotas(
    _broker: BrokerParts, request: Request[AlterClientQuotasRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Change quotas with cluster AlterConfigs (31 per entity)."""
    if caller.has(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER):
        return await handler(request)
    refused = [
        AlterClientQuotasResponseEntryData(
            error_code=CLUSTER_REFUSED,
            entity=[
                AlterClientQuotasResponseEntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                for part in each.entity
            ],
        )
        for each in request.message.entries
    ]
    return AlterClientQuotasResponse(entries=refused)


ROUTES: Final = (
    Route(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        range(2),
        describe,
        most_bytes=ONE_NAME,
        most_elements=FEW,
        rights=WholeRight(
            need_of_cluster(AclOperation.DESCRIBE_CONFIGS),
            lambda _: DescribeClientQuotasResponse(error_code=CLUSTER_REFUSED, entries=None),
        ),
    ),
    Route(
        ApiKey.ALTER_CLIENT_QUOTAS,
        range(2),
        alter,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=_authorized_alter_quotas,
    ),
)
