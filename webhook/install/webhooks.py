"""The webhook configurations of a cluster as they are read, and which of them call this server."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from webhook import names
from webhook.errors import InputError
from webhook.install.registration import answered, object_in
from webhook.k8s.client.api import Requests, explain
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object, View
from webhook.k8s.types.selectors import LabelSelector
from webhook.policies.registry import ENDPOINTS

REGISTRATION: Final = "admissionregistration.k8s.io"
_LABEL: Final = "app.kubernetes.io/name"
_NAME: Final = "kubevirt-webhook"
_PATHS: Final = tuple(endpoint.path for endpoint in ENDPOINTS)


class Rule(View, frozen=True):
    """One of the ``rules`` of a webhook entry (admissionregistration/v1 RuleWithOperations)."""

    api_groups: list[str] | None = None
    operations: list[str] | None = None
    resources: list[str] | None = None


class ServiceReference(View, frozen=True):
    """The Service that a webhook entry calls (admissionregistration/v1 ServiceReference)."""

    namespace: str = ""
    name: str = ""
    path: str = ""


class ClientConfig(View, frozen=True):
    """``clientConfig`` of a webhook entry (admissionregistration/v1 WebhookClientConfig); the bundle is in base64."""

    ca_bundle: str | None = None
    service: ServiceReference | None = None
    url: str | None = None


class WebhookEntry(View, frozen=True):
    """A webhook of a configuration."""

    name: str
    client_config: ClientConfig = ClientConfig()
    rules: list[Rule] | None = None
    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None
    failure_policy: str | None = None
    timeout_seconds: int | None = None

    @property
    def is_own(self) -> bool:
        """Whether it calls this server: by its name, or whatever that is, by the path that it calls."""
        service = self.client_config.service
        path = service.path if service else _path_of(self.client_config.url or "")
        # Before the path there may be another one, of a proxy.
        return self.name.endswith(f".{names.DOMAIN}") or path.endswith(_PATHS)


def _path_of(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:
        return ""


class InstalledWebhookConfiguration(Object, frozen=True):
    """Entries as plain JSON, too: they are compared with what they should be."""

    webhooks: list[dict[str, Any]] | None = None

    @property
    def entries(self) -> list[WebhookEntry]:
        """The entries that can be decoded; others are skipped."""
        entries = []
        for plain in self.webhooks or ():
            with suppress(msgspec.ValidationError):
                entries.append(msgspec.convert(plain, WebhookEntry))
        return entries

    @property
    def own_entries(self) -> list[WebhookEntry]:
        """The entries that call this server."""
        return [entry for entry in self.entries if entry.is_own]

    @property
    def is_own(self) -> bool:
        """Whether it belongs to an installation or a trial of this server, whatever its name."""
        return bool(self.own_entries) or self.meta.label(_LABEL) == _NAME


CONFIGURATIONS: Final = {
    kind: Resource(REGISTRATION, "v1", f"{kind.lower()}s", kind, False, InstalledWebhookConfiguration)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
}


async def own_configurations(api: Requests) -> list[tuple[str, InstalledWebhookConfiguration]]:
    """The configurations of this server in a cluster, each with its kind: those of installations and of trials.

    Raises:
        InputError: they cannot be listed.
    """
    own = []
    for kind, resource in CONFIGURATIONS.items():
        status, body = await answered(api.request("GET", resource.path()), resource.plural)
        if status != 200:
            raise InputError(explain("list", resource, "", status, body).why, resource.plural)
        items = object_in(body, resource.plural).get("items") or ()
        live = [msgspec.convert(item, InstalledWebhookConfiguration) for item in items]
        own += [(kind, configuration) for configuration in live if configuration.is_own]
    return own
