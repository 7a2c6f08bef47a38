"""Who may do what: the service account, users with the labels of namespaces, and users with the nodes of migrations.

RBAC treats a namespace and its subresources as objects inside of that namespace, so a Role there is enough to change
its labels. Who may do so is best effort: no API lists who has a permission, so roles and bindings are read. Other
authorizers, impersonation and who may change roles are not visible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, Final, get_args

from webhook import names
from webhook.cluster.access import is_allowed
from webhook.cluster.reader import SECONDS
from webhook.doctor.report import NAME, Finding, Installation, abbreviate, unreadable
from webhook.doctor.webhooks import selects
from webhook.errors import Unavailable
from webhook.facts import AccessKey
from webhook.install import plan
from webhook.install.plan import shipped
from webhook.k8s.resources import NAMESPACES, Resource
from webhook.k8s.types.meta import Object, View
from webhook.k8s.types.selectors import LabelSelector
from webhook.text import pluralize

RBAC: Final = "rbac.authorization.k8s.io"
_RIGHTS: Final = "rights"
_CERTIFICATES: Final = "kubevirt-webhook-certificates"
_AT_ONCE: Final = 8
_RELABELLING: Final = "relabelling"
_ADMIN: Final = "cluster-admin"
_SYSTEM: Final = "system:"
_EVERY_USER: Final = ("system:authenticated", "system:unauthenticated", "system:serviceaccounts", "system:anonymous")
_WRITES: Final = frozenset({"patch", "update", "*"})
_NAMESPACE: Final = frozenset({"namespaces", "*"})
# The API server takes labels with these too, unless the policy of the installation denies it.
_SUBRESOURCES: Final = frozenset({"namespaces/status", "namespaces/finalize", "*/status", "*/finalize"})
_REVOKE: Final = "remove patch and update on namespaces from their roles"
_OPTED_IN: Final = (names.ENFORCE, names.WARN, names.AUDIT)
# Accounts or namespaces in one line; a tenant writes the subjects of a RoleBinding.
_MOST: Final = 100
_PINNING: Final = "pinning"
_REQUIRE_RIGHT: Final = "migration.requireRight"


class PolicyRule(View, frozen=True):
    """One of the ``rules`` of a ClusterRole (rbac/v1 PolicyRule)."""

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


class RoleRef(View, frozen=True):
    """``roleRef`` of a ClusterRoleBinding or RoleBinding."""

    kind: str = ""
    name: str = ""


class Subject(View, frozen=True):
    """One of the ``subjects`` of a binding (rbac/v1 Subject)."""

    kind: str = ""
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Binding(Object, frozen=True):
    """A ClusterRoleBinding or RoleBinding (rbac/v1)."""

    role_ref: RoleRef = RoleRef()
    subjects: list[Subject] | None = None


CLUSTER_ROLES: Final = Resource(RBAC, "v1", "clusterroles", "ClusterRole", False, Role)


CLUSTER_ROLE_BINDINGS: Final = Resource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False, Binding)


ROLES: Final = Resource(RBAC, "v1", "roles", "Role", True, Role)


ROLE_BINDINGS: Final = Resource(RBAC, "v1", "rolebindings", "RoleBinding", True, Binding)


async def check_rights(installation: Installation) -> list[Finding]:
    """Ask the API server about each permission, and compare the admission policies with those of the manifests."""
    return [*await _check_permissions(installation), *await _check_policies(installation)]


async def _check_policies(installation: Installation) -> list[Finding]:
    if installation.url:
        return []  # The server runs outside the cluster, without manifests and with another account.
    lacking = await installation.lacking_policies()
    subject = "admission policies"
    if isinstance(lacking, Unavailable):
        return [unreadable(_RIGHTS, subject, lacking)]
    if lacking:
        what = (
            f"missing or changed, so that labels of namespaces and what a stolen token can write are not restricted: "
            f"{', '.join(lacking)}"
        )
        todo = 'run "kubevirt-webhook install", or apply manifests/base/validation.yaml and manifests/base/account.yaml'
        return [Finding(_RIGHTS, "policies-missing", subject, "warning", what, todo)]
    what = "labels of namespaces, and what the service account can write, are restricted as in the manifests"
    return [Finding(_RIGHTS, "policies-installed", subject, "ok", what)]


async def _check_permissions(installation: Installation) -> list[Finding]:
    needed = list(_required_access(installation, managed=await installation.manages_certificates()))
    limit = asyncio.Semaphore(_AT_ONCE)

    async def ask(key: AccessKey) -> bool | Unavailable:
        async with limit:
            return await is_allowed(installation.reader.api, key, SECONDS)

    answers = await asyncio.gather(*map(ask, needed))
    subject = f"ServiceAccount {installation.namespace}/{NAME}"
    for answer in answers:
        if isinstance(answer, Unavailable):
            return [unreadable(_RIGHTS, subject, answer)]
    if missing := [_describe_access(key) for key, answer in zip(needed, answers, strict=True) if not answer]:
        todo = 'run "kubevirt-webhook install", or apply manifests/base/rbac.yaml'
        what = f"lacks {len(missing)} of {pluralize(len(needed), 'permission')}: {abbreviate(missing)}"
        return [Finding(_RIGHTS, "permissions-missing", subject, "failure", what, todo)]
    what = f"has the {pluralize(len(needed), 'permission')} that it needs"
    return [Finding(_RIGHTS, "permissions-granted", subject, "ok", what)]


def _required_access(installation: Installation, *, managed: bool) -> Iterator[AccessKey]:
    """The permissions of the service account in the roles of the manifests.

    Args:
        installation: the installation to check.
        managed: whether certificates are managed; otherwise only reading the configurations is needed for them.
    """
    for role in _roles(installation):
        name, rules = role["metadata"]["name"], role["rules"]
        if name == _CERTIFICATES and not managed:
            if role["kind"] == "Role":
                continue
            rules = [{**rule, "verbs": ["get"]} for rule in rules]
        for rule in rules:
            for group, resource, verb, resource_name in product(
                rule["apiGroups"], rule["resources"], rule["verbs"], rule.get("resourceNames", ("",))
            ):
                yield _access_key(installation.namespace, verb, group, resource, role["kind"] == "Role", resource_name)


def _access_key(namespace: str, verb: str, group: str, resource: str, inside: bool, name: str) -> AccessKey:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    account = f"system:serviceaccount:{namespace}:{NAME}"
    return AccessKey(account, groups, "", (), verb, group, resource, namespace if inside else "", name)


def _roles(installation: Installation) -> Iterator[dict[str, Any]]:
    usual = shipped(installation.manifests / "rendered" / "kubernetes.yaml")
    optional, _ = plan.rights(installation.manifests, installation.settings)
    for manifest in (*usual, *optional):
        if manifest["kind"] in ("ClusterRole", "Role"):
            yield manifest


def _describe_access(key: AccessKey) -> str:
    text = f"{key.verb} {key.resource}" + (f".{key.group}" if key.group else "")
    return f"{text} {key.name}" if key.name else text


_READ: Final[tuple[Resource[Any], ...]] = (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS, NAMESPACES)


# By namespace, which ClusterRoles have not, and name.
_Rules = Mapping[tuple[str, str], list[PolicyRule]]


async def check_relabelling(installation: Installation) -> list[Finding]:
    """Name the subjects that may change namespaces, except for cluster-admin and the control plane."""
    read: dict[str, tuple[Any, ...]] = {}
    for resource in _READ:
        answer = await installation.reader.all(resource)
        if isinstance(answer, Unavailable):
            return [unreadable(_RELABELLING, f"{resource.kind}s", answer)]
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
        return Finding(_RELABELLING, "every-user", "namespaces", "warning", what, _REVOKE)
    if not subjects:
        what = "according to ClusterRoleBindings, only cluster-admin and the control plane may change namespace labels"
        return Finding(_RELABELLING, "admins-only", "namespaces", "ok", what)
    what = (
        "according to ClusterRoleBindings, besides cluster-admin and the control plane these may change namespace "
        f"labels: {abbreviate(sorted(subjects), _MOST)}"
    )
    return Finding(_RELABELLING, "others", "namespaces", "ok", what)


def _of_namespaces(inside: Mapping[str, set[str]], everywhere: Mapping[str, Subject]) -> Iterator[Finding]:
    """The subjects that reach the labels of some namespaces only, by the namespaces that they reach."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for text in sorted(inside.keys() - everywhere.keys()):
        groups.setdefault(tuple(sorted(inside[text])), []).append(text)
    for namespaces, subjects in sorted(groups.items()):
        what = f"according to roles for these namespaces, their labels can be changed by {abbreviate(subjects, _MOST)}"
        yield Finding(
            _RELABELLING, "in-namespace", f"Namespace {abbreviate(namespaces, _MOST)}", "warning", what, _REVOKE
        )


def _rules(roles: Iterable[Role]) -> _Rules:
    """The rules of each role, with those of the ClusterRoles that it aggregates."""
    by_name = {(role.meta.namespace or "", role.meta.name or ""): role for role in roles}
    return {key: list(_own_and_aggregated(role, by_name)) for key, role in by_name.items()}


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


async def check_pinning(installation: Installation) -> list[Finding]:
    """Look for a way around the permission that the settings require."""
    migration = installation.settings.migration
    if not migration.require_right:
        what = "false: every user that may migrate a VM may choose its nodes"
        return [Finding(_PINNING, "not-required", _REQUIRE_RIGHT, "ok", what)]
    if migration.via_virtctl == "allow":
        what = (
            "true, but virtctl bypasses it: virt-api creates the migration under its own account, "
            "and migration.viaVirtctl is allow"
        )
        todo = "set migration.viaVirtctl to deny, or grant virtualmachines/migrate only to users that may choose nodes"
        return [Finding(_PINNING, "bypassed-by-virtctl", _REQUIRE_RIGHT, "warning", what, todo)]
    return [Finding(_PINNING, "required", _REQUIRE_RIGHT, "ok", "true, also for migrations by virtctl")]
