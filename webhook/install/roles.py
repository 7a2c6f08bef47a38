"""What the account of the replicas may do, as roles: RBAC in the manifests and the chart, and what doctor checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from webhook import names
from webhook.cluster.rights import RIGHTS
from webhook.k8s.rights import Right, joined
from webhook.policies.registry import POLICIES
from webhook.policy import AnyPolicy

GROUP: Final = "rbac.authorization.k8s.io"
# Of the account, and the namespace where it is in the manifests.
NAME: Final = "kubevirt-webhook"
_CONFIGURATIONS: Final = "admissionregistration.k8s.io"
_SECRET: Final = "kubevirt-webhook-ca"  # noqa: S105 - a name


class Role(msgspec.Struct, frozen=True):
    """A role and its binding to the account.

    Attributes:
        name: of both.
        rights: what it grants.
        about: comment above it.
        namespaced: a Role in the namespace of the replicas, not a ClusterRole.
    """

    name: str
    rights: tuple[Right, ...]
    about: str = ""
    namespaced: bool = False

    @property
    def kind(self) -> str:
        """``Role`` or ``ClusterRole``."""
        return "Role" if self.namespaced else "ClusterRole"

    @property
    def manifests(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The role and the binding, in the namespace of the manifests."""
        place = {"namespace": NAME} if self.namespaced else {}
        metadata = {"name": self.name, **place, "labels": {"app.kubernetes.io/name": NAME}}
        common, rules = {"apiVersion": f"{GROUP}/v1"}, [right.rule for right in self.rights]
        reference = {"apiGroup": GROUP, "kind": self.kind, "name": self.name}
        subject = {"kind": "ServiceAccount", "name": NAME, "namespace": NAME}
        return (
            {**common, "kind": self.kind, "metadata": metadata, "rules": rules},
            {
                **common,
                "kind": f"{self.kind}Binding",
                "metadata": metadata,
                "roleRef": reference,
                "subjects": [subject],
            },
        )


def evaluating(policies: Iterable[AnyPolicy]) -> Role:
    """What a server takes that has these policies."""
    about = "What evaluating takes: nothing is ever written, no Secret and no ConfigMap is read."
    return Role(NAME, joined([*RIGHTS, *(right for policy in policies for right in policy.rights)]), about)


_CERTIFICATES: Final = f"{NAME}-certificates"
# What certificates take where replicas manage them; else the configurations are read alone.
CERTIFICATES: Final = (
    Role(
        _CERTIFICATES,
        (
            Right(
                _CONFIGURATIONS,
                ("mutatingwebhookconfigurations",),
                ("get", "patch"),
                names=(names.FIRST_CONFIGURATION, names.LAST_CONFIGURATION),
            ),
            Right(
                _CONFIGURATIONS,
                ("validatingwebhookconfigurations",),
                ("get", "patch"),
                names=(names.FIRST_CONFIGURATION,),
            ),
        ),
        "What certificates take: the caBundles of three configurations are read, compared and written.",
    ),
    Role(
        _CERTIFICATES,
        (Right("", ("secrets",), ("get", "create", "patch"), names=(_SECRET,)),),
        "The CA. A deleted Secret is created again, by server-side apply: the API server authorizes that with the name,"
        " which it does not know when an object is posted to a collection.",
        namespaced=True,
    ),
)
# Of every installation.
ROLES: Final = (evaluating(POLICIES), *CERTIFICATES)
