"""Objects for the API server: virtual machines by their owners, and those that KubeVirt's controllers make of them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from .kube import Json
from .objects import launcher_pod, obj, owner_reference

PODS = "v1/pods"
VMS = "kubevirt.io/v1/virtualmachines"
OLD_VMS = "kubevirt.io/v1alpha3/virtualmachines"
VMIS = "kubevirt.io/v1/virtualmachineinstances"
MIGRATIONS = "kubevirt.io/v1/virtualmachineinstancemigrations"
INSTANCETYPES = "instancetype.kubevirt.io/v1beta1/virtualmachineinstancetypes"
PREFERENCES = "instancetype.kubevirt.io/v1beta1/virtualmachinepreferences"
REVISIONS = "apps/v1/controllerrevisions"

MARK = "kubevirt-webhook.github.io/injected-scheduler"


def vm(name: str = "web", *, scheduler: str | None = None, **spec: Any) -> Json:
    """A VM as its owner writes it; keywords go into its spec, ``scheduler`` into its template where it is not None."""
    template: Json = {"metadata": {"labels": {"app": name}}, "spec": {"domain": {"devices": {}}}}
    if scheduler is not None:
        template["spec"]["schedulerName"] = scheduler
    return obj("VirtualMachine", name, spec={"runStrategy": "Always", "template": template, **spec})


def scheduler_of(workload: Mapping[str, Any]) -> str | None:
    """The scheduler that a VM's template, a VMI or a pod chooses."""
    spec = workload["spec"]
    chosen: str | None = (spec["template"]["spec"] if "template" in spec else spec).get("schedulerName")
    return chosen


def vmi_of(owner: Mapping[str, Any]) -> Json:
    """The VMI that KubeVirt makes of a VM, its template copied; of a VM without UID, a bare one."""
    template = copy.deepcopy(owner["spec"]["template"])
    made = obj("VirtualMachineInstance", **template["metadata"], spec=template["spec"])
    made["metadata"]["name"] = owner["metadata"]["name"]
    if "uid" in owner["metadata"]:
        made["metadata"]["ownerReferences"] = [owner_reference(owner)]
    return made


def launcher_of(vmi: Mapping[str, Any]) -> Json:
    """The pod that is to run a VMI, with the VMI's labels, annotations and scheduler, and no name yet."""
    name, meta = vmi["metadata"]["name"], vmi["metadata"]
    pod = launcher_pod(name, vmi=vmi, scheduler=vmi["spec"].get("schedulerName"))
    del pod["metadata"]["name"]
    pod["metadata"]["generateName"] = f"virt-launcher-{name}-"
    for field in ("labels", "annotations"):
        pod["metadata"][field] = {**meta.get(field, {}), **pod["metadata"][field]}
    return pod


def migration_of(vmi: Mapping[str, Any], name: str) -> Json:
    """The migration of a VMI, as KubeVirt makes one of an eviction."""
    annotations = {"kubevirt.io/evacuationMigration": vmi["status"]["nodeName"]}
    labels, spec = {"kubevirt.io/vmi-name": vmi["metadata"]["name"]}, {"vmiName": vmi["metadata"]["name"]}
    return obj("VirtualMachineInstanceMigration", name, labels=labels, annotations=annotations, spec=spec)


def instancetype(name: str, *, scheduler: str | None = None, cluster: bool = True, **more: Any) -> Json:
    """An instancetype, by itself or with a scheduler of its own; other keywords go into its spec."""
    spec: Json = {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}, **more}
    if scheduler is not None:
        spec["schedulerName"] = scheduler
    return obj("VirtualMachineClusterInstancetype" if cluster else "VirtualMachineInstancetype", name, spec=spec)


def preference(name: str, **spec: Any) -> Json:
    """A preference of one namespace; keywords are its spec."""
    return obj("VirtualMachinePreference", name, spec=spec)
