"""Random manifests, one written after the other, beside a real KubeVirt: the VM is the one that the second makes anew.

``KUBEVIRT_PAIRS=100 make kubevirt`` tries more of them; the number in a failing test's name makes it again.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.e2e.support.kube import Json, KubeError, KubeObject
from tests.e2e.support.webhook_server import DOMAIN
from tests.e2e.support.workloads import instancetype, preference
from tests.owners import CLUSTER_WIDE, OF_THE_NAMESPACE, OPTIONS, WAYS, WrittenField, manifest_of

from .conftest import NewPlace
from .place import Place
from .writing import write

pytestmark = pytest.mark.kubevirt

PAIRS = int(os.environ.get("KUBEVIRT_PAIRS", "12"))


@pytest.mark.parametrize("number", range(PAIRS))
@pytest.mark.parametrize("way", WAYS)
def test_the_second_manifest_makes_the_vm_that_it_would_make_anew(new_place: NewPlace, way: str, number: int) -> None:
    chance = random.Random(number)
    defaults, scope = chance.choice([CLUSTER_WIDE, OF_THE_NAMESPACE]), chance.choice(["unsized", "all"])
    place = new_place(
        {
            f"{DOMAIN}/default-instancetype": defaults[0],
            f"{DOMAIN}/default-preference": defaults[1],
            f"{DOMAIN}/default-preference-scope": scope,
        }
    )
    place.make(instancetype("own", cluster=False, memory={"guest": "2Gi"}))
    place.make(instancetype("placed", cluster=False, scheduler="volcano", memory={"guest": "2Gi"}))
    place.make(preference("own"))
    before, first = None, None
    while first is None:
        # A manifest that KubeVirt denies anyway cannot be the first one.
        before = manifest_of({part: chance.choice(options) for part, options in OPTIONS.items()})
        first = written(place, way, before)
    second = {part: chance.choice(options) for part, options in OPTIONS.items()}

    stored = written(place, way, manifest_of(second), before)
    created = written(place, way, manifest_of(second, "new"))

    assert list(WrittenField(way, manifest_of(second), first, stored, created).surprises()) == [], (before, second)


def written(place: Place, way: str, after: Json, before: Json | None = None) -> KubeObject | None:
    try:
        return write(place, way, after, before)
    except KubeError:
        return None
