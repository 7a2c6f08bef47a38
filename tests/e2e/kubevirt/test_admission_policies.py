"""What the policies of docs/admission-policies.md do beside a real KubeVirt, by themselves, as the page says it."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

import pytest

from tests.e2e.support import versions
from tests.e2e.support.kube import Json, denial, denied, eventually
from tests.e2e.support.objects import obj
from tests.e2e.support.pages import documents_under
from tests.e2e.support.workloads import MIGRATIONS, PODS, VMIS, VMS

from .control_plane import RunningKubeVirt
from .place import Place

pytestmark = [pytest.mark.kubevirt, pytest.mark.kubernetes(versions.MUTATING_POLICIES)]

PAGE = "admission-policies.md"
CLASSES = "scheduling.k8s.io/v1/priorityclasses"
SMALL: Json = {"domain": {"devices": {}, "memory": {"guest": "64Mi"}}}
DEDICATED = {"key": "dedicated", "operator": "Equal", "value": "vms", "effect": "NoSchedule"}
Bind: TypeAlias = Callable[[list[Json]], None]


@contextmanager
def bound(place: Place, documents: list[Json]) -> Iterator[None]:
    """Policies and their bindings, in the test's namespace alone."""
    for document in documents:
        if document["kind"].endswith("Binding"):
            here = {"matchLabels": {"kubernetes.io/metadata.name": place.namespace}}
            document["spec"]["matchResources"] = {"namespaceSelector": here}
        place.admin.apply(document, fieldValidation="Strict")
    try:
        yield
    finally:
        for document in reversed(documents):
            place.admin.delete(place.admin.resource_of(document), document["metadata"]["name"])


@pytest.fixture
def bind(apart: Place) -> Iterator[Bind]:
    with ExitStack() as ends:
        yield lambda documents: ends.enter_context(bound(apart, documents))


@pytest.fixture
def _vms_class(real: RunningKubeVirt) -> Iterator[None]:
    real.plane.admin.create(CLASSES, obj("PriorityClass", "vms", value=700))
    yield
    real.plane.admin.delete(CLASSES, "vms")


def probe(place: Place, template: Json = SMALL) -> Json:
    """A VMI as it would be stored."""
    return place.make(obj("VirtualMachineInstance", "probe", spec=copy.deepcopy(template)), dryRun="All")


def dry(place: Place, name: str, template: Json) -> Json:
    """A VM as it would be stored."""
    return place.make(
        obj("VirtualMachine", name, spec={"runStrategy": "Always", "template": {"spec": template}}), dryRun="All"
    )


@pytest.mark.usefixtures("_vms_class")
def test_fields_of_vmis_are_set_where_the_owner_set_none(apart: Place, bind: Bind) -> None:
    bind(documents_under(PAGE, "Fields that KubeVirt reads from the VMI"))
    eventually(lambda: probe(apart)["spec"].get("priorityClassName"), what="the policy to be in force")
    apart.vm("web", template=SMALL)
    apart.vm("own", template={**SMALL, "evictionStrategy": "None"})

    for name, strategy in (("web", "LiveMigrateIfPossible"), ("own", "None")):
        spec = apart.running(name)["spec"]
        assert (spec["evictionStrategy"], spec["priorityClassName"]) == (strategy, "vms")
    assert apart.launcher()["spec"]["priority"] == 700


def test_a_toleration_is_added_to_every_launcher_pod(apart: Place, bind: Bind) -> None:
    apart.vm("old", template=SMALL)
    apart.running("old")
    bind(documents_under(PAGE, "Tolerations"))
    mine = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}

    def is_in_force() -> bool:
        name = f"new-{secrets.token_hex(2)}"
        apart.vm(name, template=SMALL)
        return DEDICATED in apart.launcher(name)["spec"]["tolerations"]

    eventually(is_in_force, what="the policy to be in force")
    apart.vm("own", template={**SMALL, "tolerations": [mine]})
    found = apart.launcher("own")["spec"]["tolerations"]
    assert mine in found
    assert DEDICATED not in found
    assert apart.ended(apart.migrate("old")) == "Succeeded"
    assert DEDICATED in apart.launcher("old")["spec"]["tolerations"]


