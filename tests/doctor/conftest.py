from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.cluster.fake_apiserver import ApiServers, apiservers  # noqa: F401
from tests.doctor.world import WELL, DoctorWorld, lines


@pytest.fixture
async def world(
    apiservers: ApiServers,  # noqa: F811
    tmp_path: Path,
    golden_catalogue: Callable[[str, str], None],
) -> AsyncIterator[DoctorWorld]:
    """A cluster in which all is well; what a check finds in it is held to the golden file of the check."""
    well = DoctorWorld(await apiservers.start(), tmp_path / "kubeconfig")
    well.metrics(WELL)
    yield well
    for finding in well.found:
        golden_catalogue(f"doctor/{finding.check}.txt", lines([finding]).rstrip("\n"))
