"""Settings of a broker about who may do what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magicbyte.broker.settings import Setting, SettingType, boolean, integer
from magicbyte.errors import InvalidConfigError, InvalidRequestError
from magicbyte.security.principal import Principal, parse_super_users

AUTHORIZERS: Final[Sequence[str]] = (
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)


def _authorizer(text: str) -> str:
    if text and text not in AUTHORIZERS:
        raise InvalidConfigError(f"expected one of {', '.join(AUTHORIZERS)}, found {text!r}: no Java class is loaded")
    return text


def _super_users(text: str) -> frozenset[Principal]:
    try:
        return parse_super_users(text)
    except InvalidRequestError as error:
        raise InvalidConfigError(str(error)) from error


class SecuritySettings:
    """A part of `BrokerConfig`."""

    authorizer_class_name: Setting[str] = Setting(
        "authorizer.class.name",
        SettingType.STRING,
        "",
        _authorizer,
        f"{' or '.join(AUTHORIZERS)}",
        "What decides who may do what: both names stand for the ACLs in the metadata tree. Without it everybody may do "
        "everything.",
    )
    super_users: Setting[frozenset[Principal]] = Setting(
        "super.users",
        SettingType.STRING,
        "",
        _super_users,
        "principals such as User:alice, with ; between them",
        "Who may do everything, whatever ACLs say. The brokers of a cluster must be among them, or have ACLs.",
    )
    allow_everyone_if_no_acl_found = boolean(
        "allow.everyone.if.no.acl.found", False, "Allow everything to everybody where a name has no ACL at all."
    )
    connections_max_reauth_ms = integer(
        "connections.max.reauth.ms",
        0,
        "How long a login by SASL holds; a client that asks for something later without another login loses its "
        "connection. 0: for ever. listener.name.NAME.MECHANISM.connections.max.reauth.ms is for one mechanism.",
        least=0,
    )
