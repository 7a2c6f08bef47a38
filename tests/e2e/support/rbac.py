"""Permissions of the users and accounts of tests."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product

from .access import Access
from .kube import Json, Kube, eventually
from .objects import obj

RBAC = "rbac.authorization.k8s.io"


def account(namespace: str, name: str) -> Json:
    return {"kind": "ServiceAccount", "namespace": namespace, "name": name}


def bind(kube: Kube, role: str, subject: Json, namespace: str = "", *, kind: str = "ClusterRole") -> str:
    """Binds a role, in a namespace or the cluster; gives the binding's name."""
    name, where = f"e2e-{secrets.token_hex(4)}", {"namespace": namespace} if namespace else {}
    reference = {"apiGroup": RBAC, "kind": kind, "name": role}
    binding = "RoleBinding" if namespace else "ClusterRoleBinding"
    kube.apply(obj(binding, name, **where, roleRef=reference, subjects=[subject]))
    return name


def grant(kube: Kube, name: str, rules: Iterable[Json], namespace: str = "", subject: Json | None = None) -> str:
    """Gives permissions, in a namespace or the cluster, by a role with this name, and gives the binding's name."""
    kind, where = ("Role", {"namespace": namespace}) if namespace else ("ClusterRole", {})
    kube.apply(obj(kind, name, **where, rules=list(rules)))
    return bind(kube, name, subject or {"apiGroup": RBAC, "kind": "User", "name": name}, namespace, kind=kind)


def user_with(access: Access, name: str, rules: Sequence[Json], namespace: str = "") -> Kube:
    """The client of a user who gets permissions, once the authorizer, which learns of them by a watch, knows them."""
    grant(access.admin, name, rules, namespace)
    kube = access.kube(name)
    for rule in rules:
        for verb, group, resource in product(rule["verbs"], rule["apiGroups"], rule["resources"]):
            asked = partial(may, kube, verb, resource, namespace, group)
            eventually(asked, what=f"the authorizer to know that {name} may {verb} {resource}")
    return kube


def may(kube: Kube, verb: str, resource: str, namespace: str, group: str = "") -> bool:
    """Whether the client's identity has a permission in a namespace."""
    asked = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
    review = obj("SelfSubjectAccessReview", spec={"resourceAttributes": asked})
    return bool(kube.create("authorization.k8s.io/v1/selfsubjectaccessreviews", review)["status"]["allowed"])
