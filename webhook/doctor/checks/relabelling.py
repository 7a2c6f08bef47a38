"""Lists who may change the labels and annotations of kubevirt-webhook on namespaces, and so opt them in or out.

RBAC treats a namespace and its subresources as objects inside of that namespace, so a Role there is enough. This is
best effort: no API lists who has a permission, so roles and bindings are read. Other authorizers, impersonation and who
may change roles are not visible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, get_args

from webhook import names
from webhook.doctor.support.finding import Finding, abbreviate, unreadable
from webhook.doctor.support.installation import Installation
from webhook.doctor.support.selector import selects
from webhook.doctor.support.views import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    Binding,
    PolicyRule,
    Role,
    Subject,
)
from webhook.errors import Unavailable
from webhook.k8s.client.resources import NAMESPACES, Resource

CHECK: Final = "relabelling"
_ADMIN: Final = "cluster-admin"
_SYSTEM: Final = "system:"
_EVERY_USER: Final = ("system:authenticated", "system:unauthenticated", "system:serviceaccounts", "system:anonymous")
_WRITES: Final = frozenset({"patch", "update", "*"})
_NAMESPACE: Final = frozenset({"namespaces", "*"})
# The API server takes labels with these too, unless the policy of the installation denies it.
_SUBRESOURCES: Final = frozenset({"namespaces/status", "namespaces/finalize", "*/status", "*/finalize"})
_TODO: Final = "remove patch and update on namespaces from their roles"
_OPTED_IN: Final = (names.ENFORCE, names.WARN, names.AUDIT)
_READ: Final[tuple[Resource[Any], ...]] = (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS, NAMESPACES)
# Accounts or namespaces in one line; a tenant writes the subjects of a RoleBinding.
_MOST: Final = 100
# By namespace, which ClusterRoles have not, and name.
_Rules = Mapping[tuple[str, str], list[PolicyRule]]


async def check(installation: Installation) -> list[Finding]:
    """Name the subjects that may change namespaces, except for cluster-admin and the control plane."""
    read: dict[str, tuple[Any, ...]] = {}
    for resource in _READ:
        answer = await installation.reader.all(resource)
        if isinstance(answer, Unavailable):
            return [unreadable(CHECK, f"{resource.kind}s", answer)]
        read[resource.kind] = answer
    rules = _rules((*read["ClusterRole"], *read["Role"]))
    resources = _NAMESPACE if await installation.is_label_policy_installed() else _NAMESPACE | _SUBRESOURCES
    everywhere: dict[str, Subject] = {}
    inside: dict[str, set[str]] = {}
    opted_in = {
        namespace.meta.name or ""
        for namespace in read["Namespace"]
        if any(installation.mode(namespace, policy) in _OPTED_IN for policy in get_args(names.Policy))
    }
    for binding in (*read["ClusterRoleBinding"], *read["RoleBinding"]):
        place = binding.meta.namespace or ""
        if not place and binding.role_ref.name == _ADMIN:
            continue
        granted = list(_granted(_rules_of(binding, rules), resources))
        subjects = {str(subject): subject for subject in binding.subjects or () if not _is_systems(subject)}
        if not place and any(not rule.resource_names for rule in granted):
            everywhere |= subjects
            continue
        reached = {place} if place else opted_in
        for namespace in reached & opted_in:
            if any(not rule.resource_names or namespace in rule.resource_names for rule in granted):
                for text in subjects:
                    inside.setdefault(text, set()).add(namespace)
    return [_of_cluster(everywhere), *_of_namespaces(inside, everywhere)]


def _of_cluster(subjects: Mapping[str, Subject]) -> Finding:
    every_user = [text for text, subject in subjects.items() if subject.name.startswith(_EVERY_USER)]
    if every_user:
        what = f"every user may change namespace labels: {abbreviate(sorted(every_user), _MOST)}"
        return Finding(CHECK, "every-user", "namespaces", "warning", what, _TODO)
    if not subjects:
        what = "according to ClusterRoleBindings, only cluster-admin and the control plane may change namespace labels"
        return Finding(CHECK, "admins-only", "namespaces", "ok", what)
    what = (
        "according to ClusterRoleBindings, besides cluster-admin and the control plane these may change namespace "
        f"labels: {abbreviate(sorted(subjects), _MOST)}"
    )
    return Finding(CHECK, "others", "namespaces", "ok", what)


def _of_namespaces(inside: Mapping[str, set[str]], everywhere: Mapping[str, Subject]) -> Iterator[Finding]:
    """The subjects that reach the labels of some namespaces only, by the namespaces that they reach."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for text in sorted(inside.keys() - everywhere.keys()):
        groups.setdefault(tuple(sorted(inside[text])), []).append(text)
    for namespaces, subjects in sorted(groups.items()):
        what = f"according to roles for these namespaces, their labels can be changed by {abbreviate(subjects, _MOST)}"
        yield Finding(CHECK, "in-namespace", f"Namespace {abbreviate(namespaces, _MOST)}", "warning", what, _TODO)


def _rules(roles: Iterable[Role]) -> _Rules:
    """The rules of each role, with those of the ClusterRoles that it aggregates."""
    found = {(role.meta.namespace or "", role.meta.name or ""): role for role in roles}
    return {key: list(_own_and_aggregated(role, found)) for key, role in found.items()}


def _own_and_aggregated(role: Role, roles: Mapping[tuple[str, str], Role]) -> Iterator[PolicyRule]:
    yield from role.rules or ()
    # A controller copies these into the role; they count whether it has done so or not.
    selectors = (role.aggregation_rule.cluster_role_selectors if role.aggregation_rule else None) or ()
    for (namespace, _), other in roles.items():
        if not namespace and any(selects(selector, other.meta.labels or {}) for selector in selectors):
            yield from other.rules or ()


def _rules_of(binding: Binding, rules: _Rules) -> list[PolicyRule]:
    reference, namespace = binding.role_ref, binding.meta.namespace or ""
    if reference.kind == "Role" and not namespace:
        return []  # The API server accepts no such binding.
    return rules.get((namespace if reference.kind == "Role" else "", reference.name), [])


def _granted(rules: Iterable[PolicyRule], resources: frozenset[str]) -> Iterator[PolicyRule]:
    """The rules that let their subjects write one of the resources."""
    for rule in rules:
        groups = {"", "*"} & set(rule.api_groups or ())
        if groups and _WRITES & set(rule.verbs or ()) and resources & set(rule.resources or ()):
            yield rule


def _is_systems(subject: Subject) -> bool:
    if subject.kind == "ServiceAccount":
        return subject.namespace == "kube-system"
    return subject.name.startswith(_SYSTEM) and not subject.name.startswith(_EVERY_USER)
