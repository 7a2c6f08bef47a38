"""Which defaults KubeVirt would accept in a VM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from webhook.admission.decision import Change, Decision, Denial, FieldCause, Reason
from webhook.k8s.views import Unstructured
from webhook.kubevirt import webhooks
from webhook.kubevirt.go_json.structs import Json, share
from webhook.kubevirt.instancetype import preferences
from webhook.kubevirt.instancetype.find import (
    INSTANCETYPE_MATCHER,
    MATCHERS,
    PREFERENCE_MATCHER,
    Matcher,
    SpecReference,
)
from webhook.kubevirt.instancetype.preferences import Topology
from webhook.kubevirt.rejection import Crash, Rejection
from webhook.kubevirt.types.core import MATCHER
from webhook.names import Code
from webhook.policies.instancetypes import messages
from webhook.policies.instancetypes.lookups import Lookups
from webhook.policies.instancetypes.owner import INJECTED_ANNOTATIONS


class Default(msgspec.Struct, frozen=True):
    """A default that stands in a VM, or may be written into it.

    Attributes:
        value: the VM's matcher, plain JSON.
        mark: the value of its annotation, ``KIND/NAME``.
    """

    matcher: Matcher
    value: Json
    injected_value: str

    @classmethod
    def of(cls, matcher: Matcher, named: SpecReference) -> Default:
        """The default that names an object."""
        return cls(matcher, named.matcher(), str(named))

    def changes(self, reason: str) -> tuple[Change, ...]:
        """What writes it into a VM that has none."""
        return Change(("spec", self.matcher.field), None, self.value, reason), self.annotation_change(reason)

    def annotation_change(self, reason: str) -> Change:
        """The change that adds the default's annotation to a VM."""
        return Change(
            ("metadata", "annotations", INJECTED_ANNOTATIONS[self.matcher.field]), None, self.injected_value, reason
        )


class Fit(msgspec.Struct, frozen=True):
    """The outcome of trying defaults in a VM.

    Attributes:
        chosen: the most of them that KubeVirt would accept.
        why_not: what KubeVirt has against the others, in its words; empty where there are none.
        crash: why KubeVirt's webhook would crash on the VM without any default.
    """

    chosen: Sequence[Default]
    why_not: str = ""
    crash: Crash | None = None


class Findings:
    """What becomes known on the way to a decision, for its reasons and warnings."""

    def __init__(self) -> None:
        self.reasons: list[Reason] = []
        self.warnings: list[Reason] = []

    def note(self, reason: Reason, *, warn: bool = False) -> None:
        """Add a reason to the decision's.

        Args:
            reason: the reason, with its code.
            warn: add it to the warnings for the user too.
        """
        self.reasons.append(reason)
        if warn:
            self.warnings.append(reason)

    def note_unfit(self, defaults: Sequence[Default], fit: Fit) -> None:
        """Warns of the defaults that the VM stays without."""
        for default in defaults:
            if default not in fit.chosen:
                self.note(
                    messages.default_conflicts(default.matcher.field, default.injected_value, fit.why_not), warn=True
                )

    def decision(self, *, changes: Sequence[Change] = (), notes: dict[str, str] | None = None) -> Decision:
        """The decision that rests on these findings."""
        made = changes if isinstance(changes, tuple) else tuple(changes)
        return Decision(tuple(self.reasons), made, warnings=tuple(self.warnings), notes=notes or {})


def plain_object(whole: Unstructured, namespace: str, status: dict[str, Any]) -> Json:
    """A VM or VMI as plain JSON for KubeVirt's rules.

    Args:
        whole: the object as it was sent.
        namespace: the request's namespace, which counts even where the object names none.
        status: the status for the rules, whatever the sender claims.
    """
    plain = whole.plain()
    metadata = {name: value for name, value in plain["metadata"].items() if value is not None}
    return {**plain, "metadata": {**metadata, "namespace": namespace}, "spec": whole.spec or {}, "status": status}


