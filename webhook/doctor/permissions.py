"""Who may do what: the service account, users with the labels of namespaces, and users with the nodes of migrations.

RBAC treats a namespace and its subresources as objects inside of that namespace, so a Role there is enough to change
its labels. Who may do so is best effort: no API lists who has a permission, so roles and bindings are read. Other
authorizers, impersonation and who may change roles are not visible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from webhook import names
from webhook.cluster.access import is_allowed
from webhook.cluster.reader import SECONDS
from webhook.doctor.installation import Installation, Reference
from webhook.errors import Unavailable
from webhook.facts import AccessKey
from webhook.findings import Finding, check, failure, ok, readable, warning
from webhook.install import roles
from webhook.install.components import COMPONENTS
from webhook.install.roles import CERTIFICATES
from webhook.install.stored_settings import NAME
from webhook.k8s.resources import NAMESPACES, Resource
from webhook.k8s.types.meta import Object, View
from webhook.k8s.types.selectors import LabelSelector
from webhook.policies.registry import BY_NAME
from webhook.text import abbreviate, pluralize

RBAC: Final = "rbac.authorization.k8s.io"
_RIGHTS: Final = "rights"
_AT_ONCE: Final = 8
_EVERY_USER: Final = ("system:authenticated", "system:unauthenticated", "system:serviceaccounts", "system:anonymous")
_NAMESPACE: Final = frozenset({"namespaces", "*"})
# The API server takes labels with these too, unless the policy of the installation denies it.
_SUBRESOURCES: Final = frozenset({"namespaces/status", "namespaces/finalize", "*/status", "*/finalize"})
# Of both the policy for labels and annotations of namespaces and its binding.
_LABEL_POLICY: Final = "kubevirt-webhook-namespaces"
_REVOKE: Final = "remove patch and update on namespaces from their roles"
_OPTED_IN: Final = (names.ENFORCE, names.WARN, names.AUDIT)
# Accounts or namespaces in one line; a tenant writes the subjects of a RoleBinding.
_MOST: Final = 100


class PolicyRule(View, frozen=True):
    """One of the ``rules`` of a ClusterRole or a Role (rbac/v1 PolicyRule)."""

    verbs: list[str] | None = None
    api_groups: list[str] | None = None
    resources: list[str] | None = None
    resource_names: list[str] | None = None


class AggregationRule(View, frozen=True):
    """``aggregationRule`` of a ClusterRole: which other ones it adds up."""

    cluster_role_selectors: list[LabelSelector] | None = None


class Role(Object, frozen=True):
    """A ClusterRole or a Role (rbac/v1)."""

    rules: list[PolicyRule] | None = None
    aggregation_rule: AggregationRule | None = None


class Binding(Object, frozen=True):
    """A ClusterRoleBinding or RoleBinding (rbac/v1)."""

    role_ref: Reference = Reference()
    subjects: list[Reference] | None = None


CLUSTER_ROLES: Final = Resource(RBAC, "v1", "clusterroles", "ClusterRole", False, Role)
CLUSTER_ROLE_BINDINGS: Final = Resource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False, Binding)
ROLES: Final = Resource(RBAC, "v1", "roles", "Role", True, Role)
ROLE_BINDINGS: Final = Resource(RBAC, "v1", "rolebindings", "RoleBinding", True, Binding)
_READ: Final[tuple[Resource[Any], ...]] = (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS, NAMESPACES)
# By namespace, which ClusterRoles have not, and name.
_Rules = dict[tuple[str, str], list[PolicyRule]]


async def check_rights(installation: Installation) -> list[Finding]:
    """Ask the API server about each permission, and compare the admission policies with those of the manifests."""
    return [*await _check_permissions(installation), *await _check_policies(installation)]


@check(_RIGHTS)
async def _check_policies(installation: Installation) -> list[Finding]:
    if installation.url:
        return []  # The server runs outside the cluster, without manifests and with another account.
    subject = "admission policies"
    if lacking := readable(subject, await installation.lacking_policies()):
        what = "missing or changed, so that labels of namespaces and what a stolen token can write are not restricted"
        return [warning("policies-missing", subject, f"{what}: {', '.join(lacking)}", await installation.remedy())]
    what = "labels of namespaces, and what the service account can write, are restricted as in the manifests"
    return [ok("policies-installed", subject, what)]


@check(_RIGHTS)
async def _check_permissions(installation: Installation) -> list[Finding]:
    subject = f"ServiceAccount {installation.namespace}/{NAME}"
    managed = await installation.manages_certificates()
    # Some are in several roles.
    needed = list(dict.fromkeys(_required_access(installation, managed=managed)))
    missing, number = await find_lacking(installation, subject, needed), pluralize(len(needed), "permission")
    if missing:
        what = f"lacks {len(missing)} of {number}: {abbreviate(missing)}"
        return [failure("permissions-missing", subject, what, await installation.remedy())]
    return [ok("permissions-granted", subject, f"has the {number} that it needs")]


async def find_lacking(installation: Installation, subject: str, needed: Sequence[AccessKey]) -> list[str]:
    """Those of the permissions that the API server does not grant, as ``VERB RESOURCE.GROUP NAME``.

    An `UnreadableError` about the subject where it does not answer.
    """
    api, limit = readable(subject, installation.reader.api), asyncio.Semaphore(_AT_ONCE)

    async def ask(key: AccessKey) -> bool | Unavailable:
        async with limit:
            return await is_allowed(api, key, SECONDS)

    answers = [readable(subject, answer) for answer in await asyncio.gather(*map(ask, needed))]
    missing = []
    for key in (key for key, granted in zip(needed, answers, strict=True) if not granted):
        group, name = f".{key.group}" if key.group else "", f" {key.name}" if key.name else ""
        missing.append(f"{key.verb} {key.resource}{group}{name}")
    return missing


def service_account(namespace: str, name: str) -> tuple[str, tuple[str, ...]]:
    """The user and the groups that a service account is to the API server."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return f"system:serviceaccount:{namespace}:{name}", groups


