"""Pages of numbers that are asked for with an authority, a certificate or a token."""

from __future__ import annotations

import pytest

from builders import run
from magicbyte.errors import NetworkError
from magicbyte.net.scrape import PageAccess, scrape


def test_a_page_of_another_protocol_is_refused() -> None:
    with pytest.raises(NetworkError, match="unknown url type: ftp"):
        run(scrape("ftp://127.0.0.1/metrics", PageAccess()))
