"""The certificate of a running server: which there is at the start, and how it follows its files.

Below are the adapters to the API server; the patches themselves are proved on a real one in tests/e2e.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from aiohttp import web

from certs.authority import Authority
from certs.pem import Pair
from certs.rotation import CA_CRT, CA_KEY, NotNow, Rotation, WebhookConfiguration
from certs.source import self_signed
from tests import builders
from tests.builders import changed
from tests.certs.memory import TERMS, CertsClock, KeptObject
from tests.e2e.support.pki import Pki
from tests.golden_files import Golden
from tests.install.memory import InstallMemory
from tests.waiting import until
from webhook import names
from webhook.errors import InputError
from webhook.install.registration import configurations
from webhook.server.guard import Limits
from webhook.server.listener import Listener, serving
from webhook.server.runtime import certificates as module
from webhook.server.runtime.certificates import CaBundles, CaSecret, Certificates, host_of, make_plan, probe
from webhook.server.runtime.options import Options
from webhook.server.tls import ReloadableTLSContext, context
from webhook.settings.model import Settings


def write(directory: Path, pair: Pair) -> None:
    (directory / "crt").write_bytes(pair.certificate)
    (directory / "key").write_bytes(pair.key)


def settings(tmp_path: Path, **tls: Any) -> Settings:
    files = {"mode": "mounted", "cert_file": str(tmp_path / "crt"), "key_file": str(tmp_path / "key")}
    whole = builders.settings()
    return changed(whole, tls=changed(whole.tls, **{**files, **tls}))


async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Write a byte, and nothing more until the client leaves."""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        writer.write(b".")
        await writer.wait_closed()


async def served(certificates: Certificates, client: Path | None = None) -> bytes:
    """The certificate of a handshake, DER; nothing where that of the client is not accepted."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    if client:
        trust.load_cert_chain(client)

    async with await asyncio.start_server(greet, "127.0.0.1", 0, ssl=certificates.listener) as server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        der: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        greeting = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            greeting = await reader.read(1)
            writer.close()
            await writer.wait_closed()
    return der if greeting else b""


def der(pair: Pair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.certificate.decode())


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(module, "_SOON_SECONDS", 0.01)


async def test_mounted_files_are_followed(
    tmp_path: Path, quickly: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, other = (self_signed(["localhost"]) for _ in range(3))
    write(tmp_path, first)
    log = KeptObject()
    certificates = Certificates(settings(tmp_path).tls, "localhost", log)
    following = asyncio.create_task(certificates.follow())
    assert await served(certificates) == der(first)

    (tmp_path / "key").write_bytes(other.key)
    await until(lambda: certificates.reloads["rejected"] == 1)
    (refused,) = log.said("certificate is invalid; keeping the previous one")
    assert str(tmp_path) in refused["why"]
    write(tmp_path, first)
    # One that OpenSSL does not accept.
    (tmp_path / "crt").write_bytes(
        first.certificate + b"-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n"
    )
    await until(lambda: certificates.reloads["rejected"] >= 2)
    assert await served(certificates) == der(first)
    before = certificates.reloads["accepted"]
    write(tmp_path, second)
    await until(lambda: certificates.reloads["accepted"] > before)
    assert await served(certificates) == der(second)
    following.cancel()

    assert {metric.name: metric.read() for metric in certificates.metrics()} == {
        module.EXPIRY: {"serving": second.not_after.timestamp()},
        module.MATCH: {},
        module.ROTATED: {},
        module.RELOADS: certificates.reloads,
        module.FAILURES: 0,
    }
    assert (certificates.authority, certificates.waiting_for()) == (second.certificate, ())
    monkeypatch.setattr(module, "POLL_SECONDS", None)
    async with contextlib.AsyncExitStack() as ends:
        await certificates.keep_fresh(Options(), settings(tmp_path), "localhost:1", ends, live=False)
        await until(lambda: caplog.messages)
    assert caplog.messages == ["internal error while following the certificate's files; retrying"], "of no rotation"


async def test_a_listener_that_starts_while_a_pair_is_replaced_gets_the_new_one(
    tmp_path: Path, quickly: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it starts at the very moment at which the others are handed the new pair."""
    old, new = self_signed(["localhost"]), self_signed(["localhost"])
    write(tmp_path, old)
    client_ca = Pki(tmp_path / "clients").ca
    certificates = Certificates(settings(tmp_path).tls, "localhost", KeptObject())
    loop, loop_thread = asyncio.get_running_loop(), threading.get_ident()
    starting: list[asyncio.Future[ssl.SSLContext]] = []
    swap = ReloadableTLSContext.swap

    def start_another() -> None:
        starting.append(asyncio.ensure_future(certificates.listener_for(client_ca, "--page-client-ca")))

    def swap_while_another_starts(self: ReloadableTLSContext, certificate: bytes, key: bytes) -> None:
        if certificate == new.certificate and not starting:
            if threading.get_ident() == loop_thread:
                start_another()
            else:
                loop.call_soon_threadsafe(start_another)
                # As long as it takes the other to start.
                asyncio.run_coroutine_threadsafe(until(lambda: starting and starting[0].done()), loop).result()
        swap(self, certificate, key)

    monkeypatch.setattr(ReloadableTLSContext, "swap", swap_while_another_starts)
    following = asyncio.create_task(certificates.follow())
    write(tmp_path, new)
    await until(lambda: certificates.reloads["accepted"])
    following.cancel()
    certificates.listener = await starting[0]  # type: ignore[misc] # what `served` asks
    assert await served(certificates) == der(new)