def _required_access(installation: Installation, *, managed: bool) -> Iterator[AccessKey]:
    """The permissions of the service account's roles.

    Where certificates are not managed, only reading the configurations is needed for them.
    """
    account = service_account(installation.namespace, NAME)
    optional = (each.role for each in COMPONENTS if each.is_needed(installation.settings))
    for role in (*roles.ROLES, *optional):
        if role in CERTIFICATES and role.namespaced and not managed:
            continue
        within = installation.namespace if role.namespaced else ""
        for each in (permission for right in role.rights for permission in right.permissions):
            if role not in CERTIFICATES or managed or each.verb == "get":
                yield AccessKey(*account, "", (), each.verb, each.group, each.resource, within, each.name)


@check("relabelling")
async def check_relabelling(installation: Installation) -> list[Finding]:
    """Name the subjects that may change namespaces, except for cluster-admin and the control plane."""
    read: dict[str, tuple[Any, ...]] = {
        resource.kind: readable(f"{resource.kind}s", await installation.reader.all(resource)) for resource in _READ
    }
    rules = _rules((*read["ClusterRole"], *read["Role"]))
    lacking = await installation.lacking_policies()
    is_denied = not isinstance(lacking, Unavailable) and not any(one.endswith(f" {_LABEL_POLICY}") for one in lacking)
    resources = _NAMESPACE if is_denied else _NAMESPACE | _SUBRESOURCES
    everywhere: dict[str, Reference] = {}
    inside: dict[str, set[str]] = {}
    opted_in = {
        namespace.meta.name or ""
        for namespace in read["Namespace"]
        if any(installation.mode(namespace, policy) in _OPTED_IN for policy in BY_NAME)
    }
    for binding in (*read["ClusterRoleBinding"], *read["RoleBinding"]):
        place = binding.meta.namespace or ""
        if not place and binding.role_ref.name == "cluster-admin":
            continue
        # The API server accepts no binding of the whole cluster to a Role.
        key = (place if binding.role_ref.kind == "Role" else "", binding.role_ref.name)
        own = rules.get(key, []) if place or binding.role_ref.kind != "Role" else []
        granted = [rule for rule in own if _writes(rule, resources)]
        subjects = {str(subject): subject for subject in binding.subjects or () if not _is_systems(subject)}
        if not place and any(not rule.resource_names for rule in granted):
            everywhere |= subjects
            continue
        for namespace in ({place} if place else opted_in) & opted_in:
            if any(not rule.resource_names or namespace in rule.resource_names for rule in granted):
                for text in subjects:
                    inside.setdefault(text, set()).add(namespace)
    return [_of_cluster(everywhere), *_of_namespaces(inside, everywhere)]


def _of_cluster(subjects: Mapping[str, Reference]) -> Finding:
    every_user = [text for text, subject in subjects.items() if subject.name.startswith(_EVERY_USER)]
    if every_user:
        what = f"every user may change namespace labels: {abbreviate(sorted(every_user), _MOST)}"
        return warning("every-user", "namespaces", what, _REVOKE)
    if not subjects:
        what = "according to ClusterRoleBindings, only cluster-admin and the control plane may change namespace labels"
        return ok("admins-only", "namespaces", what)
    what = "according to ClusterRoleBindings, besides cluster-admin and the control plane these may change"
    return ok("others", "namespaces", f"{what} namespace labels: {abbreviate(sorted(subjects), _MOST)}")


def _of_namespaces(inside: Mapping[str, set[str]], everywhere: Mapping[str, Reference]) -> Iterator[Finding]:
    """The subjects that reach the labels of some namespaces only, by the namespaces that they reach."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for text in sorted(inside.keys() - everywhere.keys()):
        groups.setdefault(tuple(sorted(inside[text])), []).append(text)
    for namespaces, subjects in sorted(groups.items()):
        what = f"according to roles for these namespaces, their labels can be changed by {abbreviate(subjects, _MOST)}"
        yield warning("in-namespace", f"Namespace {abbreviate(namespaces, _MOST)}", what, _REVOKE)


def _rules(roles: Sequence[Role]) -> _Rules:
    """The rules of each role, with those of the ClusterRoles that it aggregates."""
    rules: _Rules = {}
    for role in roles:
        # A controller copies these into the role; they count whether it has done so or not.
        selectors = (role.aggregation_rule.cluster_role_selectors if role.aggregation_rule else None) or ()
        parts = [role] + [
            other
            for other in roles
            if not other.meta.namespace
            and any(each.matches(other.meta.labels or {}, malformed=True) for each in selectors)
        ]
        rules[role.meta.namespace or "", role.meta.name or ""] = [rule for part in parts for rule in part.rules or ()]
    return rules


def _writes(rule: PolicyRule, resources: frozenset[str]) -> bool:
    """Whether a rule lets its subjects write one of the resources."""
    groups, verbs = {"", "*"} & set(rule.api_groups or ()), {"patch", "update", "*"} & set(rule.verbs or ())
    return bool(groups and verbs and resources & set(rule.resources or ()))


def _is_systems(subject: Reference) -> bool:
    if subject.kind == "ServiceAccount":
        return subject.namespace == "kube-system"
    return subject.name.startswith("system:") and not subject.name.startswith(_EVERY_USER)
