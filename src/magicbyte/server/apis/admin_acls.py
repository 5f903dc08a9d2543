"""DescribeAcls, CreateAcls, DeleteAcls; without an authorizer the responses say so, in fields of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magicbyte.access.security.acls import Filter
from magicbyte.engine.cluster.acls import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclOperation,
    Pattern,
    Permission,
    ResourcePattern,
    ResourceType,
)
from magicbyte.engine.cluster.principal import Principal
from magicbyte.engine.errors import ErrorCode, InvalidRequestError, MagicbyteError
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from magicbyte.engine.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from magicbyte.engine.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from magicbyte.server.serving.authorization import (
    CLUSTER_REFUSED,
    WholeRight,
    need_of_cluster,
)
from magicbyte.server.serving.request import Request
from magicbyte.server.serving.routes import FEW, MANY, MIB, ONE_NAME, Route

if TYPE_CHECKING:
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.stores.authorizer import Authorizer

_WHY: Final = "No Authorizer is configured."
_UNKNOWN, _ANY, _MATCH = range(3)
"""Numbers that no ACL has. `_MATCH`: only of patterns."""


async def describe_acls(broker: BrokerParts, request: Request[DescribeAclsRequest]) -> DescribeAclsResponse:
    """Return the ACLs that match a filter."""
    wanted = _filter(request.message)
    if (authorizer := broker.authorizer) is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_WHY)
    resources = []
    async for resource, entries in request.turns.over(authorizer.acls.of.items()):
        acls = [
            AclDescription(
                principal=str(entry.principal),
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for entry in sorted(entries)
            if wanted.takes(resource, entry)
        ]
        if acls:
            resources.append(
                DescribeAclsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    pattern_type=resource.pattern,
                    acls=acls,
                )
            )
    return DescribeAclsResponse(error_message=None, resources=resources)


async def create_acls(broker: BrokerParts, request: Request[CreateAclsRequest]) -> CreateAclsResponse:
    """Add ACLs, each by itself, except as Kafka does.

    A principal or name that is invalid refuses all of the request's ACLs for its resource. An ACL with a number that
    only filters have refuses the request, and one with the number 0 ends the connection.
    """
    creations = request.message.creations
    if any(_UNKNOWN in _numbers(each) for each in creations):
        raise InvalidRequestError("CreateAcls: expected no type, pattern, operation or permission 0 (unknown)")
    if (authorizer := broker.authorizer) is None:
        refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_WHY)
        return CreateAclsResponse(results=[refused] * len(creations))
    if any(_is_of_filters(each) for each in creations):
        why = "expected the type, pattern, operation and permission of an ACL, found those of a filter (any, match)"
        refused = AclCreationResult(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message=why)
        return CreateAclsResponse(results=[refused] * len(creations))
    results = [AclCreationResult(error_message=None) for _ in creations]
    by_resource: dict[ResourcePattern, list[int]] = {}
    for index, each in enumerate(creations):
        try:
            by_resource.setdefault(_resource(each), []).append(index)
        except InvalidRequestError as error:
            results[index] = AclCreationResult(error_code=error.code, error_message=str(error))
    for resource, indexes in by_resource.items():
        try:
            _check_name(resource)
            await authorizer.change(resource, add=frozenset(_entry(creations[index]) for index in indexes))
        except MagicbyteError as error:
            for index in indexes:
                results[index] = AclCreationResult(error_code=error.code, error_message=str(error))
    return CreateAclsResponse(results=results)


def _numbers(said: AclCreation) -> tuple[int, int, int, int]:
    return said.resource_type, said.resource_pattern_type, said.operation, said.permission_type


def _is_of_filters(said: AclCreation) -> bool:
    """Return whether an ACL has a number that stands for several ones."""
    return _ANY in _numbers(said) or said.resource_pattern_type == _MATCH


def _resource(said: AclCreation) -> ResourcePattern:
    """Return the resource of an ACL. Raises InvalidRequestError for undefined numbers."""
    try:
        Permission(said.permission_type), AclOperation(said.operation)
        return ResourcePattern(
            ResourceType(said.resource_type), said.resource_name, Pattern(said.resource_pattern_type)
        )
    except ValueError as error:
        raise InvalidRequestError(f"expected a type, a pattern, an operation and a permission: {error}") from error


def _check_name(resource: ResourcePattern) -> None:
    """Raise InvalidRequestError for a name that no node can have, or that is not the cluster's."""
    is_cluster = resource.name == CLUSTER_NAME or resource.type is not ResourceType.CLUSTER
    if not resource.name or "/" in resource.name or not is_cluster:
        raise InvalidRequestError(f"{resource.name[:80]!r} cannot be the name of a {resource.type.name} in an ACL")