async def test_cas_of_clients_are_followed(tmp_path: Path, quickly: None) -> None:
    write(tmp_path, self_signed(["a"]))
    first, second = Pki(tmp_path / "first"), Pki(tmp_path / "second")
    ca = tmp_path / "ca"
    ca.write_bytes(first.ca.read_bytes())
    log, recycled = KeptObject(), []
    tls = settings(tmp_path, client_ca_file=str(ca), client_names=("apiserver",)).tls
    certificates = Certificates(tls, "localhost", log)
    certificates.on_clients = lambda: recycled.append(1)
    following = asyncio.create_task(certificates.follow())

    async def accepted() -> list[bool]:
        return [bool(await served(certificates, pki.client("apiserver"))) for pki in (first, second)]

    assert await accepted() == [True, False]
    ca.write_bytes(b"nothing")
    await until(lambda: certificates.reloads["rejected"] == 1)
    ca.write_bytes(b"-----BEGIN CERTIFICATE-----")
    await until(lambda: certificates.reloads["rejected"] == 2)
    assert recycled == []
    ca.write_bytes(second.ca.read_bytes())
    await until(lambda: certificates.reloads["accepted"])
    following.cancel()

    assert recycled == [1]
    assert await accepted() == [False, True]
    none = changed(tls, client_ca_file=str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"--client-ca: .* cannot be read"):
        Certificates(none, "localhost", KeptObject())


def test_cas_of_clients_stand_between_words_in_any_encoding() -> None:
    """As those of the API server do in a kubeconfig."""
    pem = Authority.new(["localhost"], datetime.now(UTC), timedelta(days=1)).pem
    made = context(client_ca="# Größe\n".encode("latin-1") + pem)
    assert [each["notAfter"] for each in made.get_ca_certs()]
    for nothing in (b"\xff", b"no certificate"):
        with pytest.raises(ssl.SSLError):
            context(client_ca=nothing)


async def test_the_probe_tells_when_the_api_server_could_not_call_us(
    tmp_path: Path, quickly: None, golden: Golden
) -> None:
    pair = self_signed(["localhost"])
    write(tmp_path, pair)
    log, bundles = KeptObject(), AsyncMock(CaBundles)
    certificates = Certificates(settings(tmp_path).tls, "localhost", log)

    async with await asyncio.start_server(greet, "127.0.0.1", 0, ssl=certificates.listener) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        bundles.read.side_effect = NotNow("grant get on this")
        probing = asyncio.create_task(certificates.probe(address, bundles))
        await until(lambda: log.said("the API server cannot call the server by every configuration"))
        bundles.read.side_effect = lambda: {"one": WebhookConfiguration("1", {"entry": b""}), "two": None}
        await until(lambda: len(log.said("the API server cannot call the server by every configuration")) == 2)
        assert certificates.matches() == {"one": 0.0, "two": 0.0}
        bundles.read.side_effect = lambda: {"one": WebhookConfiguration("1", {"entry": pair.certificate})}
        await until(lambda: log.said("the API server can call the server again"))
        probing.cancel()

    first, second = log.said("the API server cannot call the server by every configuration")
    assert first == {"why": ("grant get on this",)}
    golden("\n".join(second["why"]))
    assert certificates.matches() == {"one": 1.0}
    bundles.write.assert_not_called()


