"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from magicbyte.access.security.scram import LEAST_ITERATIONS
from magicbyte.access.security.server import credential_of_salted
from magicbyte.engine.cluster import store
from magicbyte.engine.cluster.acls import AclOperation, ResourceType
from magicbyte.engine.cluster.changes import ProposedChange, ScramCredentialChanged
from magicbyte.engine.cluster.image import credential_part, users_with_damage
from magicbyte.engine.cluster.scram import Credential
from magicbyte.engine.errors import ErrorCode, MagicbyteError, RequestRefusedError, SecurityError
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
from magicbyte.server.serving.authorization import (
    CLUSTER_REFUSED,
    AuthorizedCaller,
    WholeRight,
    need_of_cluster,
)
from magicbyte.server.serving.request import Request
from magicbyte.server.serving.routes import MANY, MIB, Route
from magicbyte.server.stores.znodes.clients import check_user, sanitised

if TYPE_CHECKING:
    from magicbyte.engine.cluster.image import ClusterImage
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
    image = broker.cluster_store.image
    names = asked or sorted(image.scram_users.keys() | users_with_damage(image.damage), key=sanitised)
    results = []
    async for name in request.turns.over(names, _STEPS):
        result = DescribeUserScramCredentialsResult(user=name, error_message=None)
        if asked[name] > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = "Cannot describe SCRAM credentials for the same user twice in a single request"
        else:
            try:
                result.credential_infos = _infos(image, name)
            except SecurityError as error:
                result.error_code, result.error_message = ErrorCode.UNKNOWN_SERVER_ERROR, str(error)
            if not result.credential_infos and not result.error_code:
                if not asked:
                    continue
                result.error_code = ErrorCode.RESOURCE_NOT_FOUND
                result.error_message = "Attempt to describe a user credential that does not exist"
        results.append(result)
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _infos(image: ClusterImage, user: str) -> list[CredentialInfo]:
    """Return the mechanisms of a user. Raises SecurityError if a credential is damaged."""
    for mechanism in _MECHANISMS.values():
        if (why := image.damage.get(credential_part(user, mechanism))) is not None:
            raise SecurityError(why)
    own = image.scram_users.get(user, {})
    return [
        CredentialInfo(mechanism=number, iterations=own[name].iterations)
        for number, name in _MECHANISMS.items()
        if name in own
    ]


async def alter(
    broker: BrokerParts, request: Request[AlterUserScramCredentialsRequest]
) -> AlterUserScramCredentialsResponse:
    """Set and delete credentials: all changes of a user, or none."""
    message, wanted = request.message, dict[str, dict[str, Credential | None]]()
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
            wanted[user.name][name] = kept
    for name, changes in wanted.items():
        if name not in faults:
            try:
                await store.change(broker.cluster_store, partial(_decide, name, changes))
            except MagicbyteError as error:
                faults[name] = error.code, str(error)
    return AlterUserScramCredentialsResponse(results=[_result(name, faults.get(name)) for name in wanted])


def _decide(user: str, changes: Mapping[str, Credential | None], image: ClusterImage) -> list[ProposedChange]:
    """Return the changes of a user's credentials.

    Raises MetadataError for an impossible name, RequestRefusedError for the deletion of a missing credential.
    """
    check_user(user)
    for mechanism, credential in changes.items():
        is_known = mechanism in image.scram_users.get(user, {}) or credential_part(user, mechanism) in image.damage
        if credential is None and not is_known:
            why = "Attempt to delete a user credential that does not exist"
            raise RequestRefusedError(ErrorCode.RESOURCE_NOT_FOUND, why)
    return [ScramCredentialChanged(user, mechanism, credential) for mechanism, credential in changes.items()]


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
