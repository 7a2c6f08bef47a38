"""Objects and reviews for tests, as plain JSON, and the facts that a policy asks for."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from webhook import names
from webhook.errors import Unavailable
from webhook.facts import Key, KubeVirtKey, NamespaceKey, NodesKey, SchedulerHealth, SchedulerKey, VmiKey
from webhook.k8s.types.core import NodeWithoutImages
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.kubevirt.config import DEFAULTS, ClusterConfig, KubeVirtInstall
from webhook.kubevirt.releases.capabilities import parse_version
from webhook.kubevirt.releases.release import release_of
from webhook.kubevirt.rules import rules_of
from webhook.kubevirt.types.views import VirtualMachineInstance, VmiSpec
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import Node
from webhook.policies.scheduling.settings import SchedulingSettings
from webhook.settings import model
from webhook.settings.schedulers import SchedulerSettings
from webhook.settings.section import Section
from webhook.settings_file import MODEL

CONTROLLER = "system:serviceaccount:kubevirt:kubevirt-controller"
VMI_UID = "0b8d7f3e-5f0e-4f1c-9f57-2c1d5a4be001"
AVAILABLE = SchedulerHealth("available", "its Lease was renewed")
UNAVAILABLE = SchedulerHealth("unavailable", "its Lease expired")
UNKNOWN = SchedulerHealth("unknown", "no answer yet")

Json = dict[str, Any]
S = TypeVar("S", bound=Section)


def changed(section: S, **changes: Any) -> S:
    """A section with other values, which are not validated."""
    return section.model_copy(update=changes)


def scheduler(name: str, health_check: str = "off") -> SchedulerSettings:
    """A declared scheduler."""
    return changed(SchedulerSettings(health_check=health_check), name=name)


def scheduling(**changes: Any) -> SchedulingSettings:
    """The policy's settings with `kubevirt` and `batch` declared."""
    declared = {
        "kubevirt": scheduler("kubevirt", "lease kubevirt-scheduler/kubevirt-scheduler"),
        "batch": scheduler("batch", "pods"),
    }
    return changed(SchedulingSettings(), **{"schedulers": declared, **changes})


def settings(**changes: Any) -> model.Settings:
    """A whole snapshot; keywords go to the scheduling section."""
    return changed(
        MODEL(),
        server=model.ServerSettings(listen="127.0.0.1:0", ops_listen="127.0.0.1:0", shutdown_seconds=0),
        tls=model.TlsSettings(secret_name="ca"),
        scheduling=scheduling(**changes),
        excluded_namespaces=(),
        schedulers={},
        digest="test",
    )


def launcher_pod(**spec: Any) -> Json:
    """A virt-launcher pod at CREATE; keywords go to its spec, None removes a field."""
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "web01", "uid": VMI_UID}
    metadata = {
        "generateName": "virt-launcher-web01-",
        "namespace": "demo",
        "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": VMI_UID},
        "annotations": {"kubevirt.io/domain": "web01"},
        "ownerReferences": [owner | {"controller": True}],
    }
    written = {"schedulerName": "default-scheduler", "containers": [{"name": "compute"}]} | spec
    written = {key: value for key, value in written.items() if value is not None}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": written}


def vm(scheduler: Any = ..., instancetype: Any = ..., mark: str | None = None, template_mark: Any = ...) -> Json:
    """A VM; ``...`` leaves a field out, ``mark`` stands on VM and template unless ``template_mark`` says otherwise."""
    template: Json = {"metadata": {"labels": {"app": "web"}}, "spec": {"domain": {"devices": {}}}}
    if scheduler is not ...:
        template["spec"]["schedulerName"] = scheduler
    on_template = mark if template_mark is ... else template_mark
    if on_template:
        template["metadata"]["annotations"] = {names.INJECTED_SCHEDULER_ANNOTATION: on_template}
    result: Json = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "web01", "namespace": "demo"},
        "spec": {"runStrategy": "Always", "template": template},
    }
    if instancetype is not ...:
        result["spec"]["instancetype"] = instancetype
    if mark:
        result["metadata"]["annotations"] = {names.INJECTED_SCHEDULER_ANNOTATION: mark}
    return result


