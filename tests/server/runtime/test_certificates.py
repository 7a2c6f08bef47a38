"""The certificate of a running server: which there is at the start, how it follows its files, and a rotation."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from certs.authority import Authority
from certs.pem import Pair
from certs.rotation import CA_CRT, NotNow, Rotation, WebhookConfiguration
from certs.source import self_signed
from tests import builders
from tests.builders import changed
from tests.certs.memory import TERMS, CertsClock, KeptObject
from tests.e2e.support.pki import Pki
from tests.golden_files import Golden
from tests.server.runtime.ca_memory import MUTATING, SECRET, installed, manifests
from tests.waiting import until
from webhook.errors import InputError
from webhook.server.runtime import certificates as module
from webhook.server.runtime.ca_bundles import CaBundles
from webhook.server.runtime.ca_secret import ROTATE_ANNOTATION, CaSecret
from webhook.server.runtime.certificates import Certificates, host_of, make_plan
from webhook.server.runtime.object_client import FIELD_MANAGER
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


async def test_files_are_followed_until_the_end_also_once_the_server_stops(tmp_path: Path, quickly: None) -> None:
    """It answers for some seconds more, in which clients' CAs may be replaced, too."""
    first, second = (self_signed(["localhost"]) for _ in range(2))
    write(tmp_path, first)
    certificates = Certificates(settings(tmp_path).tls, "localhost", KeptObject())
    async with contextlib.AsyncExitStack() as ends:
        end_rotation = await certificates.keep_fresh(Options(), settings(tmp_path), "localhost:1", ends, live=False)
        await end_rotation()
        write(tmp_path, second)
        await until(lambda: certificates.reloads["accepted"])
        assert await served(certificates) == der(second)


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

    annotations = {ROTATE_ANNOTATION: "", "theirs": "stays"}
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
    assert (MUTATING, {"fieldManager": FIELD_MANAGER}, "application/strategic-merge-patch+json") in writes
