"""From a VM to the VMI that virt-controller creates (KubeVirt, pkg/virt-controller/watch/vm, setupVMIFromVM).

The steps stand in virt-controller's order, on which much depends: default disks before the preference, the default
interface after the early preferences. Steps that are no part of the machine (the name of the VM's own revision, changed
block tracking, receivers of decentralized migrations) are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from uuid import UUID, uuid5

from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.defaults import vmi_spec
from webhook.kubevirt.go_json.origins import Origin, Origins
from webhook.kubevirt.go_json.structs import Json, copy_json, decode, encode
from webhook.kubevirt.instancetype import apply as apply_instancetype
from webhook.kubevirt.instancetype import revision
from webhook.kubevirt.instancetype.apply import VMI_BASE
from webhook.kubevirt.instancetype.conflict import Conflicts, Rejection
from webhook.kubevirt.instancetype.matcher import INSTANCETYPE_MATCHER, MATCHERS, PREFERENCE_MATCHER
from webhook.kubevirt.preference import apply as apply_preference
from webhook.kubevirt.rules import Rules
from webhook.kubevirt.vm.manifest import read_vm
from webhook.kubevirt.webhooks import vmi_mutator

_UUIDS: Final = UUID("6a1a24a1-4061-4607-8bf4-a3963d0c5895")
_FINALIZER: Final = "kubevirt.io/virtualMachineControllerFinalize"


class Built:
    """A VMI under construction, decoded.

    Args:
        vmi: the decoded VMI to start from; changed.
        rules: the rules of the release that constructs it.
        traced: remember the origin of every field, which takes time.

    Attributes:
        vmi: its content so far.
        origins: the origin of each of its fields; empty where they are not traced.
        rules: the rules of the release that constructs it.
    """

    def __init__(self, vmi: Json, rules: Rules, *, traced: bool = True) -> None:
        self.vmi: Final = vmi
        self.rules: Final = rules
        self.origins: Final = Origins(vmi if traced else {})

    def to_json(self) -> Json:
        """The VMI as KubeVirt writes it, plain JSON."""
        return encode(self.rules.types.vmi, self.vmi)


def build(
    vm: Any,
    found_instancetype: Any = None,
    found_preference: Any = None,
    configuration: ClusterConfig = DEFAULTS,
) -> Json:
    """The VMI that virt-controller creates for a VM.

    Args:
        vm: plain JSON.
        found_instancetype: the whole object, live or from its revision, plain JSON; None for none.
        found_preference: the whole object, live or from its revision, plain JSON; None for none.
        configuration: the cluster's settings.

    Returns:
        A new object that shares nothing with the arguments. `webhook.kubevirt.webhooks.vmi_mutator` says what
        KubeVirt's own webhook then makes of it.

    Raises:
        Conflicts: the VM and the instancetype set the same fields.
        Rejection: the default network interface is forbidden, or KubeVirt would crash.
        InputError: an object is malformed.
    """
    return trace(vm, found_instancetype, found_preference, configuration).to_json()


def trace(
    vm: Any,
    found_instancetype: Any = None,
    found_preference: Any = None,
    configuration: ClusterConfig = DEFAULTS,
) -> Built:
    """The VMI that virt-controller creates for a VM, still decoded, with the origin of every field.

    Args:
        vm: plain JSON.
        found_instancetype: the whole object, live or from its revision, plain JSON; None for none.
        found_preference: the whole object, live or from its revision, plain JSON; None for none.
        configuration: the cluster's settings.

    Raises:
        Conflicts: the VM and the instancetype set the same fields.
        Rejection: the default network interface is forbidden, or KubeVirt would crash.
        InputError: an object is malformed.
    """
    rules = configuration.rules
    decoded = read_vm(vm, rules)
    wanted = [
        None if whole is None else decode(matcher.shape(rules), whole, matcher.field)
        for matcher, whole in zip(MATCHERS, (found_instancetype, found_preference), strict=True)
    ]
    built = start(decoded, wanted[1], configuration)
    apply(built, decoded, wanted[0], wanted[1])
    return built


def explain(
    vm: Any,
    found_instancetype: Any = None,
    found_preference: Any = None,
    configuration: ClusterConfig = DEFAULTS,
    new_uuid: Callable[[], str] = str,
) -> tuple[Json, dict[str, Origin]]:
    """The VMI as it is stored, after KubeVirt's own webhook, and where each of its fields came from.

    Args:
        vm: plain JSON.
        found_instancetype: the whole object, live or from its revision, plain JSON; None for none.
        found_preference: the whole object, live or from its revision, plain JSON; None for none.
        configuration: the cluster's settings.
        new_uuid: makes the firmware's UUID; it is not needed, since virt-controller derives the UUID from the name.

    Returns:
        The VMI and, for every leaf's path, its origin.

    Raises:
        Conflicts: the VM and the instancetype set the same fields.
        Rejection: the default network interface is forbidden, the architecture is not known, or KubeVirt would deny the
            VMI or crash.
        InputError: an object is malformed.
    """
    built = trace(vm, found_instancetype, found_preference, configuration)
    vmi_mutator.mutate(built.vmi, configuration, new_uuid, built.origins.note)
    stored = built.to_json()
    return stored, built.origins.by_path(stored)


def start(vm: Json, found_preference: Json | None, configuration: ClusterConfig, *, traced: bool = True) -> Built:
    """All steps before the instancetype.

    Args:
        vm: decoded.
        found_preference: the whole object, decoded; None for none.
        configuration: the cluster's settings.
        traced: remember the origin of every field.

    Raises:
        Rejection: the default network interface is forbidden.
    """
    template, metadata = vm["spec"]["template"], vm["metadata"]
    own = {key: metadata[key] for key in ("name", "namespace") if key in metadata}
    inherited = {key: value for key, value in template["metadata"].items() if key not in ("namespace", "generateName")}
    built = Built(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {**copy_json(inherited), **own},
            "spec": copy_json(template["spec"]),
            "status": {},
        },
        configuration.rules,
        traced=traced,
    )
    spec, note = built.vmi["spec"], built.origins.note
    _requests(vm, spec)
    firmware = spec["domain"].setdefault("firmware", {})
    firmware["uuid"] = firmware.get("uuid") or str(uuid5(_UUIDS, metadata.get("name", "")))
    built.vmi["metadata"]["ownerReferences"] = [revision.owner_reference(vm)]
    vmi_spec.disks(spec)
    annotations = built.vmi["metadata"].setdefault("annotations", {})
    annotations["kubevirt.io/vm-generation"] = str(metadata.get("generation", 0))
    if vm["spec"].get("runStrategy") == "WaitAsReceiver":
        annotations["kubevirt.io/create-migration-target"] = "true"
    built.vmi["metadata"]["finalizers"] = [*built.vmi["metadata"].get("finalizers", []), _FINALIZER]
    note(Origin.KUBEVIRT)
    apply_preference.autoattach(None if found_preference is None else found_preference["spec"], spec)
    note(Origin.PREFERENCE)
    vmi_spec.input_device(spec)
    note(Origin.KUBEVIRT)
    vmi_spec.network_interface(spec, configuration)
    note(configuration.origin("network_interface"))
    return built


def apply(built: Built, vm: Json, found_instancetype: Json | None, found_preference: Json | None) -> None:
    """The instancetype, the preference, and their names.

    Args:
        built: after `start`; changed.
        vm: decoded.
        found_instancetype: the whole object, decoded; None for none.
        found_preference: the whole object, decoded; None for none.

    Raises:
        Conflicts: the VM and the instancetype set the same fields.
        Crash: KubeVirt would crash.
    """
    annotations = built.vmi["metadata"]["annotations"]
    for matcher, whole in ((INSTANCETYPE_MATCHER, found_instancetype), (PREFERENCE_MATCHER, found_preference)):
        given = vm["spec"].get(matcher.field)
        if whole is not None and given is not None:
            # An unknown kind, which a revision's name makes up for, has no annotation.
            with suppress(Rejection):
                annotations[matcher.name_annotation(matcher.kind(vm))] = given.get("name", "")
    built.origins.note(Origin.KUBEVIRT)
    conflicts = apply_instancetype.apply(
        None if found_instancetype is None else found_instancetype["spec"],
        None if found_preference is None else found_preference["spec"],
        built.vmi["spec"],
        annotations,
        VMI_BASE,
        built.origins.note,
        built.rules,
    )
    if conflicts:
        raise Conflicts(conflicts).in_vmi()


def _requests(vm: Json, spec: Json) -> None:
    """What the VM's status requests of the next VMI: to start paused, and to leave out the volume of a memory dump."""
    requests = vm["status"].get("stateChangeRequests")
    first = requests[0] if isinstance(requests, list) and requests else None
    if isinstance(first, dict) and first.get("action") == "Start":
        data = first.get("data")
        if isinstance(data, dict) and data.get("paused") == "true":
            spec["startStrategy"] = "Paused"
    dump = vm["status"].get("memoryDumpRequest")
    if isinstance(dump, dict) and dump.get("phase") not in ("Associating", "InProgress"):
        # KubeVirt has named the volume after the claim; it looks for nothing but the name.
        claim = dump.get("claimName", "")
        spec["volumes"] = [volume for volume in spec.get("volumes", []) if volume["name"] != claim]
