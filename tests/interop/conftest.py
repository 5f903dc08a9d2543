"""What needs Java says so in one line where there is none; in CI that is a failure."""

import os

import pytest

from interop import jvm


@pytest.fixture(scope="session")
def needs_java() -> None:
    """Skip the test, or fail it under CI, when Java or Maven is missing."""
    lacking = jvm.missing()
    if lacking is not None:
        if os.environ.get("CI"):
            pytest.fail(lacking, pytrace=False)
        pytest.skip(lacking)
