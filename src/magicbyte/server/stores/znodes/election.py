"""The election of the controller: `/controller` is its ephemeral node, `/controller_epoch` counts the elections."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from magicbyte.engine.cluster.brokers import ControllerElection
from magicbyte.engine.errors import BadVersionError, MetadataError, NodeExistsError, NoNodeError, UnknownOutcomeError
from magicbyte.engine.ports import CheckNode, CreateNode, DeleteNode, Node, NodeChange, SetNode
from magicbyte.engine.sentinels import NO_EPOCH
from magicbyte.server.stores.znodes import layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from magicbyte.engine.ports import Watch
    from magicbyte.server.metadata.on_loop import LoopStore

_ATTEMPTS: Final = 10  # an attempt fails only if another broker wins, or leaves, meanwhile


async def elect(
    store: LoopStore, broker_id: int, now_ms: Callable[[], int], watch: Watch | None = None
) -> ControllerElection:
    """Become the controller if there is none; return the result. `watch` is called when it changes: then elect again.

    A repeated call by the controller changes nothing. Raises NetworkError.
    """
    lost: Exception | None = None
    for _ in range(_ATTEMPTS):
        controller = await store.exists(layout.CONTROLLER, watch)
        epoch = await store.exists(layout.CONTROLLER_EPOCH)
        if controller is not None:
            return outcome(controller, epoch, store.session_id)
        try:
            await store.transaction(candidacy(epoch, broker_id, now_ms()))
        except (NodeExistsError, BadVersionError, UnknownOutcomeError) as error:
            lost = error
    raise MetadataError(layout.CONTROLLER, f"no controller after {_ATTEMPTS} elections") from lost


def candidacy(epoch: Node | None, broker_id: int, now_ms: int) -> list[NodeChange]:
    """Return the changes that make a broker the controller of the next epoch, unless another one is faster."""
    raised = b"1" if epoch is None else str(layout.load_controller_epoch(epoch.data) + 1).encode()
    return [
        CreateNode(layout.CONTROLLER, layout.dump_controller(broker_id, now_ms), ephemeral=True),
        CreateNode(layout.CONTROLLER_EPOCH, raised)
        if epoch is None
        else SetNode(layout.CONTROLLER_EPOCH, raised, epoch.version),
    ]


def outcome(controller: Node, epoch: Node | None, session_id: int) -> ControllerElection:
    """Return the result by the two nodes. Only the owner of the first wins: its earlier session does not count.

    The first controller of a release before 1.1 creates the second node a moment after the first one.
    """
    broker_id = layout.load_controller(controller.data)
    if epoch is None:
        return ControllerElection(broker_id, NO_EPOCH, NO_EPOCH, False)
    won = controller.ephemeral_owner == session_id
    return ControllerElection(broker_id, layout.load_controller_epoch(epoch.data), epoch.version, won)


async def resign(store: LoopStore, election: ControllerElection) -> None:
    """Resign, if this session is still the controller. Raises NetworkError."""
    controller = await store.exists(layout.CONTROLLER)
    if controller is not None and controller.ephemeral_owner == store.session_id:
        with contextlib.suppress(NoNodeError, BadVersionError):  # another one has been elected in between
            await store.transaction(
                [
                    CheckNode(layout.CONTROLLER_EPOCH, election.epoch_version),
                    DeleteNode(layout.CONTROLLER, controller.version),
                ]
            )
