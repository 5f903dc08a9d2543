"""InitProducerId: ids for idempotent producers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from magicbyte.broker.request import Handler, Request
from magicbyte.errors import ErrorCode
from magicbyte.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from magicbyte.broker.broker import Broker

_NO_ID: Final = -1


async def init_producer_id(broker: Broker, request: Request[InitProducerIdRequest]) -> InitProducerIdResponse:
    """Give an idempotent producer an id. There are no transactions yet: who has a transactional id is refused."""
    message = request.message
    if message.transactional_id == "" or (message.producer_id == _NO_ID) != (message.producer_epoch == _NO_ID):
        return _refused(ErrorCode.INVALID_REQUEST)
    if message.transactional_id is not None:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    ids = broker.producer_ids
    while ids.is_used_up:
        async with broker.directory:
            if ids.is_used_up:
                await broker.writing.run(ids.take_block)
    return InitProducerIdResponse(producer_id=ids.next(), producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


HANDLERS: Final[Mapping[type, Handler]] = {InitProducerIdRequest: init_producer_id}
