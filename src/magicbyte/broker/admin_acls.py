"""DescribeAcls, CreateAcls, DeleteAcls: there is no authorizer, and each is answered so, in fields of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from magicbyte.broker.request import Handler, Request
from magicbyte.errors import ErrorCode
from magicbyte.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from magicbyte.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from magicbyte.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from magicbyte.broker.broker import Broker

_WHY: Final = "No Authorizer is configured."


async def describe_acls(_broker: Broker, _request: Request[DescribeAclsRequest]) -> DescribeAclsResponse:
    """Say that there are no rules to describe."""
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_WHY)


async def create_acls(_broker: Broker, request: Request[CreateAclsRequest]) -> CreateAclsResponse:
    """Refuse each rule."""
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_WHY)
    return CreateAclsResponse(results=[refused] * len(request.message.creations))


async def delete_acls(_broker: Broker, request: Request[DeleteAclsRequest]) -> DeleteAclsResponse:
    """Refuse each filter."""
    refused = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_WHY)
    return DeleteAclsResponse(filter_results=[refused] * len(request.message.filters))


HANDLERS: Final[Mapping[type, Handler]] = {
    DescribeAclsRequest: describe_acls,
    CreateAclsRequest: create_acls,
    DeleteAclsRequest: delete_acls,
}