def with_defaults(vm: Json, defaults: Sequence[Default]) -> Json:
    """A VM, decoded or as `share_vm` returns it, with defaults in it."""
    matchers = {
        default.matcher.field: share(MATCHER, default.value, f"spec.{default.matcher.field}") for default in defaults
    }
    return {**vm, "spec": vm["spec"] | matchers}


def fit_defaults(vm: Json, defaults: Sequence[Default], lookups: Lookups) -> Fit:
    """Both defaults if KubeVirt would accept them, else the instancetype alone, else the preference alone.

    Args:
        vm: the VM as `share_vm` returns it, without the defaults.
        defaults: the defaults that the VM lacks, the instancetype first.
        lookups: the look-ups of the review.

    Raises:
        Unreadable, InputError: the VM cannot be evaluated.
    """
    attempts: list[Sequence[Default]] = [defaults, *([default] for default in defaults if len(defaults) > 1)]
    why_not = ""
    for attempt in attempts if defaults else ():
        rejection = objection(with_defaults(vm, attempt), attempt, lookups)
        if rejection is None:
            return Fit(attempt, why_not)
        why_not = why_not or rejection.what
    rejection = objection(vm, (), lookups) if vm["spec"].get(PREFERENCE_MATCHER.field) else None
    return Fit((), why_not, rejection if isinstance(rejection, Crash) else None)


def objection(vm: Json, added: Sequence[Default], lookups: Lookups) -> Rejection | None:
    """What KubeVirt's webhooks would have against a VM, as far as it can be known without inferring.

    Args:
        vm: the VM as `share_vm` returns it.
        added: the defaults among its matchers.
        lookups: the look-ups of the review.

    Returns:
        The denial of KubeVirt's webhooks; None: they would accept the VM.

    Raises:
        Unreadable, InputError: the VM cannot be evaluated.
    """
    spec = vm["spec"]
    given = {matcher: spec.get(matcher.field) for matcher in MATCHERS}
    if not any(given.values()):
        return None
    inferred = [matcher.field for matcher, value in given.items() if value and value.get("inferFromVolume")]
    if inferred and not added:
        return None
    # What KubeVirt will find is not known here.
    if INSTANCETYPE_MATCHER.field in inferred:
        # Only a preference that asks for nothing goes with anything.
        if not _is_demanding(vm, lookups):
            return None
        return Rejection(messages.inferred_conflict())
    if inferred:
        # Whatever a preference asks for, a VM without any size offers less of it than one with an instancetype.
        vm = {**vm, "spec": {field: value for field, value in spec.items() if field not in inferred}}
    lookups.passed_over = False
    configuration = lookups.configuration()
    find = webhooks.remember_specs(lookups.get, configuration.rules)
    rejection = webhooks.find_denial(vm, lookups.get, configuration, find)
    if rejection is not None:
        return rejection
    preference = find(PREFERENCE_MATCHER, vm) if added and lookups.passed_over else None
    if preference and "architecture" in preference.get("requirements", {}):
        return Rejection(messages.architecture_conflict())
    return None


def preference_of(vm: Json, lookups: Lookups) -> Json:
    """The spec of the preference that a VM names; empty where there is none."""
    try:
        return PREFERENCE_MATCHER.find_spec(vm, lookups.get, lookups.rules) or {}
    except Rejection:
        return {}


def _is_demanding(vm: Json, lookups: Lookups) -> bool:
    """Whether a preference fits some instancetypes only: by requirements, by a spread, or by CPU features."""
    preference = preference_of(vm, lookups)
    spreads = preferences.preferred_topology(preference) is Topology.SPREAD
    return spreads or "requirements" in preference or "preferredCPUFeatures" in preference.get("cpu", {})


def deny_crash(crash: Crash) -> Decision:
    """The denial of a VM on which KubeVirt's webhook would crash: the user would read "EOF"."""
    denial = Denial(422, crash.what, (FieldCause("FieldValueInvalid", crash.what, "spec.preference"),))
    return Decision((Reason(Code.DENIED, crash.what),), denial=denial)