HOST = "kubevirt-webhook.kubevirt-webhook.svc"


async def test_every_configuration_is_evaluated_by_its_own_bundles(golden: Golden) -> None:
    life = (datetime.now(UTC), timedelta(days=1))
    pair, other = Authority.new([HOST], *life).issue([HOST], *life), Authority.new([HOST], *life).pem
    bundles: dict[str, Any] = {
        "good": {"a": pair.authority, "b": other + pair.authority},
        "pinned": {"a": pair.certificate},
        "old": {"a": pair.authority, "b": other},
        "bare": {"a": b""},
        "broken": {"a": b"\xff"},
        "gone": None,
        "empty": {},
    }
    context = ReloadableTLSContext(pair.certificate, pair.key).listener
    # As it listens in a pod: the probe has to find a way in.
    async with serving(Listener(web.Application(), Limits()), "0.0.0.0:0", context, "--listen", 0.0) as address:
        found = await probe(address, HOST, bundles)

    assert found.matches == {name: name in ("good", "pinned", "empty") for name in bundles}
    golden("\n".join(each.partition(" (")[0] for each in found.why))
    assert (await probe("127.0.0.1:1", HOST, {"one": {"a": pair.certificate}})).matches == {"one": False}


def test_by_which_name_the_api_server_calls_us(tmp_path: Path) -> None:
    whole = settings(tmp_path)
    assert host_of(None, whole) == f"{whole.webhooks.service.name}.{whole.webhooks.service.namespace}.svc"
    assert host_of("https://[::1]:8443", whole) == "::1"


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        (Options(), "self-signed"),
        (Options(tls_cert=Path("c"), tls_key=Path("k")), "mounted"),
        (Options(tls_mode="managed"), "managed"),
        (Options(cluster_from=Path("x"), admin_listen="127.0.0.1:8091"), "self-signed"),
    ],
)
def test_the_command_line_goes_before_the_settings(options: Options, mode: str) -> None:
    made = options.apply_to(builders.settings())
    expected = mode, mode == "mounted", options.admin_listen or ""
    assert (made.tls.mode, bool(made.tls.cert_file), made.admin.listen) == expected


def test_the_command_line_replaces_files_of_the_settings(tmp_path: Path) -> None:
    tls = Options(tls_mode="managed", client_ca=Path("ca"), client_names=("a",)).apply_to(settings(tmp_path)).tls
    assert (tls.mode, tls.cert_file, tls.key_file) == ("managed", "", "")
    assert (tls.client_ca_file, tls.client_names) == ("ca", ("a",))


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


async def test_a_rotation_through_the_api_server() -> None:
    api = installed()
    clock, served = CertsClock(), list[Pair]()
    stores = CaSecret(api, "ns", "ca"), CaBundles(api, manifests())
    rotation = Rotation(*stores, TERMS, served.append, plan=make_plan, clock=clock, log=KeptObject())
    for _ in range(6):
        await rotation.step()
    assert len(served) == 1
    first = api.objects[SECRET]["data"][CA_CRT]
    entries = [entry for each in api.objects.values() for entry in each.get("webhooks", ())]
    assert {entry["clientConfig"]["caBundle"] for entry in entries} == {first}

    annotations = {module.ROTATE_ANNOTATION: "", "theirs": "stays"}
    held = api.objects[SECRET]
    api.put(SECRET, {**held, "metadata": {**held["metadata"], "annotations": annotations}})
    for _ in range(10):
        clock.advance(5)
        await rotation.step()
    assert len(served) == 2
    assert api.objects[SECRET]["data"][CA_CRT] != first
    assert api.objects[SECRET]["metadata"]["annotations"] == {"theirs": "stays"}
    assert "next.crt" not in api.objects[SECRET]["data"]
    writes = [(path, query, kind) for method, path, query, _, kind in api.asked if method == "PATCH"]
    assert (MUTATING, {"fieldManager": module.FIELD_MANAGER}, "application/strategic-merge-patch+json") in writes


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
    assert again and again.bundles[entry] == b"PEM"
    del api.objects[MUTATING]
    assert (await bundles.read())[FIRST] is None
    assert not await bundles.write(FIRST, "2", {entry: b"x"})


