"""The explanation agrees with the policy."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from tests import builders
from tests.builders import Json, vm
from tests.golden_files import Golden
from webhook import names
from webhook.admission.reasons import common
from webhook.cluster.source import Cluster
from webhook.errors import InputError, Unavailable
from webhook.facts import (
    NOT_READ,
    Facts,
    KubeVirtKey,
    ListKey,
    NamespaceKey,
    NodesKey,
    ObjectKey,
    Unreadable,
    from_memory,
)
from webhook.forecast.vm import WRITTEN_INTO_VMS, BlockingLookups, SpreadAnswer, configuration_of, explain_spread
from webhook.install import cleanup
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Namespace, Unstructured
from webhook.kubevirt.config import DEFAULTS
from webhook.kubevirt.rejection import Get
from webhook.kubevirt.resources import UNSTRUCTURED_VMS, VMIS
from webhook.kubevirt.types.views import VirtualMachine, VirtualMachineInstance
from webhook.placement.index import NodeIndex
from webhook.placement.machines import PLACED_VMIS, Vmi
from webhook.policies.instancetypes import namespace_defaults
from webhook.policies.registry import BY_NAME, ENDPOINTS
from webhook.policies.scheduling import reasons as scheduling
from webhook.policies.scheduling.spread import constraints

VMS = Resource(names.KUBEVIRT_GROUP, "v1", "virtualmachines", "VirtualMachine", True, VirtualMachine)
OWN: Json = {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
LABEL = names.policy_label(names.SCHEDULING)
IMAGE = {"kind": "DataSource", "metadata": {"name": "i", "namespace": "a"}}


def answer(
    *,
    instance: Any = None,
    machine: Any = None,
    mode: str | None = "enforce",
    annotation: str = "",
    spread: str = "hostname",
    zoned: bool = True,
    kubevirt: Any = None,
    pools: dict[str, str] | None = None,
) -> SpreadAnswer:
    found = {"labels": {LABEL: mode} if mode else {}, "annotations": {names.SPREAD_ANNOTATION: annotation}}
    namespace = msgspec.convert({"metadata": {"name": "demo", **found}}, Namespace)
    whole = msgspec.convert(msgspec.to_builtins(machine), Unstructured) if isinstance(machine, VirtualMachine) else None
    placed = (
        msgspec.convert(msgspec.to_builtins(instance), Vmi) if isinstance(instance, VirtualMachineInstance) else None
    )
    facts: dict[Any, object] = {
        ObjectKey(VMIS, "demo", "web"): instance,
        ObjectKey(VMS, "demo", "web"): machine,
        ObjectKey(UNSTRUCTURED_VMS, "demo", "web"): whole,
        NamespaceKey("demo"): namespace,
        NamespaceKey("demo", uncached=True): namespace,
        KubeVirtKey(): kubevirt,
        NodesKey(): NodeIndex(
            msgspec.structs.replace(node, labels={**node.labels, "pool": (pools or {}).get(node.name, "")})
            for node in builders.zoned(a="1", b="2" if zoned else "")
        ),
        ObjectKey(PLACED_VMIS, "demo", "web"): placed,
    }
    return from_memory(explain_spread("demo", "web", builders.settings(spread=spread), Facts.of(facts)))


def instance(*found: Json, own: str = "") -> VirtualMachineInstance:
    metadata = {"name": "web", "annotations": {names.SPREAD_ANNOTATION: own} if own else None}
    spec = {"topologySpreadConstraints": list(found) or None}
    return msgspec.convert({"metadata": metadata, "spec": spec}, VirtualMachineInstance)


def machine(*found: Json, own: str = "") -> VirtualMachine:
    result = vm()
    template = result["spec"]["template"]
    if found:
        template["spec"]["topologySpreadConstraints"] = list(found)
    if own:
        template["metadata"]["annotations"] = {names.SPREAD_ANNOTATION: own}
    return msgspec.convert(result, VirtualMachine)


@pytest.mark.parametrize("kind", ["instance", "machine"])
def test_what_the_pods_get(kind: str) -> None:
    make: Any = instance if kind == "instance" else machine
    found, kept = (answer(**{kind: each}) for each in (make(), make(OWN)))
    assert (found.code, found.injected, found.present) == (scheduling.SPREAD_INJECTED, constraints("hostname"), [])
    # The owner's are kept and shown.
    assert (kept.code, kept.injected, kept.present) == (scheduling.SPREAD_CHOSEN, [], [OWN])
    assert (found.is_spread, kept.is_spread) == (True, True)
    assert found.kind == ("VirtualMachineInstance" if kind == "instance" else "VirtualMachine")


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ({"instance": instance(), "spread": "off"}, common.DISABLED),
        ({"instance": instance(own="off")}, scheduling.SPREAD_OPTED_OUT),
        ({"machine": machine(own="off")}, scheduling.SPREAD_OPTED_OUT),
        ({"instance": instance(own="rack")}, scheduling.SPREAD_INVALID),
        ({"instance": instance(), "mode": None}, common.OUT_OF_SCOPE),
        ({"instance": instance(), "mode": "off"}, common.OUT_OF_SCOPE),
        ({"instance": instance(), "mode": "on"}, common.UNKNOWN_MODE),
        ({"instance": instance(), "annotation": "off"}, common.DISABLED),
    ],
)
def test_why_they_get_none(where: dict[str, Any], code: str) -> None:
    found = answer(**where)
    assert (found.code, found.injected, found.is_spread) == (code, [], False)


@pytest.mark.parametrize("mode", ["warn", "audit"])
def test_other_modes_say_what_would_be(mode: str) -> None:
    found = answer(instance=instance(), mode=mode)
    assert (found.mode, found.injected, found.is_spread) == (mode, constraints("hostname"), False)


def test_the_namespace_and_the_owner_choose_and_zones_count_only_where_nodes_have_them() -> None:
    assert answer(instance=instance(), annotation="both", spread="off").injected == constraints("both")
    assert answer(instance=instance(own="zone"), spread="off").injected == constraints("zone")
    assert answer(instance=instance(), spread="both", zoned=False).injected == constraints("hostname")
    assert answer(machine=machine(), spread="zone", zoned=False).code == scheduling.SPREAD_WITHOUT_ZONES


def test_zones_count_on_the_nodes_that_the_clusters_configuration_leaves() -> None:
    """One of the two zones is on a node that KubeVirt's configuration excludes."""
    selecting = builders.config_of("1.9", {"developerConfiguration": {"nodeSelectors": {"pool": "vms"}}})
    for given in ({"instance": instance()}, {"machine": machine()}):
        found = answer(**given, spread="both", kubevirt=builders.installed(selecting), pools={"a": "vms"})
        assert found.injected == constraints("hostname")
        found = answer(**given, spread="both", kubevirt=builders.installed(selecting), pools={"a": "vms", "b": "vms"})
        assert found.injected == constraints("both")


