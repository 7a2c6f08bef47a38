"""Owners who change a VM after it got defaults: in every way of writing their fields win and the defaults give way.

Random manifests too, one written after the other: the VM is the one that the second makes anew.
``KUBEVIRT_PAIRS=100 make kubevirt`` tries more of them; the number in a failing test's name makes it again.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Mapping
from typing import Any

import pytest

from tests.e2e.support.kube import Json, KubeError, KubeObject, eventually
from tests.e2e.support.objects import obj
from tests.e2e.support.webhook_server import DOMAIN
from tests.e2e.support.workloads import VMS, instancetype, preference, scheduler_of
from tests.owners import CLUSTER_WIDE, DECLARING, OF_THE_NAMESPACE, OPTIONS, WAYS, WrittenField, manifest_of, marks_of

from .conftest import NewPlace
from .place import DEFAULTS, Place
from .writing import manifest, write

pytestmark = pytest.mark.kubevirt

OWN = {"kind": "VirtualMachineInstancetype", "name": "own"}
INJECTED_SCHEDULER_ANNOTATION = f"{DOMAIN}/injected-scheduler"
SCHEDULER_MARKS = {INJECTED_SCHEDULER_ANNOTATION, f"template {INJECTED_SCHEDULER_ANNOTATION}"}
FOUR: Json = {"domain": {"devices": {}, "memory": {"guest": "4Gi"}}}
every_way = pytest.mark.parametrize("way", WAYS)
as_a_whole = pytest.mark.parametrize("way", DECLARING)


@pytest.fixture
def own(new_place: NewPlace) -> Place:
    """A namespace whose defaults are its own objects, both named ``own``."""
    kinds = {"instancetype": "VirtualMachineInstancetype/own", "preference": "VirtualMachinePreference/own"}
    place = new_place({f"{DOMAIN}/default-{what}": named for what, named in kinds.items()})
    place.make(instancetype("own", cluster=False))
    place.make(preference("own"))
    return place


def of_defaults(found: Mapping[str, Any]) -> set[str]:
    """The annotations that record injected defaults."""
    return marks_of(found).keys() - SCHEDULER_MARKS


def said(found: KubeObject) -> list[str]:
    """The warnings of kubevirt-webhook."""
    return [warning for warning in found.warnings if warning.startswith("kubevirt-webhook")]


# -- another one than the default -------------------------------------------------------------------------------------


@every_way
def test_a_preference_is_inferred_where_the_owner_says_so_now(own: Place, way: str) -> None:
    own.claim("root", {"default-preference": "alpine"})
    volumes = [{"name": "root", "persistentVolumeClaim": {"claimName": "root"}}]
    write(own, way, first := manifest(template={"volumes": volumes}))

    changed = manifest(template={"volumes": volumes}, preference={"inferFromVolume": "root"})
    stored = write(own, way, changed, first)

    assert own.matchers(stored) == [OWN, {"name": "alpine"}]


@every_way
def test_a_revision_that_a_restore_pinned_gives_way_with_the_default(own: Place, way: str) -> None:
    write(own, way, first := manifest())
    own.patch(VMS, "web", {"spec": {"instancetype": {"revisionName": "some"}}})

    stored = write(own, way, manifest(instancetype={"name": "u1.medium"}), first)

    assert own.matchers(stored)[0] == {"name": "u1.medium"}


# -- fields that conflict with an injected default ---------------------------------------------------------------------


@every_way
def test_who_says_a_size_gets_a_vm_of_that_size(place: Place, way: str) -> None:
    write(place, way, first := manifest())

    stored = write(place, way, second := manifest(template=FOUR), first)

    assert place.matchers(stored) == [None, None]
    assert of_defaults(stored) == set()
    assert len(said(stored)) == (0 if way == "replace" else 1)
    again = write(place, way, second, second)
    assert (place.matchers(again), of_defaults(again)) == ([None, None], set())


@every_way
def test_who_names_an_instancetype_that_our_preference_forbids_gets_it(place: Place, way: str) -> None:
    write(place, way, first := manifest())

    stored = write(place, way, manifest(instancetype={"name": "u1.nano"}), first)

    assert place.matchers(stored) == [{"name": "u1.nano"}, None]
    assert of_defaults(stored) == set()
    assert len(said(stored)) == 1


@every_way
def test_no_default_comes_back(place: Place, way: str) -> None:
    write(place, way, first := manifest())
    write(place, way, second := manifest(template=FOUR), first)

    stored = write(place, way, first, second)

    assert place.matchers(stored) == [None, None]
    assert of_defaults(stored) == set()
    assert "size" in said(stored)[0]


# -- the scheduler -----------------------------------------------------------------------------------------------------


@as_a_whole
def test_a_scheduler_that_the_owner_declares_is_the_owners(place: Place, way: str) -> None:
    place.make(instancetype("placed", cluster=False, scheduler="volcano", memory={"guest": "2Gi"}))
    write(place, way, first := manifest())
    chosen = {"domain": {"devices": {}}, "schedulerName": "kubevirt"}

    stored = write(place, way, second := manifest(run="Manual", template=chosen), first)

    assert scheduler_of(stored) == "kubevirt"
    assert marks_of(stored).keys() & SCHEDULER_MARKS == set()
    named = {"kind": "VirtualMachineInstancetype", "name": "placed"}
    with pytest.raises(KubeError, match=r"spec\.template\.spec\.schedulerName conflicts"):
        write(place, way, manifest(template=chosen, instancetype=named), second)


def clone(place: Place, **filters: Any) -> KubeObject:
    """A clone of the VM ``web``, by KubeVirt's own controller."""
    vm = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine"}
    spec = {"source": {**vm, "name": "web"}, "target": {**vm, "name": "copy"}, **filters}
    place.make(obj("VirtualMachineClone", "copy", spec=spec))
    return eventually(lambda: place.get(VMS, "copy"), what="the clone")


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


# -- sizes -------------------------------------------------------------------------------------------------------------


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
