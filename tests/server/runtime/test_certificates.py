"""The certificate of a running server: which there is at the start, and how it follows its files."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from certs.pem import Pair
from certs.rotation import NotNow, WebhookConfiguration
from certs.source import self_signed
from tests import builders
from tests.certs.memory import KeptObject
from tests.e2e.support.pki import Pki
from tests.golden_files import Golden
from tests.waiting import until
from webhook.errors import InputError
from webhook.server.runtime import certificates as module
from webhook.server.runtime.certificates import EXPIRY, FAILURES, MATCH, RELOADS, ROTATED, Certificates, host_of
from webhook.server.runtime.logs import ServerEvent
from webhook.server.runtime.options import Options
from webhook.settings.model import Settings


class CertificatesLog(KeptObject):
    def error(self, event: str, **fields: Any) -> None:
        self.events.append(("error", event, fields))


def write(directory: Path, pair: Pair) -> None:
    (directory / "crt").write_bytes(pair.certificate)
    (directory / "key").write_bytes(pair.key)


def settings(tmp_path: Path, **tls: Any) -> Settings:
    files = {"mode": "mounted", "cert_file": str(tmp_path / "crt"), "key_file": str(tmp_path / "key")}
    whole = builders.settings()
    return msgspec.structs.replace(whole, tls=msgspec.structs.replace(whole.tls, **{**files, **tls}))


async def served(certificates: Certificates, client: Path | None = None) -> bytes:
    """The certificate of a handshake, DER; nothing where that of the client is not accepted."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    if client:
        trust.load_cert_chain(client)

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            writer.write(b".")
            await writer.wait_closed()

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
    monkeypatch.setattr(module, "_RESTART_SECONDS", 0.01)


async def test_mounted_files_are_followed(tmp_path: Path, quickly: None) -> None:
    first, second, other = (self_signed(["localhost"]) for _ in range(3))
    write(tmp_path, first)
    log = CertificatesLog()
    certificates = Certificates(settings(tmp_path).tls, "localhost", log)
    following = asyncio.create_task(certificates.follow())
    assert await served(certificates) == der(first)

    (tmp_path / "key").write_bytes(other.key)
    await until(lambda: certificates.reloads["rejected"] == 1)
    (refused,) = log.said(f"certificate {ServerEvent.CHANGE_INVALID}")
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
        EXPIRY: {"serving": second.not_after.timestamp()},
        MATCH: {},
        ROTATED: {},
        RELOADS: certificates.reloads,
        FAILURES: 0,
    }
    assert (certificates.authority, certificates.waiting_for()) == (second.certificate, ())