def _entry(said: AclCreation) -> AccessControlEntry:
    try:
        principal = Principal.parse(said.principal)
    except InvalidRequestError as error:  # Kafka has no specific code
        raise MagicbyteError(str(error)) from error
    return AccessControlEntry(principal, Permission(said.permission_type), AclOperation(said.operation), said.host)


async def delete_acls(broker: BrokerParts, request: Request[DeleteAclsRequest]) -> DeleteAclsResponse:
    """Delete the ACLs that match filters, and return them."""
    filters = [_filter(each) for each in request.message.filters]  # all, before the first deletion
    if (authorizer := broker.authorizer) is None:
        refused = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_WHY)
        return DeleteAclsResponse(filter_results=[refused] * len(filters))
    return DeleteAclsResponse(filter_results=[await _delete(authorizer, each) for each in filters])


async def _delete(authorizer: Authorizer, wanted: Filter) -> DeleteAclsFilterResult:
    matching = []
    for resource, entries in list(authorizer.acls.of.items()):
        taken = frozenset(each for each in entries if wanted.takes(resource, each))
        if not taken:
            continue
        code, why = ErrorCode.NONE, None
        try:
            await authorizer.change(resource, remove=taken)
        except MagicbyteError as error:
            code, why = error.code, str(error)
        matching += [
            DeleteAclsMatchingAcl(
                error_code=code,
                error_message=why,
                resource_type=resource.type,
                resource_name=resource.name,
                pattern_type=resource.pattern,
                principal=str(each.principal),
                host=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in sorted(taken)
        ]
    return DeleteAclsFilterResult(error_message=None, matching_acls=matching)


def _filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> Filter:
    """Return a filter; other undefined numbers than 0 match nothing. Raises InvalidRequestError, as Kafka for a 0."""
    numbers = asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type
    if _UNKNOWN in numbers:
        raise InvalidRequestError("a filter of ACLs: expected no type, pattern, operation or permission 0 (unknown)")
    return Filter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def _creations_refused(request: Request[CreateAclsRequest]) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=CLUSTER_REFUSED) for _ in request.message.creations]
    )


def _deletions_refused(request: Request[DeleteAclsRequest]) -> DeleteAclsResponse:
    refused = [DeleteAclsFilterResult(error_code=CLUSTER_REFUSED) for _ in request.message.filters]
    return DeleteAclsResponse(filter_results=refused)


ROUTES: Final = (
    Route(
        ApiKey.DESCRIBE_ACLS,
        range(4),
        describe_acls,
        most_bytes=ONE_NAME,
        most_elements=FEW,
        rights=WholeRight(
            need_of_cluster(AclOperation.DESCRIBE), lambda _: DescribeAclsResponse(error_code=CLUSTER_REFUSED)
        ),
    ),
    Route(
        ApiKey.CREATE_ACLS,
        range(4),
        create_acls,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=WholeRight(need_of_cluster(AclOperation.ALTER), _creations_refused),
    ),
    Route(
        ApiKey.DELETE_ACLS,
        range(4),
        delete_acls,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=WholeRight(need_of_cluster(AclOperation.ALTER), _deletions_refused),
    ),
)
