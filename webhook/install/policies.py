"""Admission policies that the API server evaluates itself: what needs no look-up, for clusters without webhooks.

Parameters of a namespace are its labels and annotations, as for the webhooks. They are read from the namespace rather
than from a ConfigMap in it, which the namespace's tenants could write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook import names
from webhook.install.registration import API_VERSION, Manifest, namespace_selector
from webhook.names import Mode, PolicyName
from webhook.policies.registry import POLICIES
from webhook.policy import AdmissionPolicy
from webhook.settings.model import Settings

_LABELS: Final = {"app.kubernetes.io/name": "kubevirt-webhook", "app.kubernetes.io/part-of": "kubevirt-webhook"}
# In the order in which users read them.
_FIELDS: Final = (
    *("failurePolicy", "reinvocationPolicy", "matchConstraints", "matchConditions", "variables"),
    *("mutations", "validations"),
)
_ACTIONS: Final[dict[Mode, list[str]]] = {
    names.ENFORCE: ["Deny"],
    names.WARN: ["Warn", "Audit"],
    names.AUDIT: ["Audit"],
}


def policies(settings: Settings) -> list[Manifest]:
    """The policies with their bindings, in an order in which they can be applied.

    Raises:
        InputError: a rule needs a setting that is missing.
    """
    return [
        manifest
        for policy in POLICIES
        for each in policy.admission_policies(settings.policy(policy.name))
        for manifest in _manifests(each, policy.name, settings)
    ]


def _manifests(admission: AdmissionPolicy, policy: PolicyName, settings: Settings) -> Iterator[Manifest]:
    """An admission policy, and a binding for each mode of namespaces."""
    name, kind = admission.name, f"{'Mutating' if admission.mutates else 'Validating'}AdmissionPolicy"
    spec = {**admission.spec, "matchConstraints": _constraints(admission.resource)}
    yield _manifest(kind, name, {field: spec[field] for field in _FIELDS if field in spec})
    for mode in admission.modes:
        selector = {"matchExpressions": namespace_selector(policy, settings, [mode])}
        actions = {} if admission.mutates else {"validationActions": _ACTIONS[mode]}
        binding = {"policyName": name, **actions, "matchResources": {"namespaceSelector": selector}}
        yield _manifest(f"{kind}Binding", name if admission.mutates else f"{name}-{mode}", binding)


def _constraints(resource: str) -> Manifest:
    matched = {"apiGroups": [names.KUBEVIRT_GROUP], "apiVersions": ["v1"], "operations": ["CREATE"]}
    return {"matchPolicy": "Equivalent", "resourceRules": [{**matched, "resources": [resource], "scope": "Namespaced"}]}


def _manifest(kind: str, name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, "labels": dict(_LABELS)}, "spec": spec}
