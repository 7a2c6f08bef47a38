"""Advice in the words of HyperConverged, which owns the KubeVirt object where it is installed, and overwrites it.

HyperConverged Cluster Operator 1.16 to 1.19: controllers/handlers/kubevirt.go writes the whole ``spec`` again at each
reconciliation, and controllers/operands sets the controller reference.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from webhook.k8s.types.meta import Object

_GROUP: Final = "hco.kubevirt.io"
_JSON_PATCH: Final = "kubevirt.kubevirt.io/jsonpatch"
_MIGRATIONS: Final = "migrations"
# In ``spec`` of HyperConverged's API by version; what is not here has no field of this kind in it.
_FIELDS: Final = {
    "v1beta1": {"evictionStrategy": "evictionStrategy", _MIGRATIONS: "liveMigrationConfig"},
    "v1": {"evictionStrategy": "virtualization.evictionStrategy", _MIGRATIONS: "virtualization.liveMigrationConfig"},
}


class HyperConverged(NamedTuple):
    """The HyperConverged object that owns a KubeVirt object.

    Attributes:
        version: of its API, by which its fields have their names.
    """

    namespace: str
    name: str
    version: str

    @classmethod
    def owning(cls, kubevirt: Object) -> HyperConverged | None:
        """The owner of a KubeVirt object; None: it is not HyperConverged's."""
        owner = kubevirt.meta.controller_owner()
        if owner is None or (owner.group, owner.kind) != (_GROUP, "HyperConverged"):
            return None
        return cls(kubevirt.meta.namespace or "", owner.name or "", (owner.api_version or "").partition("/")[2])

    @property
    def title(self) -> str:
        """Kind, namespace and name."""
        return f"HyperConverged {self.namespace}/{self.name}"

    def set(self, path: str, value: Any) -> str:
        """How a field below the KubeVirt object's ``spec.configuration`` gets a value, an imperative.

        Args:
            path: the field, for example ``migrations.parallelMigrationsPerCluster``.
            value: plain JSON.
        """
        if field := self.field(path):
            return f"set {field} to {value} in {self.title}, which overwrites changes of the KubeVirt object"
        patch = [{"op": "add", "path": f"/spec/configuration/{path.replace('.', '/')}", "value": value}]
        return (
            f"annotate {self.title} with {_JSON_PATCH}='{json.dumps(patch)}': its API has no such field, it overwrites"
            " changes of the KubeVirt object, and the annotation raises its condition TaintedConfiguration"
        )

    def remove(self, path: str, item: str) -> str:
        """How an item goes from a field below ``spec.configuration``, which can be there by the annotation only."""
        return (
            f"remove {item} from {path} in the annotation {_JSON_PATCH} of {self.title}, which overwrites changes of"
            " the KubeVirt object"
        )

    def field(self, path: str) -> str:
        """The field of HyperConverged that sets one below ``spec.configuration``; empty: its API has none."""
        first, _, rest = path.partition(".")
        field = _FIELDS.get(self.version, {}).get(first)
        return ".".join(filter(None, ("spec", field, rest))) if field else ""
