"""The settings that are installed in a cluster: the content of a ConfigMap."""

from __future__ import annotations

from typing import Final, NamedTuple

from webhook import names
from webhook.cluster.reader import ObjectReader
from webhook.errors import Unavailable
from webhook.install.plan import SETTINGS_KEY
from webhook.install.webhooks import CONFIGURATIONS
from webhook.k8s.resources import CONFIG_MAPS

# Of all objects of an installation.
NAME: Final = "kubevirt-webhook"


class StoredSettings(NamedTuple):
    """What a cluster has for settings.

    Attributes:
        namespace: where the ConfigMap is, or would be.
        text: the settings file; None where there is no ConfigMap, or where it has no such file.
    """

    namespace: str
    text: str | Unavailable | None

    @property
    def subject(self) -> str:
        """The ConfigMap, as messages name it."""
        return f"ConfigMap {self.namespace}/{NAME}"


async def read_stored_settings(reader: ObjectReader) -> StoredSettings:
    """The settings of the installation that the API server calls; without one, those in the manifests' namespace."""
    calls = await reader.get(CONFIGURATIONS["MutatingWebhookConfiguration"], "", names.FIRST_CONFIGURATION)
    entries = [] if calls is None or isinstance(calls, Unavailable) else calls.own_entries
    services = [entry.client_config.service for entry in entries]
    namespace = next((service.namespace for service in services if service and service.namespace), NAME)
    config_map = await reader.get(CONFIG_MAPS, namespace, NAME)
    if isinstance(config_map, Unavailable):
        return StoredSettings(namespace, config_map)
    return StoredSettings(namespace, (config_map.data or {}).get(SETTINGS_KEY) if config_map else None)
