"""The caBundles of the webhook configurations: the CAs by which the API server knows the server.

They are written by a strategic merge patch over the resourceVersion that was read, entries by name. Not by server-side
apply: its field manager would own the entries beside the one that installed them, and the API server would then reject
the installer's apply of a manifest without one of them (the rest of the entry would be the caBundle alone).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from certs.rotation import WebhookConfiguration
from webhook import names
from webhook.install.registration import API_VERSION, Manifest
from webhook.k8s.client.api import Requests
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object
from webhook.server.runtime.object_client import (
    FIELD_MANAGER_QUERY,
    ObjectClient,
    SecretOrConfiguration,
    decode_base64,
    encode_base64,
)

_STRATEGIC: Final = "application/strategic-merge-patch+json"


class CaBundles:
    """The caBundles of the server's webhook configurations; `certs.rotation.Bundles`.

    It needs: get and patch on these configurations. Entries that others added to them are left alone.

    Args:
        api: the connection to the API server.
        manifests: the expected configurations, as `registration.configurations` makes them.
    """

    def __init__(self, api: Requests, manifests: Iterable[Manifest]) -> None:
        self._clients: Final[dict[str, ObjectClient]] = {}
        group, _, version = API_VERSION.partition("/")
        for manifest in manifests:
            kind, name = manifest["kind"], manifest["metadata"]["name"]
            resource = Resource(group, version, f"{kind.lower()}s", kind, False, Object)
            self._clients[f"{kind}/{name}"] = ObjectClient(api, resource, "", name)

    async def read(self) -> Mapping[str, WebhookConfiguration | None]:
        """Every configuration by ``KIND/NAME``; None: it does not exist."""
        contents = {where: await client.read() for where, client in self._clients.items()}
        return {where: _configuration(each) if each else None for where, each in contents.items()}

    async def write(self, name: str, version: str, bundles: Mapping[str, bytes]) -> bool:
        """Change the caBundles of entries that exist; ``name`` is a ``KIND/NAME``."""
        entries = [{"name": entry, "clientConfig": {"caBundle": pem}} for entry, pem in encode_base64(bundles).items()]
        change = {"metadata": {"resourceVersion": version}, "webhooks": entries}
        status, _ = await self._clients[name].call("patch", (200, 404, 409), change, _STRATEGIC, FIELD_MANAGER_QUERY)
        return status == 200


def _configuration(content: SecretOrConfiguration) -> WebhookConfiguration:
    own = [entry for entry in content.webhooks or () if entry.name.endswith(f".{names.DOMAIN}")]
    # All entries have the same CAs, one more after each rotation: they are in memory once.
    decoded = {text: decode_base64(text) for text in {entry.client_config.ca_bundle for entry in own}}
    bundles = {entry.name: decoded[entry.client_config.ca_bundle] for entry in own}
    return WebhookConfiguration(content.metadata.resource_version, bundles)
