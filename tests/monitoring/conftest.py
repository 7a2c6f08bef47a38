from __future__ import annotations

import os
from pathlib import Path

import pytest

from hack.debian import MissingError, ensure


@pytest.fixture(scope="session")
def prometheus() -> Path:
    """The directory with prometheus and promtool; where there is none, and none to be had, tests are skipped."""
    try:
        return ensure("prometheus", ("prometheus", "promtool"), os.environ)
    except MissingError as reason:
        pytest.skip(str(reason))
