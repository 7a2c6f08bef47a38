"""The adapters to the API server; the patches themselves are proved on a real one in tests/e2e."""

from __future__ import annotations

import json
import sys
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import pytest

from certs.pem import Pair
from certs.rotation import CA_CRT, CA_KEY, NotNow, Rotation
from tests import builders
from tests.certs.memory import TERMS, CertsClock, KeptObject
from webhook import names
from webhook.install.registration import configurations
from webhook.k8s.client.api import ApiConnectionError
from webhook.server.runtime.certificates import FIELD_MANAGER, ROTATE_ANNOTATION, CaBundles, CaSecret, make_plan

MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/kubevirt-webhook"
SECRETS = "/api/v1/namespaces/ns/secrets"
SECRET = f"{SECRETS}/ca"
FIRST = "MutatingWebhookConfiguration/kubevirt-webhook"


class ApiOfBundles:
    """Objects by path, with resourceVersions that must match."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str, Mapping[str, str], Any, str]] = []
        self.answers: dict[str, int] = {}
        self.silent = False

    def put(self, path: str, thing: dict[str, Any]) -> None:
        version = str(
            int(self.objects.get(path, {"metadata": {"resourceVersion": 0}})["metadata"]["resourceVersion"]) + 1
        )
        thing["metadata"] = {**thing.get("metadata", {}), "resourceVersion": version}
        self.objects[path] = thing

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] = {},
        body: Any = None,
        content_type: str = "",
        *,
        seconds: float = 0,
    ) -> tuple[int, bytes]:
        self.asked.append((method, path, query, body, content_type))
        if self.silent:
            raise ApiConnectionError("no answer")
        if method in self.answers:
            return self.answers[method], b'{"reason": "Forbidden"}'
        body = json.loads(json.dumps(body))
        if content_type == "application/apply-patch+yaml":
            if path in self.objects:
                assert body["metadata"]["resourceVersion"] == "1", "of no object in etcd"
                return 409, b"{}"
            self.put(path, body)
            return 201, b"{}"
        found = self.objects.get(path)
        if found is None:
            return 404, b"{}"
        if method == "PATCH":
            if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
                return 409, b"{}"
            self.put(path, self._patched(found, body))
        return 200, json.dumps(self.objects[path]).encode()

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


async def test_a_rotation_through_the_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planned by a process of its own, as a server has it."""
    api = installed()
    clock, served = CertsClock(), list[Pair]()
    stores = CaSecret(api, "ns", "ca"), CaBundles(api, manifests())
    rotation = Rotation(*stores, TERMS, served.append, plan=make_plan, clock=clock, log=KeptObject())
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", "/nonexistent")
        await rotation.step()
    assert (rotation.failures, api.objects.keys()) == (1, installed().objects.keys())
    (why,) = rotation.waiting_for()
    assert why.startswith("the serving certificate: the next step was not planned: ")
    for _ in range(6):
        await rotation.step()
    assert len(served) == 1
    first = api.objects[SECRET]["data"][CA_CRT]
    entries = [entry for each in api.objects.values() for entry in each.get("webhooks", ())]
    assert {entry["clientConfig"]["caBundle"] for entry in entries} == {first}

    annotations = {ROTATE_ANNOTATION: "", "theirs": "stays"}
    api.put(
        SECRET, {**api.objects[SECRET], "metadata": {**api.objects[SECRET]["metadata"], "annotations": annotations}}
    )
    for _ in range(10):
        clock.advance(5)
        await rotation.step()
    assert len(served) == 2
    assert api.objects[SECRET]["data"][CA_CRT] != first
    assert api.objects[SECRET]["metadata"]["annotations"] == {"theirs": "stays"}
    assert "next.crt" not in api.objects[SECRET]["data"]
    writes = [(path, query, kind) for method, path, query, _, kind in api.asked if method == "PATCH"]
    assert (MUTATING, {"fieldManager": FIELD_MANAGER}, "application/strategic-merge-patch+json") in writes


async def test_a_patch_holds_nothing_but_bundles_over_a_version() -> None:
    api = installed()
    bundles = CaBundles(api, manifests())
    found = (await bundles.read())[FIRST]
    assert found
    (entry, *_) = found.bundles
    assert await bundles.write(FIRST, found.version, {entry: b"PEM"})
    assert api.asked[-1][3] == {
        "metadata": {"resourceVersion": "1"},
        "webhooks": [{"name": entry, "clientConfig": {"caBundle": b64encode(b"PEM").decode()}}],
    }
    assert not await bundles.write(FIRST, found.version, {entry: b"other"}), "the version has moved on"
    again = (await bundles.read())[FIRST]
    assert again
    assert again.bundles[entry] == b"PEM"
    del api.objects[MUTATING]
    assert (await bundles.read())[FIRST] is None
    assert not await bundles.write(FIRST, "2", {entry: b"x"})


async def test_entries_of_others_in_our_configuration_are_left_alone() -> None:
    api = installed()
    webhooks = api.objects[MUTATING]["webhooks"]
    webhooks.append({"name": "theirs.example.com", "clientConfig": {"url": "https://x"}})
    webhooks.append({"name": f"not{names.DOMAIN}", "clientConfig": {"url": "https://x"}})
    webhooks[0]["clientConfig"]["caBundle"] = "no base64!"
    found = (await CaBundles(api, manifests()).read())[FIRST]
    assert found
    assert set(found.bundles) == {entry["name"] for entry in manifests()[0]["webhooks"]}


async def test_the_secret_over_its_version_and_beside_what_others_keep_in_it() -> None:
    api = ApiOfBundles()
    secret = CaSecret(api, "ns", "ca")
    assert await secret.read() is None
    assert not await secret.replace({}, "1", answered=False)
    assert await secret.create({CA_CRT: b"1", CA_KEY: b"k"})
    assert not await secret.create({CA_CRT: b"2"})
    found = await secret.read()
    assert found
    assert (found.data, found.is_rotation_requested) == ({CA_CRT: b"1", CA_KEY: b"k"}, False)
    api.objects[SECRET]["data"] |= {"theirs": "eA==", CA_CRT: "x"}

    assert await secret.replace({CA_CRT: b"3"}, found.version, answered=True)
    assert not await secret.replace({CA_CRT: b"4"}, found.version, answered=True)
    assert {key: b64decode(text) for key, text in api.objects[SECRET]["data"].items()} == {CA_CRT: b"3", "theirs": b"x"}
    again = await secret.read()
    assert again
    assert again.data == {CA_CRT: b"3"}


async def test_refusals_say_what_to_grant() -> None:
    api = installed()
    secret, bundles = CaSecret(api, "ns", "ca"), CaBundles(api, manifests())
    api.answers = {"GET": 403, "PATCH": 403}
    for work, said in (
        (secret.read(), "Secret ns/ca: .* grant get on secrets"),
        (secret.create({}), "grant create on secrets in namespace ns"),
        (secret.replace({}, "1", answered=False), "grant patch on secrets in namespace ns"),
        (bundles.read(), f"{FIRST}: .* grant get on mutatingwebhookconfigurations.admissionregistration.k8s.io"),
        (bundles.write(FIRST, "1", {}), "grant patch on mutatingwebhookconfigurations"),
    ):
        with pytest.raises(NotNow, match=said):
            await work
    api.answers = {"PATCH": 404}
    with pytest.raises(NotNow, match="answered 404"):
        await secret.create({})
    api.silent = True
    with pytest.raises(NotNow, match="Secret ns/ca: no answer"):
        await secret.read()
