"""Every test that the page on the mirror's proof names is there."""

import re
from pathlib import Path

from test_checks import functions_of

PAGE = Path(__file__).parents[3] / "docs/evidence/mirror-proof.md"


def test_every_test_that_the_page_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 40
    assert not [(path, name) for path, name in named if name not in functions_of(path)]
