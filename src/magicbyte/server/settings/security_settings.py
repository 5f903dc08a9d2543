"""Settings of a broker for authorization and authentication."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magicbyte.access.security.settings import PROTOCOLS
from magicbyte.engine.cluster.principal import Principal, parse_super_users
from magicbyte.engine.errors import InvalidConfigError, InvalidRequestError
from magicbyte.server.settings.settings import Setting, SettingType, boolean, integer, text

AUTHORIZERS: Final[Sequence[str]] = (
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)


def _authorizer(text: str) -> str:
    if text and text not in AUTHORIZERS:
        raise InvalidConfigError(f"expected one of {', '.join(AUTHORIZERS)}, found {text!r}: no Java class is loaded")
    return text


def _protocol(text: str) -> str:
    if text.upper() not in PROTOCOLS:
        raise ValueError(text)
    return text.upper()


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
        "The authorizer. Both names stand for Kafka's ACLs, stored in the metadata tree. Empty: no authorization, "
        "every client may do everything.",
    )
    super_users: Setting[frozenset[Principal]] = Setting(
        "super.users",
        SettingType.STRING,
        "",
        _super_users,
        "principals such as User:alice, with ; between them",
        "The principals that may do everything, whatever the ACLs say. The brokers of a cluster must be super users "
        "or have ACLs.",
    )
    allow_everyone_if_no_acl_found = boolean(
        "allow.everyone.if.no.acl.found", False, "Whether a resource without any ACL is open to everyone."
    )
    security_inter_broker_protocol: Setting[str] = Setting(
        "security.inter.broker.protocol",
        SettingType.STRING,
        None,
        _protocol,
        f"one of {', '.join(PROTOCOLS)}",
        "How brokers of a cluster reach each other, at the listener of this name; in place of "
        "inter.broker.listener.name.",
    )
    sasl_mechanism_inter_broker_protocol = text(
        "sasl.mechanism.inter.broker.protocol",
        "GSSAPI",
        "How a broker logs in at the others, where their listener has SASL: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, "
        "with username and password of listener.name.NAME.MECHANISM.sasl.jaas.config.",
    )
    connections_max_reauth_ms = integer(
        "connections.max.reauth.ms",
        0,
        "The lifetime of a SASL login. A request after it, without re-authentication, closes the connection. 0: no "
        "limit. listener.name.NAME.MECHANISM.connections.max.reauth.ms sets it for one mechanism.",
        least=0,
    )
