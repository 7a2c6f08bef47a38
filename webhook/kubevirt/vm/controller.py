"""One round of virt-controller over a VM: capture or expand what its matchers name, then make its VMI.

The controller's writes are returned, not made (KubeVirt, pkg/instancetype/controller/vm and pkg/virt-controller/watch/
vm, setupVMIFromVM). The steps stand in virt-controller's order, on which much depends: default disks before the
preference, the default interface after the early preferences. Steps that are no part of the machine (the name of the
VM's own revision, changed block tracking, receivers of decentralized migrations) are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final
from uuid import UUID, uuid5

from webhook.kubevirt import defaults
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.go_json.origins import FieldOrigin, Origins
from webhook.kubevirt.go_json.structs import Json, copy_json, encode
from webhook.kubevirt.instancetype import preferences, revisions
from webhook.kubevirt.instancetype.apply import apply_instancetype, resolve_matchers
from webhook.kubevirt.instancetype.find import INSTANCETYPE_MATCHER, MATCHERS, PREFERENCE_MATCHER, Matcher
from webhook.kubevirt.instancetype.revision_store import RevisionStore
from webhook.kubevirt.rejection import TEMPLATE_BASE, VMI_BASE, Conflicts, Crash, Get, NotFound, Rejection, get_required
from webhook.kubevirt.releases.capabilities import STORES_MATCHERS_WITHOUT_KIND
from webhook.kubevirt.rules import read_vm

_UUIDS: Final = UUID("6a1a24a1-4061-4607-8bf4-a3963d0c5895")
_FINALIZER: Final = "kubevirt.io/virtualMachineControllerFinalize"


def _copy_template(vm: Json) -> Json:
    """The VMI with what it takes from its VM."""
    template, metadata = vm["spec"]["template"], vm["metadata"]
    own = {key: metadata[key] for key in ("name", "namespace") if key in metadata}
    inherited = {key: value for key, value in template["metadata"].items() if key not in ("namespace", "generateName")}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {**copy_json(inherited), **own},
        "spec": copy_json(template["spec"]),
        "status": {},
    }


def _complete(vmi: Json, vm: Json) -> None:
    """What virt-controller adds before preferences: firmware UUID, owner, disks, annotations and finalizer."""
    spec, metadata = vmi["spec"], vm["metadata"]
    _requests(vm, spec)
    firmware = spec["domain"].setdefault("firmware", {})
    firmware["uuid"] = firmware.get("uuid") or str(uuid5(_UUIDS, metadata.get("name", "")))
    vmi["metadata"]["ownerReferences"] = [revisions.owner_reference(vm)]
    defaults.disks(spec)
    annotations = vmi["metadata"].setdefault("annotations", {})
    annotations["kubevirt.io/vm-generation"] = str(metadata.get("generation", 0))
    if vm["spec"].get("runStrategy") == "WaitAsReceiver":
        annotations["kubevirt.io/create-migration-target"] = "true"
    vmi["metadata"]["finalizers"] = [*vmi["metadata"].get("finalizers", []), _FINALIZER]


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


@contextmanager
def _while(step: str) -> Iterator[None]:
    """Name the step that fails, as KubeVirt does."""
    try:
        yield
    except Conflicts as conflicts:
        raise Conflicts(conflicts.paths, f"error encountered while {step}: {conflicts.what}") from None
    except Crash:
        raise
    except Rejection as rejection:
        raise Rejection(f"error encountered while {step}: {rejection.what}") from None


class Round:
    """One round over one VM.

    Args:
        vm: plain JSON.
        get: looks instancetypes, preferences and revisions up.
        configuration: the cluster's.
        earlier: the origins of the VM's fields, where they are known; None: the user set all.

    Raises:
        InputError: the VM is malformed.
    """

    def __init__(
        self, vm: Any, get: Get, configuration: ClusterConfig = DEFAULTS, earlier: Origins | None = None
    ) -> None:
        self._rules: Final = configuration.rules
        self._vm = read_vm(vm, self._rules)
        self._namespace: Final = str(self._vm["metadata"].get("namespace", ""))
        self._origins = Origins(self._vm)
        if earlier is not None:
            self._origins.inherit(earlier)
        self._store: Final = RevisionStore(get)
        self._configuration: Final = configuration

    def sync(self) -> Json:
        """Find what the matchers name, then capture it or expand the VM, as the cluster's reference policy says.

        Returns:
            the VM with references to revisions in its status, or expanded; plain JSON.

        Raises:
            Conflicts: the VM and the instancetype set the same fields.
            InputError: an object is malformed.
            Rejection: an object is missing or is not an instancetype, or KubeVirt would crash.
        """
        vm, policy = self._vm, self._configuration.reference_policy
        if any(matcher.field in vm["spec"] for matcher in MATCHERS):
            specs = [matcher.find_spec(vm, self._store.get, self._rules) for matcher in MATCHERS]
            captured = [name for matcher in MATCHERS if (name := matcher.captured_name(vm))]
            if policy == "expandAll" or (policy == "expand" and not captured):
                self._expand(specs, captured)
            elif policy != "expand":
                if policy == "reference":
                    with _while("storing instancetype.kubevirt.io controllerRevisions"):
                        references = {matcher.reference: self._reference(matcher) for matcher in MATCHERS}
                    vm["status"].update({key: each for key, each in references.items() if each is not None})
                self._upgrade()
        return encode(self._rules.vm, self._vm)

    def build(self, *, traced: bool = True) -> tuple[Json, Origins]:
        """The VMI that the controller then creates; after `sync`.

        Returns:
            the VMI, decoded, for KubeVirt's own webhook to change (`webhook.kubevirt.webhooks`), and the origin of each
            of its fields; none where they are not ``traced``.

        Raises:
            Conflicts: the VM and the instancetype set the same fields.
            Rejection: the default network interface is forbidden, or KubeVirt would crash.
            InputError: an object is malformed.
        """
        vm, rules, configuration = self._vm, self._rules, self._configuration
        preference = PREFERENCE_MATCHER.find_spec(vm, self._store.get, rules)
        vmi = _copy_template(vm)
        spec, origins = vmi["spec"], Origins(vmi if traced else {})
        _complete(vmi, vm)
        origins.note(FieldOrigin.KUBEVIRT)
        preferences.autoattach(preference, spec)
        origins.note(FieldOrigin.PREFERENCE)
        defaults.input_device(spec)
        origins.note(FieldOrigin.KUBEVIRT)
        defaults.network_interface(spec, configuration)
        origins.note(configuration.origin("network_interface"))
        instancetype = INSTANCETYPE_MATCHER.find_spec(vm, self._store.get, rules)
        annotations = vmi["metadata"]["annotations"]
        for matcher in MATCHERS:
            if matcher.field in vm["spec"]:
                # An unknown kind, which a revision's name makes up for, has no annotation.
                with suppress(Rejection):
                    name = vm["spec"][matcher.field].get("name", "")
                    annotations[matcher.name_annotation(matcher.kind(vm))] = name
        origins.note(FieldOrigin.KUBEVIRT)
        apply_instancetype(instancetype, preference, spec, annotations, VMI_BASE, origins.note, rules)
        origins.inherit(self._origins, "spec.template.")
        return vmi, origins

    def _expand(self, specs: Sequence[Json | None], captured: Sequence[str]) -> None:
        with _while("expanding into VirtualMachine"):
            self._vm, origins = resolve_matchers(self._vm, specs[0], specs[1], self._configuration)
        origins.inherit(self._origins)
        self._origins = origins
        for name in captured:
            try:
                self._store.delete(self._namespace, name)
            except NotFound as missing:
                raise Rejection(
                    f"error encountered cleaning controllerRevision {name} after successfully expanding VirtualMachine "
                    f"{self._vm['metadata'].get('name', '')}: {missing.what}"
                ) from None

    def _upgrade(self) -> None:
        """Replace captured revisions whose label does not say that they are of the latest API version.

        The name in a matcher stays as it is: KubeVirt then does not find the revision any more.
        """
        with _while("upgrading instancetype.kubevirt.io controllerRevisions"):
            upgraded = [(matcher, name) for matcher in MATCHERS if (name := self._upgrade_revision(matcher))]
        for matcher, name in upgraded:
            with suppress(NotFound):
                self._store.delete(self._namespace, matcher.captured_name(self._vm))
            self._vm["status"][matcher.reference]["controllerRevisionRef"]["name"] = name

    def _upgrade_revision(self, matcher: Matcher) -> str:
        """Make the new revision of an old one; its name, or empty where nothing is to be done."""
        name = matcher.captured_name(self._vm)
        if not name or matcher.field not in self._vm["spec"]:
            return ""
        before = get_required(self._store.get, "ControllerRevision", self._namespace, name)
        if revisions.label(before, "object-version") == revisions.VERSION:
            return ""
        held = revisions.content(before, self._rules)
        if held is None:
            raise Crash(f"the ControllerRevision {name} is empty, on which KubeVirt would crash; delete it")
        made = revisions.capture(self._vm, held, self._rules)
        self._store.create(made)
        return str(made["metadata"]["name"])

    def _reference(self, matcher: Matcher) -> Json | None:
        """The reference for the VM's status; its revision is made where there is none yet."""
        vm_matcher = self._vm["spec"].get(matcher.field)
        before: Json | None = self._vm["status"].get(matcher.reference)
        if vm_matcher is None:
            return before
        reference: Json = copy_json(before or {})
        for key in ("name", "kind", "inferFromVolume"):
            # What was emptied in the matcher stays in the reference.
            if key in vm_matcher and vm_matcher[key] != reference.get(key):
                reference[key] = vm_matcher[key]
                reference.pop("controllerRevisionRef", None)
        if "inferFromVolumeFailurePolicy" in vm_matcher:
            reference["inferFromVolumeFailurePolicy"] = vm_matcher["inferFromVolumeFailurePolicy"]
        if "revisionName" in vm_matcher:
            reference["controllerRevisionRef"] = {"name": vm_matcher["revisionName"]}
        if "controllerRevisionRef" not in reference:
            reference["controllerRevisionRef"] = {"name": self._store_live(matcher)}
        return reference

    def _store_live(self, matcher: Matcher) -> str:
        """Make the revision of the live object, unless it is there; its name."""
        if not self._rules.has(STORES_MATCHERS_WITHOUT_KIND) and not self._vm["spec"][matcher.field].get("kind"):
            raise Rejection(f"got unexpected kind in {matcher.title}: ")
        live = matcher.live(self._vm, self._store.get, self._rules)
        if matcher is INSTANCETYPE_MATCHER:
            template = self._vm["spec"]["template"]
            # Of the spec a copy, of the annotations not: upstream, too, they leak from here into the VM in memory.
            spec, annotations = copy_json(template["spec"]), template["metadata"].setdefault("annotations", {})
            note = self._origins.note
            apply_instancetype(live["spec"], None, spec, annotations, TEMPLATE_BASE, note, self._rules)
        made = revisions.capture(self._vm, live, self._rules)
        name: str = made["metadata"]["name"]
        stored = self._store.get("ControllerRevision", self._namespace, name)
        if stored is None:
            self._store.create(made)
        elif not revisions.holds(stored, made, self._rules):
            raise Rejection(f"found existing ControllerRevision with unexpected data: {name}")
        return name