_RESOURCES = {
    "Namespace": ("", "v1", "namespaces"),
    "Pod": ("", "v1", "pods"),
    "VirtualMachine": ("kubevirt.io", "v1", "virtualmachines"),
    "VirtualMachineInstance": ("kubevirt.io", "v1", "virtualmachineinstances"),
    "VirtualMachineInstanceMigration": ("kubevirt.io", "v1", "virtualmachineinstancemigrations"),
}


def review(obj: Json | None, user: str = CONTROLLER, operation: str = "CREATE", **request: Any) -> Json:
    """An AdmissionReview v1 about an object; keywords go into its request."""
    kind = (obj or request.get("oldObject") or {"kind": "Pod"})["kind"]
    group, version, plural = _RESOURCES[kind]
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": group, "version": version, "kind": kind},
            "resource": {"group": group, "version": version, "resource": plural},
            "namespace": "demo",
            "operation": operation,
            "userInfo": {"username": user, "groups": ["system:authenticated"]},
            "object": obj,
            "oldObject": None,
            "dryRun": False,
        }
        | request,
    }


def vmi(scheduler: str | None = None, uid: str = VMI_UID, name: str = "web01") -> VirtualMachineInstance:
    """A VMI as a look-up finds it."""
    return VirtualMachineInstance(ObjectMeta(name=name, uid=uid), VmiSpec(scheduler))


def namespace(mode: str | None = "enforce", **annotations: str) -> Namespace:
    """The namespace ``demo``; keywords are annotations of kubevirt-webhook, with ``_`` for ``-``."""
    ours = {f"{names.DOMAIN}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    labels = {names.policy_label(names.SCHEDULING): mode} if mode is not None else {}
    return Namespace(ObjectMeta(name="demo", labels=labels, annotations=ours))


def opted_in(
    *policies: names.PolicyName, mode: str | None = names.ENFORCE, annotations: Json | None = None
) -> dict[Key[Any], object]:
    """The namespace ``demo`` where policies have a mode: as it is watched, and as it is read."""
    labels = dict.fromkeys(map(names.policy_label, policies), mode) if mode else {}
    there = Namespace(ObjectMeta(name="demo", labels=labels, annotations=annotations))
    return {NamespaceKey("demo"): there, NamespaceKey("demo", uncached=True): there}


def config_of(version: str, configuration: Json | None = None) -> ClusterConfig:
    """The configuration of a KubeVirt of a release, such as ``1.8``."""
    parsed = parse_version(version)
    assert parsed
    return ClusterConfig.of(configuration, rules=rules_of(release_of(parsed)))


def installed(configuration: ClusterConfig | Unavailable = DEFAULTS) -> KubeVirtInstall:
    """KubeVirt in the namespace ``kubevirt``."""
    return KubeVirtInstall(frozenset({"kubevirt"}), configuration)


def zoned(**zones: str) -> NodeIndex:
    """Nodes that take VMs, by name each with its zone; empty: without one."""
    labels = {"kubernetes.io/arch": "amd64", "kubevirt.io/schedulable": "true"}
    of_zone = {name: {"topology.kubernetes.io/zone": zone} if zone else {} for name, zone in zones.items()}
    found = ({"metadata": {"name": name, "labels": labels | of_zone[name]}} for name in zones)
    return NodeIndex(read_node(each) for each in found)


def read_node(json: Any) -> Node:
    """A node of a cluster, from plain JSON."""
    return Node.of(msgspec.convert(json, NodeWithoutImages))


def known(
    vmi: VirtualMachineInstance | Unavailable | None = None,
    health: SchedulerHealth | Unavailable = AVAILABLE,
    mode: str | None = "enforce",
    name: str = "web01",
    uid: str = VMI_UID,
    **more: Any,
) -> dict[Key[Any], object]:
    """The facts of a healthy cluster in which one VMI is known."""
    there = namespace(mode, **more)
    return {
        KubeVirtKey(): installed(),
        NamespaceKey("demo"): there,
        NamespaceKey("demo", uncached=True): there,
        VmiKey("demo", name, uid): vmi,
        SchedulerKey("kubevirt", "demo"): health,
        SchedulerKey("batch", "demo"): health,
        NodesKey(): zoned(a="1", b="2"),
    }
