"""Lists who may label namespaces, and so opt them in or out.

This is best effort: no API lists who has a permission, so cluster-wide bindings to ClusterRoles are read. Roles bound
within one namespace, other authorizers and impersonation are not visible.
"""

from __future__ import annotations

from typing import Final

from webhook.doctor.support.finding import Finding, abbreviate, unreadable
from webhook.doctor.support.installation import Installation
from webhook.doctor.support.views import BINDINGS, ROLES, PolicyRule, Subject
from webhook.errors import Unavailable

CHECK: Final = "relabelling"
_ADMIN: Final = "cluster-admin"
_SYSTEM: Final = "system:"
_EVERY_USER: Final = ("system:authenticated", "system:unauthenticated", "system:serviceaccounts", "system:anonymous")


async def check(installation: Installation) -> list[Finding]:
    """Name the subjects that may change namespaces, except for cluster-admin and the control plane."""
    roles, bindings = await installation.reader.all(ROLES), await installation.reader.all(BINDINGS)
    for subject, answer in (("ClusterRoles", roles), ("ClusterRoleBindings", bindings)):
        if isinstance(answer, Unavailable):
            return [unreadable(CHECK, subject, answer)]
    assert not isinstance(roles, Unavailable)
    assert not isinstance(bindings, Unavailable)
    granting = {role.meta.name for role in roles if any(map(_grants, role.rules or ()))} - {_ADMIN}
    subjects: dict[str, Subject] = {}
    for binding in bindings:
        if binding.role_ref.kind == "ClusterRole" and binding.role_ref.name in granting:
            subjects |= {str(subject): subject for subject in binding.subjects or () if not _is_systems(subject)}
    every_user = [text for text, subject in subjects.items() if subject.name.startswith(_EVERY_USER)]
    if every_user:
        what = f"every user may change namespace labels: {abbreviate(every_user)}"
        todo = "remove patch and update on namespaces from their roles"
        return [Finding(CHECK, "every-user", "namespaces", "warning", what, todo)]
    if not subjects:
        what = "according to ClusterRoleBindings, only cluster-admin and the control plane may change namespace labels"
        return [Finding(CHECK, "admins-only", "namespaces", "ok", what)]
    what = (
        "according to ClusterRoleBindings, besides cluster-admin and the control plane these may change namespace "
        f"labels: {abbreviate(sorted(subjects))}"
    )
    return [Finding(CHECK, "others", "namespaces", "ok", what)]


def _grants(rule: PolicyRule) -> bool:
    return bool(
        {"patch", "update", "*"} & set(rule.verbs or ())
        and {"", "*"} & set(rule.api_groups or ())
        and {"namespaces", "*"} & set(rule.resources or ())
        and not rule.resource_names
    )


def _is_systems(subject: Subject) -> bool:
    if subject.kind == "ServiceAccount":
        return subject.namespace == "kube-system"
    return subject.name.startswith(_SYSTEM) and not subject.name.startswith(_EVERY_USER)
