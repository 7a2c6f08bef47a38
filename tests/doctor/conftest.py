from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.doctor.world import DoctorWorld, cluster, lines


@pytest.fixture
async def world(tmp_path: Path, golden_catalogue: Callable[[str, str], None]) -> AsyncIterator[DoctorWorld]:
    """A cluster; what a check finds in it is held to the golden file of the check."""
    async with cluster(tmp_path) as well:
        yield well
        for finding in well.found:
            golden_catalogue(f"doctor/{finding.check}.txt", lines([finding]).rstrip("\n"))
