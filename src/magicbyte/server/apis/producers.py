"""InitProducerId: ids for idempotent producers. The transaction coordinator handles those with a transactional id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from magicbyte.server.serving.request import Request, UnboundHandler

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.coordinating.coordinators import Coordinators
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.cluster import ProducerIds

_NO_ID: Final = -1


@dataclass(frozen=True, slots=True)
class ProducerServices:
    """The parts of the broker that InitProducerId uses."""

    runtime: Runtime
    producer_ids: ProducerIds
    coordinators: Coordinators


async def init_producer_id(services: ProducerServices, request: Request[InitProducerIdRequest]) -> Message:
    """Return a producer id, and with a transactional id the epoch that fences earlier producers."""
    message = request.message
    if (message.producer_id == _NO_ID) != (message.producer_epoch == _NO_ID):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=-1, producer_epoch=-1)
    ids = services.producer_ids
    while ids.is_used_up:
        async with services.runtime.directory:
            if ids.is_used_up:
                await services.runtime.writing.run(ids.take_block)
    if message.transactional_id is not None:
        return await services.coordinators.transactions.ask(request)
    return InitProducerIdResponse(producer_id=ids.next(), producer_epoch=0)


HANDLERS: Final[Mapping[type, UnboundHandler]] = {InitProducerIdRequest: init_producer_id}
