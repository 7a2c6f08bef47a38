"""Whether a VMI is what its VM makes of it, long after virt-controller has created it.

The VMI is built once more, from the VM and the revisions that it was started with, and compared field by field. What
others may change in a VMI's spec meanwhile is left out here, each with its reason. What needs a change of the VM (live
updates of CPUs, memory, node selector and affinity, plugged interfaces, moved volumes) makes the two incomparable.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from webhook import names
from webhook.kubevirt import webhooks
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.go_json.origins import FieldOrigin, Origins, leaves
from webhook.kubevirt.go_json.structs import Json, decode, encode
from webhook.kubevirt.instancetype.find import MATCHERS
from webhook.kubevirt.rejection import Get, Rejection
from webhook.kubevirt.releases.capabilities import SUPPORTED_VERSIONS
from webhook.kubevirt.releases.release import release_of
from webhook.kubevirt.rules import read_vm, rules_of
from webhook.kubevirt.vm.controller import Round

_GENERATION: Final = "kubevirt.io/vm-generation"
_PRESET: Final = "virtualmachinepreset.kubevirt.io/"
_ABSENT: Final = object()


class Incomparable(Exception):  # noqa: N818 - a state of affairs
    """A VM and its VMI say nothing about each other; the text is the cause, a clause."""


def revisions(vm: Any) -> list[str]:
    """The ControllerRevisions that a VM, plain JSON, was started with, by name.

    Raises:
        Incomparable: what the VM names was not captured.
        InputError: the VM is malformed.
    """
    # The matchers are the same in every release.
    read, named = read_vm(vm), []
    for matcher in MATCHERS:
        vm_matcher = read["spec"].get(matcher.field)
        if vm_matcher is None:
            continue
        name = vm_matcher.get("revisionName") or matcher.captured_name(read)
        if not name:
            raise Incomparable(f"the VM's {matcher.field} was not captured")
        named.append(name)
    return named


def differences(vm: Any, vmi: Any, get: Get, configuration: ClusterConfig) -> dict[str, FieldOrigin | None]:
    """Where a VMI differs from what its VM makes of it.

    Both are plain JSON. The VMI is read before the VM, so that a change between the two shows in the VM's generation.

    Returns:
        By the paths of leaves, for example ``spec.domain.devices.disks[0].disk.bus``, sorted, the origin that should
        have set each; None where no origin should have. Without leaves that the cluster's settings decide, which may
        have been others at the time, and empty where the VMI is what an older release of KubeVirt makes of the VM.

    Raises:
        Incomparable: the VM has changed since, the VMI is not its, or others have a hand in it.
        Rejection: the VM could not be started now.
        InputError: an object is malformed.
    """
    differing = _compare(vm, vmi, get, configuration)
    running = configuration.rules.release.rules_version
    # A VMI may have been started before KubeVirt was updated.
    for version in (each for each in reversed(SUPPORTED_VERSIONS) if differing and each.line < running.line):
        with suppress(Rejection):
            if not _compare(vm, vmi, get, replace(configuration, rules=rules_of(release_of(version)))):
                return {}
    return differing


def _compare(vm: Any, vmi: Any, get: Get, configuration: ClusterConfig) -> dict[str, FieldOrigin | None]:
    shape = configuration.rules.vmi
    read = decode(shape, vmi, "VirtualMachineInstance")
    decoded_vm = read_vm(vm, configuration.rules)
    _check(decoded_vm["metadata"], read["metadata"])
    _check_resized(decoded_vm, read.get("status", {}).get("virtualMachineRevisionName"))
    # Both as KubeVirt writes them.
    built, _ = _build(vm, get, configuration, traced=False)
    # What was computed loses its format when it is sent.
    expected, actual = encode(shape, encode(shape, built))["spec"], encode(shape, read)["spec"]
    _leave_out(expected, actual, read["metadata"].get("annotations", {}))
    if expected == actual:
        return {}
    built, origins = _build(vm, get, configuration, traced=True)
    by_path = origins.by_path(encode(shape, built))
    expected_leaves, actual_leaves = dict(leaves(expected, "spec")), dict(leaves(actual, "spec"))
    paths = expected_leaves.keys() | actual_leaves.keys()
    differing = sorted(path for path in paths if expected_leaves.get(path, _ABSENT) != actual_leaves.get(path, _ABSENT))
    origin_by_path = {path: by_path.get(path) if path in expected_leaves else None for path in differing}
    return {path: origin for path, origin in origin_by_path.items() if origin is not FieldOrigin.CLUSTER}


def _build(vm: Any, get: Get, configuration: ClusterConfig, *, traced: bool) -> tuple[Json, Origins]:
    """The VMI as it is stored, after KubeVirt's own webhook, decoded, and the origins of its fields."""
    vmi, origins = Round(vm, get, configuration).build(traced=traced)
    webhooks.mutate_vmi(vmi, configuration, str, origins.note)
    return vmi, origins


