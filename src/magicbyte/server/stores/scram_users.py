"""SCRAM users, as logins ask for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from magicbyte.engine.cluster.image import credential_part
from magicbyte.server.stores.znodes.clients import sanitised

if TYPE_CHECKING:
    from magicbyte.engine.cluster.image import ClusterImage
    from magicbyte.engine.cluster.scram import Credential


def credential_of(
    image: Callable[[], ClusterImage], mechanism: str, tell: Callable[[str], None], user: str
) -> Credential | None:
    """Return a user's credential in the latest image, or None; `tell` is called with damage."""
    now = image()
    credential = now.scram_users.get(user, {}).get(mechanism)
    if credential is None and (why := now.damage.get(credential_part(user, mechanism))) is not None:
        tell(f"the {mechanism} credential of user {sanitised(user)}: {why}")
    return credential
