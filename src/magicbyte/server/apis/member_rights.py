"""Rights of the groups whose coordinator assigns topics to members: consumer groups (KIP-848), share groups (KIP-932).

Source: Kafka's KafkaApis. Rights are of ACLs; the numbers in texts are error codes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from magicbyte.engine.cluster.acls import AclOperation, ResourceType
from magicbyte.server.serving.authorization import (
    GROUP_REFUSED,
    READ_GROUP,
    TOPIC_REFUSED,
    AuthorizedCaller,
    RowRights,
    need_of_topic,
)

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.serving.request import Handler, Request

_DESCRIBE_TOPIC = need_of_topic(AclOperation.DESCRIBE)
_HIDDEN = "The group has a topic without the right to describe it."


class HeartbeatRights(Struct, frozen=True):
    """Follow a group with group Read (30) and topic Describe on each named topic (29).

    `response`: the type of the answer.
    """

    response: Callable[..., Message]

    async def __call__(
        self, _broker: BrokerParts, request: Request[Any], handler: Handler, caller: AuthorizedCaller
    ) -> Message | None:
        """Return the answer, or a refusal."""
        message = request.message
        if not caller.may(READ_GROUP, message.group_id):
            return self.response(error_code=GROUP_REFUSED)
        if not all(caller.may(_DESCRIBE_TOPIC, name) for name in message.subscribed_topic_names or ()):
            return self.response(error_code=TOPIC_REFUSED)
        return await handler(request)


class DescribeRights(Struct, frozen=True):
    """Describe groups with group Describe (30), whose members have topics with topic Describe alone (29).

    `rows`: the rights of the groups. `group`: the type of a group in the response. `topics`: the names of the topics of
    such a group.
    """

    rows: RowRights[Any, str, Any]
    group: Callable[..., Any]
    topics: Callable[[Any], set[str]]

    async def __call__(
        self, broker: BrokerParts, request: Request[Any], handler: Handler, caller: AuthorizedCaller
    ) -> Message | None:
        """Return the answer, with a refusal in place of each group that the caller may not see."""
        response: Any = await self.rows(broker, request, handler, caller)
        for index, group in enumerate(response.groups):
            if not all(caller.may(_DESCRIBE_TOPIC, name) for name in self.topics(group)):
                response.groups[index] = self.group(
                    group_id=group.group_id, error_code=TOPIC_REFUSED, error_message=_HIDDEN
                )
            elif request.message.include_authorized_operations and group.error_code != GROUP_REFUSED:
                group.authorized_operations = caller.operations(ResourceType.GROUP, group.group_id)
        answered: Message = response
        return answered


def subscribed_topics(group: Any) -> set[str]:
    """Return the names of the topics that the members of a described group subscribe to."""
    return {name for member in group.members for name in member.subscribed_topic_names}