async def test_a_change_that_cannot_be_checked_is_tried_again(
    tmp_path: Path, quickly: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that checks it ends without an answer, for example since the pod is short of memory."""
    first, second = self_signed(["localhost"]), self_signed(["localhost"])
    write(tmp_path, first)
    ca, broken = tmp_path / "ca", tmp_path / "python"
    ca.write_bytes(first.certificate)
    broken.write_text("#!/bin/sh\necho no memory >&2\nexit 3\n")
    broken.chmod(0o755)
    log = CertificatesLog()
    tls = settings(tmp_path, client_ca_file=str(ca), client_names=("apiserver",)).tls
    certificates = Certificates(tls, "localhost", log)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(broken))
        with pytest.raises(InputError, match="--client-ca: exit status 3; no memory"):
            Certificates(tls, "localhost", log)
        with pytest.raises(InputError, match="the serving certificate: exit status 3; no memory"):
            Certificates(settings(tmp_path, mode="self-signed").tls, "localhost", log)
        following = asyncio.create_task(certificates.follow())
        write(tmp_path, second)
        ca.write_bytes(b"nothing")
        for what in ("certificate", "client CA"):
            event = f"changed {what} {ServerEvent.NOT_CHECKED}"
            while len(log.said(event)) < 2:
                await asyncio.sleep(0.01)
        assert await served(certificates) == der(first)
        assert certificates.reloads == {"accepted": 0, "rejected": 0}
    await until(lambda: certificates.reloads == {"accepted": 1, "rejected": 1})
    following.cancel()

    assert await served(certificates) == der(second)


async def test_cas_of_clients_are_followed(tmp_path: Path, quickly: None) -> None:
    write(tmp_path, self_signed(["a"]))
    first, second = Pki(tmp_path / "first"), Pki(tmp_path / "second")
    ca = tmp_path / "ca"
    ca.write_bytes(first.ca.read_bytes())
    log, recycled = CertificatesLog(), []
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
    none = msgspec.structs.replace(tls, client_ca_file=str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"--client-ca: .* cannot be read"):
        Certificates(none, "localhost", CertificatesLog())


class Told:
    """Configurations as a test says."""

    def __init__(self) -> None:
        self.found: Mapping[str, WebhookConfiguration | None] | Exception = {}

    async def read(self) -> Mapping[str, WebhookConfiguration | None]:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    async def write(self, name: str, version: str, bundles: Mapping[str, bytes]) -> bool:
        raise AssertionError("mounted certificates' bundles are somebody else's")


async def test_the_probe_tells_when_the_api_server_could_not_call_us(
    tmp_path: Path, quickly: None, golden: Golden
) -> None:
    pair = self_signed(["localhost"])
    write(tmp_path, pair)
    log, bundles = CertificatesLog(), Told()
    certificates = Certificates(settings(tmp_path).tls, "localhost", log)

    async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()

    async with await asyncio.start_server(nothing, "127.0.0.1", 0, ssl=certificates.listener) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        bundles.found = NotNow("grant get on this")
        probing = asyncio.create_task(certificates.probe(address, bundles))
        await until(lambda: log.said(ServerEvent.NOT_CALLABLE))
        bundles.found = {"one": WebhookConfiguration("1", {"entry": b""}), "two": None}
        await until(lambda: len(log.said(ServerEvent.NOT_CALLABLE)) == 2)
        assert certificates.matches() == {"one": 0.0, "two": 0.0}
        bundles.found = {"one": WebhookConfiguration("1", {"entry": pair.certificate})}
        await until(lambda: log.said(ServerEvent.CALLABLE_AGAIN))
        probing.cancel()

    first, second = log.said(ServerEvent.NOT_CALLABLE)
    assert first == {"why": ("grant get on this",)}
    golden("\n".join(second["why"]))
    assert certificates.matches() == {"one": 1.0}


async def test_a_bug_is_logged_and_the_work_goes_on(tmp_path: Path, quickly: None) -> None:
    log, runs = CertificatesLog(), []
    certificates = Certificates(settings(tmp_path, mode="self-signed").tls, "localhost", log)

    async def work() -> None:
        runs.append(1)
        raise ZeroDivisionError

    keeping = asyncio.create_task(certificates.keep(work))
    await until(lambda: len(runs) >= 2)
    keeping.cancel()
    assert log.said("retrying")


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
    ],
)
def test_the_command_line_goes_before_the_settings(options: Options, mode: str) -> None:
    tls = options.apply_to(builders.settings()).tls
    assert (tls.mode, bool(tls.cert_file)) == (mode, mode == "mounted")


def test_the_command_line_replaces_files_of_the_settings(tmp_path: Path) -> None:
    tls = Options(tls_mode="managed", client_ca=Path("ca"), client_names=("a",)).apply_to(settings(tmp_path)).tls
    assert (tls.mode, tls.cert_file, tls.key_file) == ("managed", "", "")
    assert (tls.client_ca_file, tls.client_names) == ("ca", ("a",))


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (Options(tls_mode="mounted"), "--tls mounted"),
        (Options(tls_mode="managed", cluster_from=Path("x")), "--tls"),
        (Options(tls_mode="managed", register=True), "--tls"),
    ],
    ids=["mounted", "files", "register"],
)
def test_modes_that_can_not_be(options: Options, where: str, golden: Golden) -> None:
    with pytest.raises(InputError) as caught:
        options.apply_to(builders.settings())
    assert caught.value.where == where
    golden(str(caught.value))
