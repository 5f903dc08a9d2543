"""The end of a share session whose connection is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable

from magicbyte.server.apis.share_sessions import SessionKey, ShareSession, ShareSessions
from magicbyte.server.serving.request import ClientConnection
from magicbyte.server.settings.listeners import Listener

KEY = SessionKey("g", "m")
LISTENER = Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT", "127.0.0.1", 9092)


def connection() -> ClientConnection:
    return ClientConnection("127.0.0.1", "127.0.0.1:1", LISTENER)


def test_a_session_ends_on_the_loop_whichever_thread_collects_its_connection() -> None:
    lost, later = list[ShareSession](), list[Callable[[], None]]()
    sessions = ShareSessions(1, lost.append, later.append)
    held = [connection()]
    opened = sessions.open(KEY, held[0])
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert (lost, len(sessions)) == ([], 1)
    (call,) = later
    call()
    assert (lost, len(sessions)) == ([opened], 0)


def test_the_end_of_an_earlier_connection_does_not_end_a_session_that_was_opened_again() -> None:
    lost, later = list[ShareSession](), list[Callable[[], None]]()
    sessions = ShareSessions(1, lost.append, later.append)
    held = [connection()]
    sessions.open(KEY, held[0])
    held.clear()
    second = connection()
    sessions.open(KEY, second)
    for call in later:
        call()
    assert (lost, len(sessions)) == ([], 1)