def test_a_running_vms_instance_counts() -> None:
    found = answer(instance=instance(), machine=machine(OWN))
    assert (found.kind, found.code) == ("VirtualMachineInstance", scheduling.SPREAD_INJECTED)


def test_what_is_not_there_or_can_not_be_read() -> None:
    with pytest.raises(InputError, match="VirtualMachine demo/web"):
        answer()
    with pytest.raises(Unreadable, match="no right"):
        answer(instance=Unavailable("no right"))
    # A VM without a template gets constraints like any.
    bare: Any = {"metadata": {"name": "web"}}
    assert answer(machine=msgspec.convert(bare, VirtualMachine)).injected
    assert answer(instance=msgspec.convert(bare, VirtualMachineInstance)).injected


class SearchedSource(Cluster):
    """A source of objects that has one image, and denies access to claims."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    def peek(self, key: Any) -> object:
        return NOT_READ

    async def read(self, key: Any, deadline: float) -> Any:
        if isinstance(key, ListKey):
            return ()
        asked = (key.resource.kind, key.namespace, key.name)
        self.asked.append(asked)
        if asked[0] == "PersistentVolumeClaim":
            return Unavailable("no")
        return IMAGE if asked == ("DataSource", "a", "i") else None


async def test_what_was_read_is_remembered_and_what_is_missing_too() -> None:
    source = SearchedSource()
    lookups = BlockingLookups({}, source)

    def ask(get: Get) -> list[Any]:
        return [get("DataSource", "a", "i"), get("DataSource", "a", "none"), get("DataSource", "a", "i")]

    assert await lookups.run(ask) == [IMAGE, None, IMAGE]
    assert await lookups.run(ask) == [IMAGE, None, IMAGE]
    assert source.asked == [("DataSource", "a", "i"), ("DataSource", "a", "none")]


async def test_files_come_first_and_without_a_source_alone() -> None:
    found = {("DataSource", "a", "i"): {"from": "file"}}
    source = SearchedSource()
    assert await BlockingLookups(found, source).run(lambda get: get("DataSource", "a", "i")) == {"from": "file"}
    assert await BlockingLookups(found, None).run(lambda get: get("DataSource", "a", "x")) is None
    assert source.asked == []


async def test_rules_that_wait_leave_the_loops_threads_to_those_that_read() -> None:
    """aiohttp resolves names in them: look-ups that took them all would wait for each other."""

    class Resolving(SearchedSource):
        async def read(self, key: Any, deadline: float) -> Any:
            await asyncio.to_thread(bool)
            return await super().read(key, deadline)

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    lookups = [BlockingLookups({}, Resolving()) for _ in range(10)]
    async with asyncio.timeout(20):
        found = await asyncio.gather(*(each.run(lambda get: get("DataSource", "a", "i")) for each in lookups))
    assert found == [IMAGE] * 10


async def test_what_is_in_memory_takes_no_thread() -> None:
    class InMemory(SearchedSource):
        answers_at_once = True

        def peek(self, key: Any) -> object:
            return IMAGE if key.name == "i" else Unavailable("no")

    def ask(get: Get) -> tuple[object, ...]:
        return get("DataSource", "a", "i"), threading.current_thread()

    source = InMemory()
    lookups = BlockingLookups({}, source)
    assert await lookups.run(ask) == (IMAGE, threading.current_thread())
    with pytest.raises(InputError) as caught:
        await lookups.run(lambda get: get("DataSource", "a", "x"))
    assert (caught.value.where, source.asked) == ("DataSource a/x", [])


def test_a_command_that_is_interrupted_ends_although_a_rule_waits_for_an_object() -> None:
    class Stuck(SearchedSource):
        async def read(self, key: Any, deadline: float) -> Any:
            asking.set()
            await asyncio.Event().wait()

    async def interrupted() -> None:
        running = asyncio.create_task(BlockingLookups({}, Stuck()).run(lambda get: get("DataSource", "a", "i")))
        await asking.wait()
        running.cancel()
        await running

    asking = asyncio.Event()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(interrupted())


@pytest.mark.parametrize(("namespace", "place"), [("a", "a/c"), ("", "c")])
async def test_an_object_that_can_not_be_read(namespace: str, place: str, golden: Golden) -> None:
    with pytest.raises(InputError) as caught:
        await BlockingLookups({}, SearchedSource()).run(lambda get: get("PersistentVolumeClaim", namespace, "c"))
    assert caught.value.where == f"PersistentVolumeClaim {place}"
    golden(str(caught.value))


async def test_without_a_kubevirt_its_own_settings_count() -> None:
    for source in (None, SearchedSource()):
        assert (await configuration_of({}, source))[0] == DEFAULTS


def test_what_policies_write_into_vms_is_known() -> None:
    """To ``explain vm``, which calls it kubevirt-webhook's, and to ``cleanup``, which takes it back."""
    # The endpoint of groups for VMs only warns.
    writing = {each.policy for each in ENDPOINTS if each.verb == "mutate" and each.resource == "virtualmachines"}
    marks = {mark for name in writing - {"groups"} for mark in BY_NAME[name].marks}
    known = {*WRITTEN_INTO_VMS, *namespace_defaults.INJECTED_ANNOTATIONS.values()}
    assert marks == known, (
        "WRITTEN_INTO_VMS in webhook/forecast/vm.py has the fields of all policies that write into VMs"
    )
    assert marks == {*cleanup.INJECTED_ANNOTATIONS}, "webhook/install/cleanup.py takes back what all of them write"