def _check(vm: Json, vmi: Json) -> None:
    annotations = vmi.get("annotations", {})
    owners = [owner for owner in vmi.get("ownerReferences", ()) if owner.get("controller")]
    if not any(owner["uid"] == vm.get("uid", "") for owner in owners):
        raise Incomparable("the VMI is of another VM of this name")
    if "deletionTimestamp" in vm or "deletionTimestamp" in vmi:
        raise Incomparable("it is being deleted")
    if annotations.get(_GENERATION) != str(vm.get("generation", 0)):
        raise Incomparable("the VM has changed since its start")
    if any(key.startswith(_PRESET) for key in annotations):
        # Deprecated, and no part of the port.
        raise Incomparable("a preset was applied to the VMI")


def _check_resized(vm: Json, revision: Any) -> None:
    """Check that the VMI's instancetype cannot have changed since its start.

    A VMI that was resized live keeps what was decided at its start, ``maxGuest`` for example. virt-controller writes
    the VM's present generation on a running VMI where the template has not changed, whatever became of the matchers;
    the revision of the start keeps the first one: ``revision-start-vm-UID-GENERATION``.

    Raises:
        Incomparable: the generations differ.
    """
    if not isinstance(revision, str) or not any(matcher.field in vm["spec"] for matcher in MATCHERS):
        return
    if revision.rpartition("-")[2] != str(vm["metadata"].get("generation", 0)):
        raise Incomparable("the VM's instancetype may have changed since its start")


def _leave_out(expected: Json, actual: Json, annotations: dict[str, str]) -> None:
    """Take what others may change out of both specs, which are changed."""
    # The scheduling policy sets schedulerName at the VMI's creation, and records it in an annotation.
    if "schedulerName" not in expected and annotations.get(names.INJECTED_SCHEDULER_ANNOTATION) == actual.get(
        "schedulerName"
    ):
        actual.pop("schedulerName", None)
    if "topologySpreadConstraints" not in expected and names.INJECTED_SPREAD_ANNOTATION in annotations:
        actual.pop("topologySpreadConstraints", None)
    # A request to start paused, or to wait for a migration from elsewhere, is gone from the VM once it was followed.
    if "startStrategy" not in expected:
        actual.pop("startStrategy", None)
    # Volumes of memory dumps and backups come and go.
    for spec in (expected, actual):
        spec.pop("utilityVolumes", None)
    # `virtctl addvolume` without --persist plugs into the VMI alone.
    vm_volumes = {volume["name"] for volume in expected.get("volumes", ())}
    sources = [
        (volume["name"], volume.get(kind, {}))
        for volume in actual.get("volumes", ())
        for kind in ("persistentVolumeClaim", "dataVolume", "memoryDump")
    ]
    plugged = {name for name, source in sources if source.get("hotpluggable")} - vm_volumes
    _remove_plugged(actual, "volumes", plugged)
    _remove_plugged(actual["domain"]["devices"], "disks", plugged)
    # virt-controller switches it on and off while backups are made.
    for spec in (expected, actual):
        for disk in spec["domain"]["devices"].get("disks", ()):
            disk.pop("changedBlockTracking", None)


def _remove_plugged(parent: Json, field: str, plugged: set[str]) -> None:
    kept = [item for item in parent.get(field, ()) if item["name"] not in plugged]
    if kept:
        parent[field] = kept
    else:
        parent.pop(field, None)