async def test_entries_of_others_in_our_configuration_are_left_alone() -> None:
    api = installed()
    webhooks = api.objects[MUTATING]["webhooks"]
    webhooks.append({"name": "theirs.example.com", "clientConfig": {"url": "https://x"}})
    webhooks.append({"name": f"not{names.DOMAIN}", "clientConfig": {"url": "https://x"}})
    webhooks[0]["clientConfig"]["caBundle"] = "bm9uZQ==!"
    found = (await CaBundles(api, manifests()).read())[FIRST]
    assert found and set(found.bundles) == {entry["name"] for entry in manifests()[0]["webhooks"]}
    assert found.bundles[webhooks[0]["name"]] == b""


async def test_the_secret_over_its_version_and_beside_what_others_keep_in_it() -> None:
    api = ApiOfBundles()
    secret = CaSecret(api, "ns", "ca")
    assert await secret.read() is None
    assert not await secret.replace({}, "1", answered=False)
    assert await secret.create({CA_CRT: b"1", CA_KEY: b"k"})
    assert not await secret.create({CA_CRT: b"2"})
    found = await secret.read()
    assert found and (found.data, found.is_rotation_requested) == ({CA_CRT: b"1", CA_KEY: b"k"}, False)
    api.objects[SECRET]["data"] |= {"theirs": "eA==", CA_CRT: "x"}

    assert await secret.replace({CA_CRT: b"3"}, found.version, answered=True)
    assert not await secret.replace({CA_CRT: b"4"}, found.version, answered=True)
    assert {key: b64decode(text) for key, text in api.objects[SECRET]["data"].items()} == {CA_CRT: b"3", "theirs": b"x"}
    again = await secret.read()
    assert again and again.data == {CA_CRT: b"3"}


async def test_refusals_say_what_to_grant() -> None:
    api = installed()
    secret, bundles = CaSecret(api, "ns", "ca"), CaBundles(api, manifests())
    api.answers = dict.fromkeys((("GET", ""), ("PATCH", "")), (403, {"reason": "Forbidden"}))
    for work, said in (
        (secret.read(), "Secret ns/ca: .* grant get on secrets"),
        (secret.create({}), "grant create on secrets in namespace ns"),
        (secret.replace({}, "1", answered=False), "grant patch on secrets in namespace ns"),
        (bundles.read(), f"{FIRST}: .* grant get on mutatingwebhookconfigurations.admissionregistration.k8s.io"),
        (bundles.write(FIRST, "1", {}), "grant patch on mutatingwebhookconfigurations"),
    ):
        with pytest.raises(NotNow, match=said):
            await work
    api.answers = {("PATCH", ""): (404, {})}
    with pytest.raises(NotNow, match="answered 404"):
        await secret.create({})
    api.answers = {("GET", ""): None}
    with pytest.raises(NotNow, match="Secret ns/ca: no answer"):
        await secret.read()


@pytest.mark.parametrize("body", [b"{}", b"<html>", b'{"metadata": {"a": ' + b"[" * 100_000, b'"\xff"'])
async def test_an_answer_that_cannot_be_decoded_is_a_failure_like_others(body: bytes) -> None:
    """Of a proxy before the API server, for example; it is tried again, and counted."""

    class Garbling(ApiOfBundles):
        async def request(self, *_: Any, **__: Any) -> tuple[int, bytes]:
            return 200, body

    api = Garbling()
    secret, bundles = CaSecret(api, "ns", "ca"), CaBundles(api, manifests())
    with pytest.raises(NotNow, match=r"Secret ns/ca: .* Secret cannot be decoded"):
        await secret.read()
    rotation = Rotation(
        secret, bundles, TERMS, list[Pair]().append, plan=make_plan, clock=CertsClock(), log=KeptObject()
    )
    await rotation.step()
    assert rotation.failures == 1
