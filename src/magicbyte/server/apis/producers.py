"""InitProducerId: ids for idempotent producers. The transaction coordinator handles those with a transactional id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magicbyte.engine.cluster.acls import AclOperation, ResourceType
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from magicbyte.engine.sentinels import NO_PRODUCER_ID
from magicbyte.server.serving.authorization import (
    CLUSTER_REFUSED,
    ID_REFUSED,
    AuthorizedCaller,
)
from magicbyte.server.serving.request import Request
from magicbyte.server.serving.routes import FEW, ONE_NAME, Route

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.serving.request import Handler


async def init_producer_id(broker: BrokerParts, request: Request[InitProducerIdRequest]) -> Message:
    """Return a producer id, and with a transactional id the epoch that fences earlier producers."""
    message = request.message
    if (message.producer_id == NO_PRODUCER_ID) != (message.producer_epoch == NO_PRODUCER_ID):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=-1, producer_epoch=-1)
    ids = broker.producer_ids
    await ids.fill()
    if message.transactional_id is not None:
        return await broker.coordinators.transactions.ask(request)
    return InitProducerIdResponse(producer_id=ids.next(), producer_epoch=0)


async def _authorized_init_producer_id(
    _broker: BrokerParts, request: Request[InitProducerIdRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Return ids with cluster IdempotentWrite or Write on any topic (31), or transactional id Write (53)."""
    name = request.message.transactional_id
    code = ErrorCode.NONE
    if name is not None:
        if not caller.has(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
            code = ID_REFUSED
    elif not (
        caller.has(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
        or caller.has_any(AclOperation.WRITE, ResourceType.TOPIC)
    ):
        code = CLUSTER_REFUSED
    if code:
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return await handler(request)


ROUTES: Final = (
    Route(
        ApiKey.INIT_PRODUCER_ID,
        range(6),
        init_producer_id,
        most_bytes=ONE_NAME,
        most_elements=FEW,
        rights=_authorized_init_producer_id,
    ),
)
