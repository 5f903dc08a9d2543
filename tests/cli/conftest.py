"""Commands that tests of this folder run print the JSON of docs/reference/json.md."""

import pytest

from cli import json_members


@pytest.fixture(autouse=True)
def _json_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_members, "is_checking", True)
