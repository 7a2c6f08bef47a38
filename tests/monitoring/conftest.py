from __future__ import annotations

import os
from pathlib import Path

import pytest

from hack.prometheus import MissingError, ensure


@pytest.fixture(scope="session")
def prometheus() -> Path:
    """The directory with prometheus and promtool."""
    try:
        return ensure(os.environ)
    except MissingError as reason:
        if os.environ.get("E2E_REQUIRED") == "1":
            pytest.fail(str(reason), pytrace=False)
        pytest.skip(str(reason))
