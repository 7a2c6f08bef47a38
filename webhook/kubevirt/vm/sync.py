"""One round of virt-controller over a VM: capture or expand what its matchers name.

The controller's writes are returned, not made (KubeVirt, pkg/instancetype/controller/vm).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.go_json.origins import Origin, Origins
from webhook.kubevirt.go_json.structs import Json, copy_json, encode
from webhook.kubevirt.instancetype import apply as apply_instancetype
from webhook.kubevirt.instancetype import expand, revision
from webhook.kubevirt.instancetype.apply import TEMPLATE_BASE
from webhook.kubevirt.instancetype.conflict import Conflicts, Crash, NotFound, Rejection
from webhook.kubevirt.instancetype.matcher import INSTANCETYPE_MATCHER, MATCHERS, PREFERENCE_MATCHER, Matcher
from webhook.kubevirt.instancetype.store import Store
from webhook.kubevirt.lookup import Get, get_required
from webhook.kubevirt.vm import vmi
from webhook.kubevirt.vm.manifest import read_vm
from webhook.kubevirt.vm.vmi import Built

STORING: Final = "error encountered while storing instancetype.kubevirt.io controllerRevisions: "
EXPANDING: Final = "error encountered while expanding into VirtualMachine: "
UPGRADING: Final = "error encountered while upgrading instancetype.kubevirt.io controllerRevisions: "


@dataclass(frozen=True, slots=True)
class Synced:
    """What a round left.

    Attributes:
        vm: the VM with references to revisions in its status, or expanded; plain JSON.
        revisions: ControllerRevisions to create.
        deleted: the names of ControllerRevisions to delete.
    """

    vm: Json
    revisions: Sequence[Json]
    deleted: Sequence[str] = ()


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
        self._origins = Origins(self._vm)
        if earlier is not None:
            self._origins.inherit(earlier)
        self._store: Final = Store(get)
        self._configuration: Final = configuration

    def sync(self) -> Synced:
        """Find what the matchers name, then capture it or expand the VM, as the cluster's reference policy says.

        Raises:
            Conflicts: the VM and the instancetype set the same fields.
            InputError: an object is malformed.
            Rejection: an object is missing or is not an instancetype, or KubeVirt would crash.
        """
        vm, policy = self._vm, self._configuration.reference_policy
        if any(matcher.field in vm["spec"] for matcher in MATCHERS):
            specs = [matcher.find_spec(vm, self._store.get, self._rules) for matcher in MATCHERS]
            captured = [name for matcher in MATCHERS if (name := self._captured_name(matcher))]
            if policy == "expandAll" or (policy == "expand" and not captured):
                self._expand(specs, captured)
            elif policy != "expand":
                if policy == "reference":
                    self._capture()
                self._upgrade()
        return Synced(
            encode(self._rules.types.vm, self._vm), copy_json(self._store.created), tuple(self._store.deleted)
        )

    def build(self, *, traced: bool = True) -> Built:
        """The VMI that the controller then creates; after `sync`.

        Args:
            traced: remember the origin of every field.

        Raises:
            Conflicts: the VM and the instancetype set the same fields.
            Rejection: the default network interface is forbidden, or KubeVirt would crash.
            InputError: an object is malformed.
        """
        preference = PREFERENCE_MATCHER.find(self._vm, self._store.get, self._rules)
        built = vmi.start(self._vm, preference, self._configuration, traced=traced)
        instancetype = INSTANCETYPE_MATCHER.find(self._vm, self._store.get, self._rules)
        vmi.apply(built, self._vm, instancetype, preference)
        built.origins.inherit(self._origins, "spec.template.")
        return built

    @property
    def _namespace(self) -> str:
        return str(self._vm["metadata"].get("namespace", ""))

    def _captured_name(self, matcher: Matcher) -> str:
        """The name of the revision that the VM's status refers to; empty for none."""
        reference = self._vm["status"].get(matcher.reference, {}).get("controllerRevisionRef", {})
        return str(reference.get("name", ""))

    def _expand(self, specs: Sequence[Json | None], captured: Sequence[str]) -> None:
        try:
            self._vm, origins = expand.resolve(self._vm, specs[0], specs[1], self._configuration)
        except Conflicts as conflicts:
            raise Conflicts(conflicts.conflicts, f"{EXPANDING}{conflicts.what}") from None
        except Crash:
            raise
        except Rejection as rejection:
            raise Rejection(f"{EXPANDING}{rejection.what}") from None
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
        try:
            upgraded = [(matcher, name) for matcher in MATCHERS if (name := self._upgrade_revision(matcher))]
        except Crash:
            raise
        except Rejection as rejection:
            raise Rejection(f"{UPGRADING}{rejection.what}") from None
        for matcher, name in upgraded:
            with suppress(NotFound):
                self._store.delete(self._namespace, self._captured_name(matcher))
            self._vm["status"][matcher.reference]["controllerRevisionRef"]["name"] = name

    def _upgrade_revision(self, matcher: Matcher) -> str:
        """Make the new revision of an old one; its name, or empty where nothing is to be done."""
        name = self._captured_name(matcher)
        if not name or matcher.field not in self._vm["spec"]:
            return ""
        before = get_required(self._store.get, "ControllerRevision", self._namespace, name)
        if revision.latest(before):
            return ""
        held = revision.content(before, self._rules)
        if held is None:
            raise Crash(f"the ControllerRevision {name} is empty, on which KubeVirt would crash; delete it")
        made = revision.capture(self._vm, held, self._rules)
        self._store.create(made)
        return str(made["metadata"]["name"])

    def _capture(self) -> None:
        try:
            references = {matcher.reference: self._reference(matcher) for matcher in MATCHERS}
        except Conflicts as conflicts:
            raise Conflicts(conflicts.conflicts, f"{STORING}{conflicts.what}") from None
        except Rejection as rejection:
            raise Rejection(f"{STORING}{rejection.what}") from None
        self._vm["status"].update({key: reference for key, reference in references.items() if reference is not None})

    def _reference(self, matcher: Matcher) -> Json | None:
        """The reference for the VM's status; its revision is made where there is none yet."""
        given = self._vm["spec"].get(matcher.field)
        before: Json | None = self._vm["status"].get(matcher.reference)
        if given is None:
            return before
        reference: Json = copy_json(before or {})
        for key in ("name", "kind", "inferFromVolume"):
            # What was emptied in the matcher stays in the reference.
            if key in given and given[key] != reference.get(key):
                reference[key] = given[key]
                reference.pop("controllerRevisionRef", None)
        if "inferFromVolumeFailurePolicy" in given:
            reference["inferFromVolumeFailurePolicy"] = given["inferFromVolumeFailurePolicy"]
        if "revisionName" in given:
            reference["controllerRevisionRef"] = {"name": given["revisionName"]}
        if "controllerRevisionRef" not in reference:
            reference["controllerRevisionRef"] = {"name": self._store_live(matcher)}
        return reference

    def _store_live(self, matcher: Matcher) -> str:
        """Make the revision of the live object, unless it is there; its name."""
        matcher.check_storable(self._vm, self._rules)
        live = matcher.live(self._vm, self._store.get, self._rules)
        if matcher is INSTANCETYPE_MATCHER:
            self._check(live["spec"])
        made = revision.capture(self._vm, live, self._rules)
        name: str = made["metadata"]["name"]
        stored = self._store.get("ControllerRevision", self._namespace, name)
        if stored is None:
            self._store.create(made)
        elif not revision.holds(stored, made, self._rules):
            raise Rejection(f"found existing ControllerRevision with unexpected data: {name}")
        return name

    def _check(self, instancetype: Json) -> None:
        template = self._vm["spec"]["template"]
        # Of the spec a copy, of the annotations not: upstream, too, they leak from here into the VM in memory.
        annotations = template["metadata"].setdefault("annotations", {})
        conflicts = apply_instancetype.apply(
            instancetype, None, copy_json(template["spec"]), annotations, TEMPLATE_BASE, rules=self._rules
        )
        self._origins.note(Origin.INSTANCETYPE)
        if conflicts:
            raise Conflicts(conflicts)


def run(vm: Any, get: Get, configuration: ClusterConfig = DEFAULTS) -> tuple[Synced, Built]:
    """One round over a VM, and the VMI that the controller then creates.

    Args:
        vm: plain JSON.
        get: looks up instancetypes, preferences and revisions.
        configuration: the cluster's settings.

    Raises:
        Conflicts: the VM and the instancetype set the same fields.
        Rejection: an object is missing or is not an instancetype, the default network interface is forbidden, or
            KubeVirt would crash.
        InputError: an object is malformed.
    """
    whole = Round(vm, get, configuration)
    return whole.sync(), whole.build()
