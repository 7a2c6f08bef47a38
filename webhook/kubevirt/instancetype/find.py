"""The two matchers of a VM, ``spec.instancetype`` and ``spec.preference``, and the objects that they name.

KubeVirt, pkg/instancetype/find and pkg/instancetype/preference/find; on plain JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from webhook.admission.step_budget import spend
from webhook.errors import InputError
from webhook.kubevirt.go_json.structs import Json, Struct, decode_remembered
from webhook.kubevirt.instancetype import revisions
from webhook.kubevirt.rejection import Cause, Get, Rejection, get_required
from webhook.kubevirt.releases.capabilities import CLEARS_NAMES_BEFORE_INFERENCE
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
        namespaced: the kind in a namespace that it can name.
        cluster: the cluster-wide kind that it can name.
    """

    field: str
    reference: str
    title: str
    annotation: str
    namespaced: str
    cluster: str

    def shape(self, rules: Rules) -> Struct:
        """The type of what it names."""
        return rules.by_kind[self.cluster]

    def name_annotation(self, kind: str) -> str:
        """The annotation of VMIs by which KubeVirt says what they were made with."""
        return f"kubevirt.io/{'' if kind == self.namespaced else 'cluster-'}{self.annotation}"

    def kind(self, vm: Json) -> str:
        """The kind that a VM's matcher means: the cluster-wide one where it says nothing.

        Raises:
            Rejection: it is none that there is.
        """
        return self.kind_of(vm["spec"][self.field].get("kind", ""))

    def kind_of(self, text: str) -> str:
        """The kind that a text means: in any case, singular or plural; the cluster-wide one for ``""``.

        Raises:
            Rejection: it is none that there is.
        """
        if text.lower() in ("", self.cluster.lower(), f"{self.cluster.lower()}s"):
            return self.cluster
        if text.lower() in (self.namespaced.lower(), f"{self.namespaced.lower()}s"):
            return self.namespaced
        raise Rejection(f"got unexpected kind in {self.title}: {text}")

    def captured_name(self, vm: Json) -> str:
        """The name of the revision that a VM's status refers to; empty for none."""
        return str(vm["status"].get(self.reference, {}).get("controllerRevisionRef", {}).get("name", ""))

    def live(self, vm: Json, get: Get, rules: Rules = NEWEST) -> Json:
        """The live object that a VM names, decoded, with its kind; not to be changed.

        Raises:
            Rejection: the kind is unknown or there is no such object.
            InputError: the object is malformed.
        """
        kind, name = self.kind(vm), vm["spec"][self.field].get("name", "")
        namespace = vm["metadata"].get("namespace", "") if kind == self.namespaced else ""
        stored = get_required(get, kind, namespace, name)
        return {**decode_remembered(self.shape(rules), stored, f"{kind} {name}"), "kind": kind}

    def find(self, vm: Json, get: Get, rules: Rules = NEWEST) -> Json | None:
        """The object that counts for a decoded VM, captured or live, not to be changed; None where it names none.

        Raises:
            Rejection: it cannot be found.
            InputError: it is malformed.
        """
        vm_matcher = vm["spec"].get(self.field)
        if vm_matcher is None:
            return None
        namespace = vm["metadata"].get("namespace", "")
        if "revisionName" in vm_matcher:
            stored = get_required(get, "ControllerRevision", namespace, vm_matcher["revisionName"])
            return revisions.payload(stored, self.shape(rules), rules)
        # Most look-ups pass here: no call for this.
        reference = vm["status"].get(self.reference, {}).get("controllerRevisionRef", {}).get("name")
        if reference:
            stored = get_required(get, "ControllerRevision", namespace, reference)
            # The label decides, and the kind isn't compared: so it is upstream.
            if revisions.label(stored) == vm_matcher.get("name", ""):
                return revisions.payload(stored, self.shape(rules), rules)
        return self.live(vm, get, rules)

    def find_spec(self, vm: Json, get: Get, rules: Rules = NEWEST) -> Json | None:
        """The ``spec`` of what `find` finds, not to be changed."""
        decoded = self.find(vm, get, rules)
        spec: Json | None = None if decoded is None else decoded["spec"]
        return spec

    def mistakes(self, vm: Json, rules: Rules = NEWEST) -> list[Cause]:
        """What KubeVirt's admission finds wrong in a VM's matcher by itself."""
        vm_matcher = vm["spec"].get(self.field)
        if vm_matcher is None:
            return []
        field, causes = f"spec.{self.field}", []
        if not vm_matcher.keys() & {"name", "inferFromVolume"}:
            text = f"Either Name or InferFromVolume should be provided within the {self.title}"
            causes.append(Cause("FieldValueNotFound", text, field))
        if "inferFromVolume" in vm_matcher:
            reason, text = "FieldValueNotSupported", "already set, should be cleared before setting inferFromVolume"
            if not rules.has(CLEARS_NAMES_BEFORE_INFERENCE):
                reason = "FieldValueNotFound"
                text = f"should not be provided when InferFromVolume is used within the {self.title}"
            names = [name for name in ("name", "kind") if name in vm_matcher]
            causes += [Cause(reason, f"{name.capitalize()} {text}", f"{field}.{name}") for name in names]
        policy = vm_matcher.get("inferFromVolumeFailurePolicy")
        if policy is not None and policy not in _FAILURE_POLICIES:
            text = f"Invalid value '{policy}' for InferFromVolumeFailurePolicy"
            causes.append(Cause("FieldValueInvalid", text, f"{field}.inferFromVolumeFailurePolicy"))
        return causes

    def stale_revision(self, vm: Json, old: Json) -> list[Cause]:
        """Why KubeVirt's admission denies an update to a new name that keeps the revision; empty if it does not."""
        vm_matcher, before = vm["spec"].get(self.field), old["spec"].get(self.field)
        if vm_matcher is None or before is None or "revisionName" not in vm_matcher:
            return []
        if vm_matcher.get("name") == before.get("name") or vm_matcher["revisionName"] != before.get("revisionName"):
            return []
        text = "the Matcher Name has been updated without updating the RevisionName"
        return [Cause("FieldValueInvalid", text, f"spec.{self.field}.revisionName")]


