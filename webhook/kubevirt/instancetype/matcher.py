"""The two matchers of a VM, ``spec.instancetype`` and ``spec.preference``, and the objects that they name.

The same as `find` says of typed views, on plain JSON and for preferences too (KubeVirt, pkg/instancetype/find,
pkg/instancetype/preference/find).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from webhook.kubevirt.go_json.remembered import decode_remembered
from webhook.kubevirt.go_json.structs import Json, Struct
from webhook.kubevirt.instancetype import revision
from webhook.kubevirt.instancetype.conflict import Cause, Rejection
from webhook.kubevirt.lookup import Get, get_required
from webhook.kubevirt.releases.capabilities import CLEARS_NAMES_BEFORE_INFERENCE, STORES_MATCHERS_WITHOUT_KIND
from webhook.kubevirt.rules import NEWEST, Rules

_FAILURE_POLICIES: Final = ("Reject", "Ignore")


# There are these two, so that one is itself and no other: most look-ups begin with its hash.
@dataclass(frozen=True, slots=True, eq=False)
class Matcher:
    """One of the two.

    Attributes:
        field: the matcher's field in the VM's spec.
        reference: the field of its reference in the VM's status.
        title: KubeVirt's name of the type.
        annotation: the end of the VMI's annotation with the name.
    """

    field: str
    reference: str
    title: str
    annotation: str
    namespaced: str
    cluster: str

    def shape(self, rules: Rules) -> Struct:
        """The type of what it names."""
        return rules.types.by_kind[self.cluster]

    def name_annotation(self, kind: str) -> str:
        """The annotation of VMIs by which KubeVirt says what they were made with."""
        return f"kubevirt.io/{'' if kind == self.namespaced else 'cluster-'}{self.annotation}"

    def kind(self, vm: Json) -> str:
        """The kind that a VM's matcher means: the cluster-wide one where it says nothing.

        Raises:
            Rejection: it is none that there is.
        """
        return self.kind_of(vm["spec"][self.field].get("kind", ""))

    def kind_of(self, given: str) -> str:
        """The kind that a text means: in any case, singular or plural; the cluster-wide one for ``""``.

        Raises:
            Rejection: it is none that there is.
        """
        if given.lower() in ("", self.cluster.lower(), f"{self.cluster.lower()}s"):
            return self.cluster
        if given.lower() in (self.namespaced.lower(), f"{self.namespaced.lower()}s"):
            return self.namespaced
        raise Rejection(f"got unexpected kind in {self.title}: {given}")

    def live(self, vm: Json, get: Get, rules: Rules = NEWEST) -> Json:
        """The live object that a VM names, decoded, with its kind; not to be changed.

        Raises:
            Rejection: the kind is unknown or there is no such object.
            InputError: the object is malformed.
        """
        kind, name = self.kind(vm), vm["spec"][self.field].get("name", "")
        namespace = vm["metadata"].get("namespace", "") if kind == self.namespaced else ""
        stored = get_required(get, kind, namespace, name)
        decoded = decode_remembered(self.shape(rules), stored, f"{kind} {name}")
        return {**decoded, "kind": kind}

    def find(self, vm: Json, get: Get, rules: Rules = NEWEST) -> Json | None:
        """The object that counts for a VM, captured or live, not to be changed; None where the VM names none.

        Args:
            vm: decoded.
            get: looks up instancetypes, preferences and revisions.
            rules: the rules of the cluster's release of KubeVirt.

        Raises:
            Rejection: it cannot be found.
            InputError: it is malformed.
        """
        given = vm["spec"].get(self.field)
        if given is None:
            return None
        namespace = vm["metadata"].get("namespace", "")
        if "revisionName" in given:
            stored = get_required(get, "ControllerRevision", namespace, given["revisionName"])
            return revision.payload(stored, self.shape(rules), rules)
        reference = vm["status"].get(self.reference, {}).get("controllerRevisionRef", {}).get("name")
        if reference:
            stored = get_required(get, "ControllerRevision", namespace, reference)
            # The label decides, and the kind isn't compared: so it is upstream.
            if revision.label(stored) == given.get("name", ""):
                return revision.payload(stored, self.shape(rules), rules)
        return self.live(vm, get, rules)

    def find_spec(self, vm: Json, get: Get, rules: Rules = NEWEST) -> Json | None:
        """The ``spec`` of what `find` finds, not to be changed."""
        decoded = self.find(vm, get, rules)
        spec: Json | None = None if decoded is None else decoded["spec"]
        return spec

    def mistakes(self, vm: Json, rules: Rules = NEWEST) -> list[Cause]:
        """What KubeVirt's admission finds wrong in a VM's matcher by itself."""
        given = vm["spec"].get(self.field)
        if given is None:
            return []
        field, causes = f"spec.{self.field}", []
        if not given.keys() & {"name", "inferFromVolume"}:
            text = f"Either Name or InferFromVolume should be provided within the {self.title}"
            causes.append(Cause("FieldValueNotFound", text, field))
        if "inferFromVolume" in given:
            causes += [self._not_inferable(name, rules) for name in ("name", "kind") if name in given]
        policy = given.get("inferFromVolumeFailurePolicy")
        if policy is not None and policy not in _FAILURE_POLICIES:
            text = f"Invalid value '{policy}' for InferFromVolumeFailurePolicy"
            causes.append(Cause("FieldValueInvalid", text, f"{field}.inferFromVolumeFailurePolicy"))
        return causes

    def _not_inferable(self, name: str, rules: Rules) -> Cause:
        reason, text = "FieldValueNotSupported", "already set, should be cleared before setting inferFromVolume"
        if not rules.has(CLEARS_NAMES_BEFORE_INFERENCE):
            reason = "FieldValueNotFound"
            text = f"should not be provided when InferFromVolume is used within the {self.title}"
        return Cause(reason, f"{name.capitalize()} {text}", f"spec.{self.field}.{name}")

    def check_storable(self, vm: Json, rules: Rules) -> None:
        """Make sure that what a VM names can be captured.

        Raises:
            Rejection: the matcher has no kind, which stops the release.
        """
        if not rules.has(STORES_MATCHERS_WITHOUT_KIND) and not vm["spec"][self.field].get("kind"):
            raise Rejection(f"got unexpected kind in {self.title}: ")

    def stale_revision(self, vm: Json, old: Json) -> list[Cause]:
        """Why KubeVirt's admission denies an update that keeps the revision of the former name; empty if it does not.

        Args:
            vm: the VM as it is to be, decoded.
            old: the VM as it is stored, decoded.
        """
        given, before = vm["spec"].get(self.field), old["spec"].get(self.field)
        if given is None or before is None or "revisionName" not in given:
            return []
        if given.get("name") == before.get("name") or given["revisionName"] != before.get("revisionName"):
            return []
        text = "the Matcher Name has been updated without updating the RevisionName"
        return [Cause("FieldValueInvalid", text, f"spec.{self.field}.revisionName")]


INSTANCETYPE_MATCHER: Final = Matcher(
    "instancetype",
    "instancetypeRef",
    "InstancetypeMatcher",
    "instancetype-name",
    "VirtualMachineInstancetype",
    "VirtualMachineClusterInstancetype",
)
PREFERENCE_MATCHER: Final = Matcher(
    "preference",
    "preferenceRef",
    "PreferenceMatcher",
    "preference-name",
    "VirtualMachinePreference",
    "VirtualMachineClusterPreference",
)
MATCHERS: Final = (INSTANCETYPE_MATCHER, PREFERENCE_MATCHER)
