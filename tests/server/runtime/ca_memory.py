"""Webhook configurations and the CA's Secret in memory, as an API server keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests import builders
from tests.install.memory import InstallMemory
from webhook.install.registration import configurations

MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/kubevirt-webhook"
SECRETS = "/api/v1/namespaces/ns/secrets"
SECRET = f"{SECRETS}/ca"
FIRST = "MutatingWebhookConfiguration/kubevirt-webhook"


class ApiOfBundles(InstallMemory):
    """Objects whose resourceVersions must match, and all that was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str, Mapping[str, str], Any, str]] = []

    def _answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any, content_type: str
    ) -> tuple[int, dict[str, Any]]:
        self.asked.append((method, path, query, body, content_type))
        found = self.objects.get(path)
        if content_type == "application/apply-patch+yaml":
            if found:
                assert body["metadata"]["resourceVersion"] == "1", "of no object in etcd"
                return 409, {}
            self.put(path, body)
            return 201, {}
        if method != "PATCH" or not found:
            return super()._answer(method, path, query, body, content_type)
        if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            return 409, {}
        self.put(path, self._patched(found, body))
        return 200, {}

    @staticmethod
    def _patched(found: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        if "webhooks" in body:
            by_name = {entry["name"]: entry for entry in found["webhooks"]}
            for entry in body["webhooks"]:
                by_name[entry["name"]]["clientConfig"] |= entry["clientConfig"]
            return found
        data = {**(found.get("data") or {}), **body["data"]}
        annotations = {**(found["metadata"].get("annotations") or {}), **body["metadata"].get("annotations", {})}
        return {
            **found,
            "metadata": {**found["metadata"], "annotations": {k: v for k, v in annotations.items() if v is not None}},
            "data": {key: value for key, value in data.items() if value is not None},
        }


def manifests() -> list[dict[str, Any]]:
    return configurations(builders.settings())


def installed() -> ApiOfBundles:
    api = ApiOfBundles()
    for manifest in manifests():
        plural = f"{manifest['kind'].lower()}s"
        api.put(f"/apis/admissionregistration.k8s.io/v1/{plural}/{manifest['metadata']['name']}", manifest)
    return api
