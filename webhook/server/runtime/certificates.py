"""The serving certificate, and the CAs of the API server's client certificate: kept fresh while `serve` runs."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from certs.files import POLL_SECONDS, FileWatcher, client_authorities
from certs.rotation import Bundles, NotNow, Rotation
from certs.source import CertificateError, Pair, from_files, self_signed
from certs.state import Terms
from webhook.errors import InputError
from webhook.install.registration import RegistrationTarget, configurations
from webhook.k8s.client.clock import REAL_TIME
from webhook.k8s.client.identity import Kubeconfig
from webhook.server.probe import Found, probe
from webhook.server.runtime.ca_bundles import CaBundles, CaSecret
from webhook.server.runtime.events import ServerEvent
from webhook.server.tls import ReloadableTLSContext
from webhook.settings.snapshot import ServerSettings, Settings

EXPIRY: Final = "kubevirt_webhook_certificate_expiry_timestamp_seconds"
MATCH: Final = "kubevirt_webhook_ca_bundle_match"
ROTATED: Final = "kubevirt_webhook_ca_rotation_timestamp_seconds"
RELOADS: Final = "kubevirt_webhook_certificate_reloads_total"
FAILURES: Final = "kubevirt_webhook_certificate_failures_total"
LABELS: Final = {EXPIRY: "certificate", MATCH: "configuration", RELOADS: "result"}

# Between two calls of the own listener, and while something is wrong.
PROBE_SECONDS: Final = 30.0
_SOON_SECONDS: Final = 5.0
_RESTART_SECONDS: Final = 10.0


class Certificates:
    """The listener's certificate and its state.

    Args:
        server: the settings, with the options of the command line.
        host: the name by which the API server calls the server.
        log: the logger for events.

    Raises:
        InputError: a file cannot be used.
    """

    def __init__(self, server: ServerSettings, host: str, log: Any) -> None:
        self._log: Final = log
        self._host: Final = host
        self._server: Final = server
        self._files: Final = Path(server.cert_file), Path(server.key_file)
        self._client_ca: Final = Path(server.client_ca_file) if server.client_ca_file else None
        # Before they are read, so that a change meanwhile is one.
        self._followed: Final = FileWatcher(*self._files) if server.tls_mode == "mounted" else None
        self._followed_clients: Final = FileWatcher(self._client_ca) if self._client_ca else None
        try:
            clients = client_authorities(self._client_ca) if self._client_ca else b""
            self._tls = ReloadableTLSContext(client_ca=clients)
        except CertificateError as error:
            raise InputError(str(error), "--client-ca") from None
        except ssl.SSLError:
            raise InputError(
                "OpenSSL does not accept the client CA", "--client-ca", "use a valid CA certificate"
            ) from None
        # Other listeners with the same pair, each with CAs of its own for clients.
        self._others: list[ReloadableTLSContext] = []
        self._pair: Pair | None = None
        self._found: Found | None = None
        self._told: tuple[str, ...] = ()
        self.rotation: Rotation | None = None
        self.reloads = {"accepted": 0, "rejected": 0}
        # Called when clients are verified by other CAs from now on: those that the old ones verified must connect
        # again.
        self.on_clients: Callable[[], None] = lambda: None
        try:
            if server.tls_mode == "mounted":
                self._use(from_files(*self._files))
            elif server.tls_mode == "self-signed":
                hosts = dict.fromkeys(["localhost", "127.0.0.1", "::1", host])
                self._use(self_signed(list(hosts)))
        except CertificateError as error:
            raise InputError(str(error), "the serving certificate") from None

    @property
    def listener(self) -> ssl.SSLContext:
        """The TLS context of the listener."""
        return self._tls.listener

    def listener_for(self, client_ca: Path, setting: str) -> ssl.SSLContext:
        """The TLS context of another listener, with the same pair and other clients.

        Args:
            client_ca: PEM file of the CAs of the clients; read once.
            setting: the setting to name in an error.

        Raises:
            InputError: the file cannot be used.
        """
        try:
            tls = ReloadableTLSContext(client_ca=client_authorities(client_ca))
            if self._pair:
                tls.swap(self._pair.certificate, self._pair.key)
        except CertificateError as error:
            raise InputError(str(error), setting) from None
        except ssl.SSLError:
            raise InputError("OpenSSL does not accept the client CA", setting, "use a valid CA certificate") from None
        self._others.append(tls)
        return tls.listener

    @property
    def authority(self) -> bytes:
        """PEM that a client must trust; empty while there is no certificate yet."""
        return (self._pair.authority or self._pair.certificate) if self._pair else b""

    def waiting_for(self) -> tuple[str, ...]:
        """What is missing before the API server can call the server, in words; empty: nothing."""
        return self.rotation.waiting_for() if self.rotation else ()

    def manage(self, secret: CaSecret, bundles: Bundles) -> Rotation:
        """Let a rotation supply the pair."""
        life = timedelta(seconds=self._server.ca_seconds), timedelta(seconds=self._server.leaf_seconds)
        terms = Terms((self._host,), *life)
        self.rotation = Rotation(secret, bundles, terms, self._use, clock=REAL_TIME, log=self._log)
        return self.rotation

    async def follow(self) -> None:
        """Take up changed files until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if await _has_changed(self._followed):
                await self._try_take(lambda: self._use(from_files(*self._files)), "certificate")
            if await _has_changed(self._followed_clients) and await self._try_take(self._use_clients, "client CA"):
                self.on_clients()

    async def probe(self, address: str, bundles: Bundles) -> None:
        """Dial the server's own listener now and then until cancelled, as the API server would."""
        while True:
            why: tuple[str, ...] = ()
            try:
                found = self.rotation.found if self.rotation else await bundles.read()
                entries = {name: each.bundles if each else None for name, each in found.items()}
                self._found = await probe(address, self._host, entries)
                why = self._found.why
            except NotNow as error:
                why = (error.why,)
            # While the first certificate is missing, /readyz reports it.
            if why != self._told and not self.waiting_for():
                self._told = why
                tell = self._log.warning if why else self._log.info
                tell(
                    ServerEvent.NOT_CALLABLE if why else ServerEvent.CALLABLE_AGAIN,
                    why=why,
                )
            fine = self._found is not None and self._found.matches and not why
            await asyncio.sleep(PROBE_SECONDS if fine else _SOON_SECONDS)

    async def keep(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a task again and again until cancelled: a bug must not let a certificate expire without notice."""
        while True:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - logged, and begun again
                self._log.error("internal error in certificate rotation; retrying", exc_info=error)
                await asyncio.sleep(_RESTART_SECONDS)

    def gauges(self) -> dict[str, tuple[str, Callable[[], Mapping[str, float]]]]:
        """For `webhook.server.ops.MetricsState`; `LABELS` has their labels."""
        return {
            EXPIRY: ("Unix time at which the serving certificate, or the managed CA, expires.", self._expiry),
            MATCH: ("1 if a configuration's caBundles verify the serving certificate.", self._matches),
            ROTATED: ("Unix time at which the managed CA began to sign.", self._rotation_time),
        }

    def counters(self) -> dict[str, tuple[str, Callable[[], Mapping[str, float]]]]:
        """The counters of reloads and failures: help text and a function that reads the values, by name."""
        return {
            RELOADS: ("Changes of mounted certificates by result.", lambda: dict(self.reloads)),
            FAILURES: (
                "Steps of the managed certificates' rotation that failed.",
                lambda: {"": self.rotation.failures if self.rotation else 0},
            ),
        }

    def _expiry(self) -> dict[str, float]:
        result = {}
        if self._pair:
            result["serving"] = self._pair.leaf.not_valid_after_utc.timestamp()
        if self.rotation and self.rotation.authority_end:
            result["ca"] = self.rotation.authority_end.timestamp()
        return result

    def _matches(self) -> dict[str, float]:
        return {name: float(match) for name, match in self._found.matches.items()} if self._found else {}

    def _rotation_time(self) -> dict[str, float]:
        return {"": self.rotation.rotated.timestamp()} if self.rotation and self.rotation.rotated else {}

    async def _try_take(self, take: Callable[[], None], what: str) -> bool:
        try:
            await asyncio.to_thread(take)
        except CertificateError as error:
            self.reloads["rejected"] += 1
            self._log.error(f"changed {what} {ServerEvent.CHANGE_INVALID}", why=str(error))
            return False
        self.reloads["accepted"] += 1
        self._log.info(f"{what} reloaded")
        return True

    def _use(self, pair: Pair) -> None:
        try:
            for tls in (self._tls, *self._others):
                tls.swap(pair.certificate, pair.key)
        except ssl.SSLError as error:
            raise CertificateError(
                f"OpenSSL does not accept the certificate or its key ({error.reason or 'no PEM'}); renew them"
            ) from None
        self._pair = pair

    def _use_clients(self) -> None:
        assert self._client_ca
        try:
            self._tls.trust(client_authorities(self._client_ca))
        except ssl.SSLError:
            raise CertificateError(f"OpenSSL does not accept {self._client_ca}; use a valid CA certificate") from None


@asynccontextmanager
async def keep_fresh(
    certificates: Certificates, settings: Settings, kubeconfig: Kubeconfig | None, url: str, address: str, *, live: bool
) -> AsyncIterator[None]:
    """Keep the certificate fresh and probe it as long as the context lasts.

    Args:
        certificates: the certificate of the listener.
        settings: the settings, with the name of the Service and the webhook configurations.
        kubeconfig: path of a kubeconfig; None: the pod's service account, else kubectl's default.
        url: the URL by which the API server calls the server; empty: the settings' Service.
        address: the address of the listener, ``HOST:PORT``.
        live: whether there is an API server, with webhook configurations to read.
    """
    from webhook.k8s.client.transport import connect

    async with AsyncExitStack() as ends:
        works: list[Callable[[], Awaitable[None]]] = [certificates.follow]
        if live and settings.server.tls_mode != "self-signed":
            transport = await connect(kubeconfig)
            ends.push_async_callback(transport.close)
            bundles = CaBundles(transport, configurations(settings, RegistrationTarget(url=url)))
            if settings.server.tls_mode == "managed":
                secret = CaSecret(transport, settings.webhooks.service_namespace, settings.server.ca_secret)
                works.append(certificates.manage(secret, bundles).run)
            works.append(lambda: certificates.probe(address, bundles))
        for work in works:
            task = asyncio.create_task(certificates.keep(work))
            ends.push_async_callback(cancel, task)
        yield


def host_of(url: str | None, settings: Settings) -> str:
    """The name by which the API server calls the server.

    Args:
        url: the URL of a server outside the cluster; None: the settings' Service.
        settings: the settings, with the name of the Service.
    """
    named = urlsplit(url).hostname if url else None
    return named or f"{settings.webhooks.service_name}.{settings.webhooks.service_namespace}.svc"


async def _has_changed(followed: FileWatcher | None) -> bool:
    return followed is not None and await asyncio.to_thread(followed.has_changed)


async def cancel(task: asyncio.Task[None]) -> None:
    """End a task, and wait until it has ended."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
