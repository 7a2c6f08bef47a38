"""Owners who change a VM after it got defaults: in every way of writing their fields win and the defaults give way.

Random manifests too, one written after the other: the VM is the one that the second makes anew.
``KUBEVIRT_PAIRS=100 make kubevirt`` tries more of them; the number in a failing test's name makes it again.
"""

from __future__ import annotations

import copy
import os
import random

import pytest

from tests.e2e.support.kube import Json, KubeError, KubeObject, eventually
from tests.e2e.support.objects import obj
from tests.e2e.support.webhook_server import DOMAIN
from tests.e2e.support.workloads import instancetype, preference, scheduler_of
from tests.owners import CLUSTER_WIDE, OF_THE_NAMESPACE, OPTIONS, WAYS, WrittenField, manifest_of, marks_of

from .conftest import NewPlace
from .owners import clone, manifest, write
from .place import DEFAULTS, Place

pytestmark = pytest.mark.kubevirt

INJECTED_SCHEDULER_ANNOTATION = f"{DOMAIN}/injected-scheduler"
SCHEDULER_MARKS = {INJECTED_SCHEDULER_ANNOTATION, f"template {INJECTED_SCHEDULER_ANNOTATION}"}


@pytest.fixture
def own(new_place: NewPlace) -> Place:
    """A namespace whose defaults are its own objects, both named ``own``."""
    kinds = {"instancetype": "VirtualMachineInstancetype/own", "preference": "VirtualMachinePreference/own"}
    place = new_place({f"{DOMAIN}/default-{what}": named for what, named in kinds.items()})
    place.make(instancetype("own", cluster=False))
    place.make(preference("own"))
    return place


OTHERS = ["*", f"!{DOMAIN}.*"]


@pytest.mark.parametrize("filters", [{"annotationFilters": OTHERS}, {"template": {"annotationFilters": OTHERS}}])
def test_a_clone_without_some_of_our_marks_gets_them_back(place: Place, filters: Json) -> None:
    write(place, "replace", manifest())

    copied = clone(place, **filters)

    assert scheduler_of(copied) == "kubevirt"
    assert marks_of(copied).keys() >= SCHEDULER_MARKS


def test_a_clone_without_any_of_our_marks_is_known_by_its_scheduler(new_place: NewPlace) -> None:
    """The admin's settings say that only the webhook ever chooses that scheduler."""
    place = new_place(DEFAULTS | {f"{DOMAIN}/scheduler-name": "ours-alone"})
    write(place, "replace", manifest())

    copied = clone(place, annotationFilters=OTHERS, template={"annotationFilters": OTHERS})

    assert scheduler_of(copied) == "ours-alone"
    assert marks_of(copied).keys() >= SCHEDULER_MARKS


def test_a_vm_of_a_preset_has_a_size(place: Place) -> None:
    domain = {"devices": {}, "resources": {"requests": {"memory": "3Gi"}}}
    spec = {"selector": {"matchLabels": {"size": "large"}}, "domain": domain}
    place.make(obj("VirtualMachineInstancePreset", "large", spec=spec))
    sized = manifest(run="Always")
    sized["spec"]["template"]["metadata"] = {"labels": {"size": "large"}}

    def left_alone() -> KubeObject | None:
        found = place.make(copy.deepcopy(sized), dryRun="All")
        return found if place.matchers(found) == [None, None] else None

    eventually(left_alone, what="the preset to be seen")
    write(place, "replace", sized)

    assert place.running()["spec"]["domain"]["resources"]["requests"]["memory"] == "3Gi"


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