def _matcher(field: str, name: str) -> Matcher:
    """The matcher of a field, by the name in its types."""
    kinds = (f"VirtualMachine{name}", f"VirtualMachineCluster{name}")
    return Matcher(field, f"{field}Ref", f"{name}Matcher", f"{field}-name", *kinds)


INSTANCETYPE_MATCHER: Final = _matcher("instancetype", "Instancetype")
PREFERENCE_MATCHER: Final = _matcher("preference", "Preference")
MATCHERS: Final = (INSTANCETYPE_MATCHER, PREFERENCE_MATCHER)


_LONGEST = 253


@dataclass(frozen=True, slots=True)
class SpecReference:
    """One of the four kinds, in full, and a name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    def matcher(self) -> Json:
        """The matcher that names the same object in a VM.

        A cluster-wide kind is left out, since it is KubeVirt's default: a kind in the matcher would be kept when its
        owner names another object, since all appliers merge into what is there.
        """
        return {"name": self.name} if self.is_cluster_wide else {"kind": self.kind, "name": self.name}

    @property
    def is_cluster_wide(self) -> bool:
        """Whether it is of a kind without namespaces."""
        return self.kind in (INSTANCETYPE_MATCHER.cluster, PREFERENCE_MATCHER.cluster)


def parse(matcher: Matcher, text: str, where: str) -> SpecReference:
    """What a text refers to: ``NAME`` or ``KIND/NAME``, with a kind as KubeVirt accepts it (`Matcher.kind_of`).

    Raises:
        InputError: it is neither, or the kind is none of the matcher's.
    """
    kind, slash, name = text.rpartition("/")
    if not name or max(len(kind), len(name)) > _LONGEST or (slash and not kind) or text.split() != [text]:
        fix = f"write {matcher.namespaced}/NAME for an object of the namespace, or NAME for a cluster-wide one"
        raise InputError(f'"{text[:60]}" is neither NAME nor KIND/NAME', where, fix)
    try:
        return SpecReference(matcher.kind_of(kind), name)
    except Rejection as rejection:
        fix = f"write {matcher.cluster} or {matcher.namespaced}"
        raise InputError(rejection.what, where, fix) from None


def of_matcher(matcher: Matcher, vm_matcher: Json) -> SpecReference:
    """What a VM's matcher refers to, decoded or as its owner wrote it: null says nothing, as in Go.

    Raises:
        Rejection: its kind is unknown.
    """
    return SpecReference(matcher.kind_of(vm_matcher.get("kind") or ""), vm_matcher.get("name") or "")


def is_allowed(patterns: Sequence[str], matcher: Matcher, reference: SpecReference) -> bool:
    """Whether a reference is on a list of patterns: references in whose names ``*`` stands for any characters."""
    spend(len(patterns), "patterns of the namespace's allow-list")
    # Nothing has a longer name, and each pattern would be looked for in all of it.
    return len(reference.name) <= _LONGEST and any(_matches(pattern, matcher, reference) for pattern in patterns)


def _matches(pattern: str, matcher: Matcher, reference: SpecReference) -> bool:
    """Whether a pattern allows a reference; one of an unknown kind allows none."""
    kind, _, name = pattern.rpartition("/")
    try:
        return matcher.kind_of(kind) == reference.kind and _fits(name, reference.name)
    except Rejection:
        return False


def _fits(pattern: str, name: str) -> bool:
    """Whether a name is a pattern's; in time that both lengths bound, for namespaces write patterns of any length."""
    first, *rest = pattern.split("*")
    if not rest:
        return name == pattern
    if not name.startswith(first):
        return False
    *middle, last = rest
    at = len(first)
    for part in middle:
        # The first place is the best one: it leaves most to the rest.
        at = name.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return at + len(last) <= len(name) and name.endswith(last)
