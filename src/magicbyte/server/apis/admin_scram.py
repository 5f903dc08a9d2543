"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from magicbyte.access.security.scram import LEAST_ITERATIONS
from magicbyte.access.security.server import credential_of_salted
from magicbyte.engine.cluster.acls import AclOperation, ResourceType
from magicbyte.engine.cluster.scram import Credential
from magicbyte.engine.errors import ErrorCode, MagicbyteError, MetadataError, SecurityError
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from magicbyte.engine.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from magicbyte.server.metadata import layout
from magicbyte.server.serving.authorization import (
    CLUSTER_REFUSED,
    AuthorizedCaller,
    WholeRight,
    need_of_cluster,
)
from magicbyte.server.serving.request import Request
from magicbyte.server.serving.routes import MANY, MIB, Route
from magicbyte.server.stores.cluster import config_change_notification
from magicbyte.server.stores.scram_users import change_of
from magicbyte.server.stores.topic_nodes import children, settings_of
from magicbyte.server.stores.znodes.clients import USERS, sanitised

if TYPE_CHECKING:
    from magicbyte.engine.ports import MetadataStore
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.serving.request import Handler

_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_STEPS: Final = 10  # for a user
_MOST_ITERATIONS: Final = 16_384


async def describe(
    broker: BrokerParts, request: Request[DescribeUserScramCredentialsRequest]
) -> DescribeUserScramCredentialsResponse:
    """Return the mechanisms for which users have credentials, never more of them."""
    asked = Counter(each.name for each in request.message.users or ())
    reading = broker.runtime.reading
    stored = await reading.run(children, broker.metadata, f"{layout.CONFIG}/{USERS}")
    names = asked or [unquote(each) for each in sorted(stored) if each != layout.DEFAULT_ENTITY]
    results = []
    async for name in request.turns.over(names, _STEPS):
        result = DescribeUserScramCredentialsResult(user=name, error_message=None)
        if asked[name] > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = "Cannot describe SCRAM credentials for the same user twice in a single request"
        else:
            try:
                result.credential_infos = await reading.run(_infos, broker.metadata, name)
            except (SecurityError, MetadataError) as error:
                result.error_code, result.error_message = ErrorCode.UNKNOWN_SERVER_ERROR, str(error)
            if not result.credential_infos and not result.error_code:
                if not asked:
                    continue
                result.error_code = ErrorCode.RESOURCE_NOT_FOUND
                result.error_message = "Attempt to describe a user credential that does not exist"
        results.append(result)
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _infos(metadata: MetadataStore, user: str) -> list[CredentialInfo]:
    own = settings_of(metadata, USERS, sanitised(user))
    return [
        CredentialInfo(mechanism=number, iterations=Credential.load(own[name]).iterations)
        for number, name in _MECHANISMS.items()
        if name in own
    ]


async def alter(
    broker: BrokerParts, request: Request[AlterUserScramCredentialsRequest]
) -> AlterUserScramCredentialsResponse:
    """Set and delete credentials: all changes of a user, or none."""
    message, wanted = request.message, dict[str, dict[str, str | None]]()
    faults: dict[str, tuple[ErrorCode, str]] = {}
    named: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*message.deletions, *message.upsertions]
    async for named_user in request.turns.over(named, _STEPS):
        changes = wanted.setdefault(named_user.name, {})
        mechanism = _MECHANISMS.get(named_user.mechanism, "")
        if not named_user.name:
            faults[named_user.name] = ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
        elif not mechanism:
            faults.setdefault(named_user.name, (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"))
        elif mechanism in changes:
            faults[named_user.name] = (
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )  # fmt: skip
        changes[mechanism] = None
    async for user in request.turns.over(message.upsertions, _STEPS):
        if user.name in faults:
            continue
        if not LEAST_ITERATIONS <= user.iterations <= _MOST_ITERATIONS:
            why = f"expected {LEAST_ITERATIONS} to {_MOST_ITERATIONS} iterations, found {user.iterations}"
            faults[user.name] = ErrorCode.UNACCEPTABLE_CREDENTIAL, why
        elif not user.salt or not user.salted_password:
            faults[user.name] = ErrorCode.UNKNOWN_SERVER_ERROR, "expected a salt and a salted password"
        else:
            name = _MECHANISMS[user.mechanism]
            kept = credential_of_salted(name, bytes(user.salted_password), bytes(user.salt), user.iterations)
            wanted[user.name][name] = kept.dump()
    async for gone in request.turns.over(message.deletions, _STEPS):
        if gone.name in faults:
            continue
        try:
            own = await broker.runtime.reading.run(settings_of, broker.metadata, USERS, sanitised(gone.name))
        except MetadataError as error:
            faults[gone.name] = error.code, str(error)
            continue
        if _MECHANISMS[gone.mechanism] not in own:
            why = "Attempt to delete a user credential that does not exist"
            faults[gone.name] = ErrorCode.RESOURCE_NOT_FOUND, why
    for name, changes in wanted.items():
        if name not in faults:
            try:
                await _change(broker, name, changes)
            except MagicbyteError as error:
                faults[name] = error.code, str(error)
    return AlterUserScramCredentialsResponse(results=[_result(name, faults.get(name)) for name in wanted])


async def _change(broker: BrokerParts, name: str, changes: Mapping[str, str | None]) -> None:
    runtime, store = broker.runtime, broker.metadata
    now_ms = runtime.clock.now_ms()

    def change() -> None:
        told = config_change_notification(store, USERS, sanitised(name), now_ms, runtime.config.tree_protocol)
        store.transaction([change_of(store, name, changes), *told])

    async with runtime.directory:  # quotas are in the same node, so their changes hold the same lock
        await runtime.writing.run(change)


def _result(name: str, fault: tuple[ErrorCode, str] | None) -> AlterUserScramCredentialsResult:
    code, why = fault or (ErrorCode.NONE, None)
    return AlterUserScramCredentialsResult(user=name, error_code=code, error_message=why)


async def _authorized_alter_scram(
    _broker: BrokerParts, request: Request[AlterUserScramCredentialsRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Change credentials with cluster Alter (31 per user)."""
    if caller.has(AclOperation.ALTER, ResourceType.CLUSTER):
        return await handler(request)
    message = request.message
    names = dict.fromkeys([*(each.name for each in message.deletions), *(each.name for each in message.upsertions)])
    results = [AlterUserScramCredentialsResult(user=each, error_code=CLUSTER_REFUSED) for each in names]
    return AlterUserScramCredentialsResponse(results=results)


ROUTES: Final = (
    Route(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        range(1),
        describe,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=WholeRight(
            need_of_cluster(AclOperation.DESCRIBE),
            lambda _: DescribeUserScramCredentialsResponse(error_code=CLUSTER_REFUSED),
        ),
    ),
    Route(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        range(1),
        alter,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=_authorized_alter_scram,
    ),
)