def selector(kind: str, group: str, resource: str, zone: str, selects: Json | None = None) -> list[Json]:
    """A policy that gives objects a node selector, beside what is there."""
    name = f"selector-{secrets.token_hex(4)}"
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}
    empty = 'JSONPatch{op: "add", path: "/spec/nodeSelector", value: {}}'
    expression = f"(has(object.spec.nodeSelector) ? [] : [{empty}])"
    expression += f' + [JSONPatch{{op: "add", path: "/spec/nodeSelector/zone", value: "{zone}"}}]'
    spec: Json = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "resourceRules": [rule],
            **({"objectSelector": {"matchLabels": selects}} if selects else {}),
        },
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    }
    version = "admissionregistration.k8s.io/v1"
    return [
        obj("MutatingAdmissionPolicy", name, version, spec=spec),
        obj("MutatingAdmissionPolicyBinding", name, version, spec={"policyName": name}),
    ]


def test_virt_controller_takes_a_node_selector_out_of_a_vmi_again(apart: Place, bind: Bind) -> None:
    bind(selector("VirtualMachineInstance", "kubevirt.io", "virtualmachineinstances", "b"))
    eventually(lambda: probe(apart)["spec"].get("nodeSelector"), what="the policy to be in force")
    apart.vm(template=SMALL)
    apart.running()
    eventually(lambda: "nodeSelector" not in apart.get(VMIS)["spec"], what="virt-controller to remove it")


def test_in_pods_it_strands_a_vm_that_runs(apart: Place, bind: Bind) -> None:
    apart.vm(template=SMALL)
    node = apart.running()["status"]["nodeName"]
    bind(selector("Pod", "", "pods", "nowhere", {"kubevirt.io": "virt-launcher"}))

    def is_in_force() -> bool:
        apart.vm(f"new-{secrets.token_hex(2)}", template=SMALL)
        return any(pod["spec"].get("nodeSelector", {}).get("zone") for pod in apart.admin.list(PODS, apart.namespace))

    eventually(is_in_force, what="the policy to be in force")
    migration = apart.migrate()
    eventually(apart.unschedulable, what="the scheduler to find no node for the target pod")
    assert apart.get(MIGRATIONS, migration["metadata"]["name"])["status"]["phase"] not in ("Succeeded", "Running")
    assert apart.running()["status"]["nodeName"] == node


def sized(sockets: int, memory: str, **cpu: Any) -> Json:
    return {"domain": {"devices": {}, "cpu": {"sockets": sockets, **cpu}, "memory": {"guest": memory}}}


def test_sizes_have_limits(apart: Place, bind: Bind) -> None:
    apart.vm("old", template=sized(4, "4Gi"))
    bind(documents_under(PAGE, "Sizes"))
    too_large = lambda: dry(apart, "probe", sized(3, "1Gi"))
    eventually(lambda: denial(too_large), what="the policy to be in force")

    for template in (sized(1, "1Gi", cores=3), sized(1, "2049Mi"), sized(2, "1Gi", threads=2)):
        assert "more than 2" in denied(lambda template=template: apart.vm("web", template=template)).message  # type: ignore[misc]
    apart.vm("web", template=sized(2, "2Gi"))
    apart.vm("named", instancetype={"name": "u1.xlarge"})
    for name in ("old", "web", "named"):
        apart.running(name)
    assert apart.ended(apart.migrate("old")) == "Succeeded"
    apart.patch(VMS, "old", {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 9}}}})
    # It takes what KubeVirt writes for the owner's.
    grown = {"spec": {"template": {"spec": {"domain": {"cpu": {"sockets": 3}}}}}}
    assert denial(lambda: apart.patch(VMS, "web", grown))


def test_names_have_a_limit(apart: Place, bind: Bind) -> None:
    bind(documents_under(PAGE, "Names"))
    eventually(lambda: denial(lambda: dry(apart, "n" * 64, SMALL)), what="the policy to be in force")
    apart.vm("n" * 63, template=SMALL)
    apart.running("n" * 63)
