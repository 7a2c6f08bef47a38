"""The Secret that holds the managed CA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from certs.rotation import KEYS, StoredSecret
from webhook import names
from webhook.install.registration import Manifest
from webhook.k8s.client.api import Requests
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object
from webhook.server.runtime.object_client import FIELD_MANAGER_QUERY, ObjectClient, decode_base64, encode_base64

# On the Secret, with any value: make another CA now.
ROTATE_ANNOTATION: Final = f"{names.DOMAIN}/rotate-ca"

# etcd's revision before anything is written, so that no object has it.
_NO_VERSION: Final = "1"
_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = "application/merge-patch+json"


class CaSecret:
    """The Secret that holds the CA; `certs.rotation.SecretStore`.

    It needs: get, patch and create on this one Secret. RBAC knows its name in server-side apply alone, not where an
    object is posted to a collection.

    Args:
        api: the connection to the API server.
        namespace: namespace of the Secret.
        name: name of the Secret.
    """

    def __init__(self, api: Requests, namespace: str, name: str) -> None:
        self._secret: Final = ObjectClient(api, Resource("", "v1", "secrets", "Secret", True, Object), namespace, name)

    async def read(self) -> StoredSecret | None:
        """Its newest state; values that are no base64 count as empty."""
        secret = await self._secret.read()
        if secret is None:
            return None
        data = {key: decode_base64(text) for key, text in (secret.data or {}).items() if key in KEYS}
        annotations = secret.metadata.annotations or {}
        return StoredSecret(data, secret.metadata.resource_version, ROTATE_ANNOTATION in annotations)

    async def create(self, data: Mapping[str, bytes]) -> bool:
        """Create the Secret with values by key, not encoded; False: it exists already."""
        metadata: Manifest = {
            "name": self._secret.name,
            "namespace": self._secret.namespace,
            "labels": {"app.kubernetes.io/name": "kubevirt-webhook"},
            # A Secret that exists has another version: the API server answers 409, and changes nothing.
            "resourceVersion": _NO_VERSION,
        }
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": "Opaque",
            "data": encode_base64(data),
        }
        status, _ = await self._secret.call("create", (201, 409), secret, _APPLY, FIELD_MANAGER_QUERY)
        return status == 201

    async def replace(self, data: Mapping[str, bytes], version: str, *, answered: bool) -> bool:
        """Change the CA's keys, and remove those without a value; False: the Secret has another resourceVersion by now.

        Its other content is kept; ``answered`` removes the annotation that requests another CA.
        """
        metadata: Manifest = {"resourceVersion": version}
        if answered:
            metadata["annotations"] = {ROTATE_ANNOTATION: None}
        change = {"metadata": metadata, "data": {**dict.fromkeys(KEYS), **encode_base64(data)}}
        status, _ = await self._secret.call("patch", (200, 404, 409), change, _MERGE)
        return status == 200
