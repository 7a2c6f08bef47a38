"""Permissions of the users and accounts of tests."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from .kube import Json, Kube

RBAC = "rbac.authorization.k8s.io"


def account(namespace: str, name: str) -> Json:
    """A service account as the subject of a binding."""
    return {"kind": "ServiceAccount", "namespace": namespace, "name": name}


def bind(kube: Kube, role: str, subject: Json, namespace: str = "", *, kind: str = "ClusterRole") -> str:
    """Binds a role, in a namespace or the cluster; gives the binding's name."""
    name = f"e2e-{secrets.token_hex(4)}"
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    kube.apply(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
            "subjects": [subject],
        }
    )
    return name


def grant(kube: Kube, name: str, rules: Iterable[Json], namespace: str = "", subject: Json | None = None) -> None:
    """Gives permissions, in a namespace or the cluster, by a role of the subject's name; by default to a user."""
    kind = "Role" if namespace else "ClusterRole"
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    kube.apply({"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": list(rules)})
    bind(kube, name, subject or {"apiGroup": RBAC, "kind": "User", "name": name}, namespace, kind=kind)


def may(kube: Kube, verb: str, resource: str, namespace: str, group: str = "") -> bool:
    """Whether the client's identity has a permission in a namespace."""
    asked = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    answer = kube.create(
        "authorization.k8s.io/v1/selfsubjectaccessreviews", {**review, "spec": {"resourceAttributes": asked}}
    )
    return bool(answer["status"]["allowed"])
