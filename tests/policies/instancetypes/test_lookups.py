from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.builders import Json
from tests.policies.decisions import answered
from tests.policies.instancetypes import world
from webhook.errors import InputError, Unavailable
from webhook.facts import Facts, Key, ObjectKey, Unreadable, from_memory
from webhook.k8s.types.meta import Unstructured
from webhook.kubevirt import webhooks
from webhook.kubevirt.config import DEFAULTS
from webhook.kubevirt.instancetype.find import MATCHERS
from webhook.kubevirt.resources import UNSTRUCTURED
from webhook.kubevirt.rules import NEWEST, read_vm
from webhook.policies.instancetypes.lookups import Lookups

SMALL_KIND = "VirtualMachineClusterInstancetype"
LARGE = world.instancetype("large")
OBJECTS = [
    world.instancetype(),
    world.instancetype(kind="VirtualMachineInstancetype") | {"metadata": {"name": "u1.small", "namespace": "demo"}},
    world.preference(),
    world.revision("small", world.instancetype()),
    world.revision("large", LARGE),
    world.revision("likes", world.preference()),
    world.revision("unlabelled", LARGE) | {"metadata": {"name": "unlabelled", "namespace": "demo"}},
]
BY_ID = {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in OBJECTS}

objects_named = st.sampled_from(["u1.small", "fedora", "large", "missing", ""])
revisions_named = st.sampled_from(["small", "large", "likes", "unlabelled", "missing", ""])
kinds = st.sampled_from(
    ["VirtualMachineInstancetype", "virtualmachineclusterinstancetype", "VirtualMachineClusterPreference", "Pod", ""]
)
matchers = st.fixed_dictionaries(
    {},
    optional={
        "name": objects_named,
        "kind": kinds,
        "revisionName": revisions_named,
        "inferFromVolume": st.just("root"),
    },
)
captured = st.fixed_dictionaries(
    {},
    optional={
        "name": objects_named,
        "kind": kinds,
        "controllerRevisionRef": st.fixed_dictionaries({}, optional={"name": revisions_named}),
    },
)


@st.composite
def vms(draw: st.DrawFn) -> Json:
    """VMs whose matchers and status name anything, as KubeVirt's types have them."""
    spec = draw(st.fixed_dictionaries({}, optional={each.field: matchers for each in MATCHERS}))
    status = draw(st.fixed_dictionaries({}, optional={each.reference: captured for each in MATCHERS}))
    return world.vm(**spec) | {"status": status}


def peek(key: Key[Any]) -> object:
    assert isinstance(key, ObjectKey)
    found = BY_ID.get((key.resource.kind, key.namespace, key.name))
    return None if found is None else msgspec.convert(found, Unstructured)


# A captured revision of what is named, and another kind of the same name.
REKINDED = world.vm(instancetype={"name": "u1.small", "kind": "VirtualMachineInstancetype"}) | {
    "status": {"instancetypeRef": {"kind": SMALL_KIND, "name": "u1.small", "controllerRevisionRef": {"name": "small"}}}
}


@given(vms())
@example(REKINDED)
def test_all_that_kubevirts_rules_look_up_has_been_read(vm: Json) -> None:
    """They can't wait: an object that they look up and nobody has read would be an internal error."""
    lookups = Lookups(Facts(peek=peek), "demo")
    with suppress(InputError):
        from_memory(lookups.prefetch_named(read_vm(vm, NEWEST)))

        for matcher in MATCHERS:
            for find in (matcher.find, matcher.live):
                # The policy looks at the live object, too, where the VM's status has another kind than its matcher.
                reference = vm["status"].get(matcher.reference, {})
                own = vm["spec"].get(matcher.field, {})
                differs = own.get("kind") and own["kind"] != reference.get("kind") and "revisionName" not in own
                if matcher.field in vm["spec"] and (find == matcher.find or differs):
                    with suppress(InputError):
                        find(read_vm(vm, NEWEST), lookups.get, NEWEST)
        webhooks.evaluate_vm(read_vm(vm, NEWEST), lookups.get, DEFAULTS)
        webhooks.find_denial(read_vm(vm, NEWEST), lookups.get, DEFAULTS, webhooks.remember_specs(lookups.get, NEWEST))


def test_what_a_vm_names_is_read_at_once_and_then_what_its_revisions_lead_to() -> None:
    references = {
        each.reference: {"controllerRevisionRef": {"name": name}}
        for each, name in zip(MATCHERS, ("large", "likes"), strict=True)
    }
    vm = world.vm(instancetype=world.SMALL, preference=world.FEDORA) | {"status": references}
    known: dict[Key[Any], object] = {key: peek(key) for key in map(key_of, BY_ID)}
    _, batches = answered(Lookups(Facts(), "demo").prefetch_named(read_vm(vm, NEWEST)), known)
    # The revision was captured from another instancetype, and that one counts which the VM names now.
    assert batches == [
        (key_of(("ControllerRevision", "demo", "large")), key_of(("ControllerRevision", "demo", "likes"))),
        (key_of(("VirtualMachineClusterInstancetype", "", "u1.small")),),
    ]


def test_a_matcher_that_is_still_to_be_inferred_leads_to_no_live_object() -> None:
    """So a revision that cannot be read, which an earlier matcher has left in the status, does not matter."""
    status = {each.reference: {"controllerRevisionRef": {"name": "small"}} for each in MATCHERS}
    vm = world.vm(**{each.field: {"inferFromVolume": "root"} for each in MATCHERS}) | {"status": status}
    small = key_of(("ControllerRevision", "demo", "small"))
    lookups = Lookups(Facts.of({small: Unavailable("no answer")}), "demo")
    from_memory(lookups.prefetch_named(read_vm(vm, NEWEST)))


def key_of(identity: tuple[str, str, str]) -> ObjectKey[Unstructured]:
    return ObjectKey(UNSTRUCTURED[identity[0]], *identity[1:])


def test_what_nobody_has_read_is_no_absent_object() -> None:
    lookups = Lookups(Facts(peek=lambda _: Unavailable("no answer")), "demo")
    with pytest.raises(LookupError):
        lookups.get(SMALL_KIND, "demo", "u1.small")
    with pytest.raises(Unreadable):
        from_memory(lookups.read_one(SMALL_KIND, "u1.small"))
