"""The users who may request explanations."""

from __future__ import annotations

import secrets

from .kube import Json, Kube

RBAC = "rbac.authorization.k8s.io"


def bind(kube: Kube, role: str, subject: Json, namespace: str = "") -> str:
    """Binds a ClusterRole, in a namespace or the cluster; gives the binding's name."""
    name = f"e2e-{secrets.token_hex(4)}"
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    made = {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "roleRef": reference}
    kube.apply({**made, "subjects": [subject]})
    return name
