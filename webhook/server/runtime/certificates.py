"""The serving certificate, and the CAs of the API server's client certificate: kept fresh while `serve` runs.

Managed certificates live in the CA's Secret (`ca_secret.py`), and in the caBundles of the webhook configurations
(`ca_bundles.py`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from certs import files
from certs.authority import check_client_authorities
from certs.pem import MAX_BYTES, POLL_SECONDS, CertificateError, Pair
from certs.rotation import Bundles, NotNow, Plan, Rotation, Situation, Terms
from certs.source import check_files, self_signed
from certs.state import plan
from webhook.errors import InputError
from webhook.install.registration import RegistrationTarget, configurations
from webhook.k8s.client.clock import REAL_TIME
from webhook.server.ops import StateMetric
from webhook.server.runtime.ca_bundles import CaBundles
from webhook.server.runtime.ca_secret import CaSecret
from webhook.server.runtime.connections import connected
from webhook.server.runtime.options import Options
from webhook.server.runtime.probe import ProbeResult, probe
from webhook.server.tasks import keep_until
from webhook.server.tls import ReloadableTLSContext
from webhook.settings.model import Settings, TlsSettings

T = TypeVar("T")

EXPIRY: Final = "kubevirt_webhook_certificate_expiry_timestamp_seconds"
MATCH: Final = "kubevirt_webhook_ca_bundle_match"
ROTATED: Final = "kubevirt_webhook_ca_rotation_timestamp_seconds"
RELOADS: Final = "kubevirt_webhook_certificate_reloads_total"
FAILURES: Final = "kubevirt_webhook_certificate_failures_total"

# Between two calls of the own listener, and while something is wrong.
PROBE_SECONDS: Final = 30.0
_SOON_SECONDS: Final = 5.0


class Certificates:
    """The listener's certificate and its state.

    Args:
        tls: the settings, with the options of the command line.
        host: the name by which the API server calls the server.
        log: the logger for events.

    Raises:
        InputError: a file cannot be used.
    """

    def __init__(self, tls: TlsSettings, host: str, log: Any) -> None:
        self._log: Final = log
        self._host: Final = host
        self._settings: Final = tls
        self._files: Final = Path(tls.cert_file), Path(tls.key_file)
        self._client_ca: Final = Path(tls.client_ca_file)
        self._followed: Final = files.Followed(*self._files, most=MAX_BYTES) if tls.mode == "mounted" else None
        self._followed_ca: Final = files.Followed(self._client_ca, most=MAX_BYTES) if tls.client_ca_file else None
        self._tls: Final = _context(self._followed_ca, "--client-ca")
        self.listener: Final = self._tls.listener
        # Other listeners with the same pair, each with CAs of its own for clients.
        self._others: list[ReloadableTLSContext] = []
        self._pair: Pair | None = None
        self._probed: ProbeResult | None = None
        self._reported: tuple[str, ...] = ()
        self.rotation: Rotation | None = None
        self.reloads = {"accepted": 0, "rejected": 0}
        # Called when clients are verified by other CAs from now on: those that the old ones verified must connect
        # again.
        self.on_clients: Callable[[], None] = lambda: None
        try:
            if self._followed:
                self._use(self._check_pair(*self._followed.read()))
            elif tls.mode == "self-signed":
                hosts = dict.fromkeys(["localhost", "127.0.0.1", "::1", host])
                self._use(self_signed(list(hosts)))
        except files.FileError as error:
            raise InputError(str(error), "the serving certificate", "use a readable PEM file") from None
        except CertificateError as error:
            raise InputError(str(error), "the serving certificate") from None

    async def listener_for(self, client_ca: Path, setting: str) -> ssl.SSLContext:
        """The TLS context of another listener, with the same pair and other clients.

        Raises:
            InputError: the PEM file of its clients' CAs, which is read once, cannot be used; it names the setting.
        """
        tls = await asyncio.to_thread(_context, files.Followed(client_ca, most=MAX_BYTES), setting)
        if self._pair:
            tls.swap(self._pair.certificate, self._pair.key)
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
        seconds = self._settings.ca_expiration_seconds, self._settings.leaf_expiration_seconds
        terms = Terms((self._host,), *(timedelta(seconds=each) for each in seconds))
        self.rotation = Rotation(secret, bundles, terms, self._use, plan=make_plan, clock=REAL_TIME, log=self._log)
        return self.rotation

    async def follow(self) -> None:
        """Take up changed files until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if self._followed:
                await self._try_take("certificate", self._followed, self._check_pair, self._use)
            if self._followed_ca and await self._try_take(
                "client CA", self._followed_ca, self._check_clients, self._use_clients
            ):
                self.on_clients()

    async def probe(self, address: str, bundles: Bundles) -> None:
        """Dial the server's own listener now and then until cancelled, as the API server would."""
        while True:
            why: tuple[str, ...] = ()
            try:
                webhooks = self.rotation.configurations if self.rotation else await bundles.read()
                entries = {name: each.bundles if each else None for name, each in webhooks.items()}
                self._probed = await probe(address, self._host, entries)
                why = self._probed.why
            except NotNow as error:
                why = (str(error),)
            # While the first certificate is missing, /readyz reports it.
            if why != self._reported and not self.waiting_for():
                self._reported = why
                if why:
                    self._log.warning("the API server cannot call the server by every configuration", why=why)
                else:
                    self._log.info("the API server can call the server again", why=why)
            fine = self._probed is not None and self._probed.matches and not why
            await asyncio.sleep(PROBE_SECONDS if fine else _SOON_SECONDS)

    async def keep_fresh(
        self, options: Options, settings: Settings, address: str, ends: AsyncExitStack, *, live: bool
    ) -> Callable[[], Awaitable[None]]:
        """Keep the certificate fresh and probe it until the end.

        Args:
            options: the command line; without a URL, the API server calls the settings' Service.
            settings: the settings in force.
            address: the address of the listener, ``HOST:PORT``.
            ends: what ends at the server's end.
            live: whether there is an API server, with webhook configurations to read.

        Returns:
            What ends that which the API server is asked for, earlier; files are followed until the end.
        """
        keep_until(ends, self.follow, "internal error while following the certificate's files; retrying")
        asking = await ends.enter_async_context(AsyncExitStack())
        if live and settings.tls.mode != "self-signed":
            transport = await connected(options.kubeconfig, asking)
            bundles = CaBundles(transport, configurations(settings, RegistrationTarget(url=options.url or "")))
            if settings.tls.mode == "managed":
                secret = CaSecret(transport, settings.webhooks.service.namespace, settings.tls.secret_name)
                run = self.manage(secret, bundles).run
                keep_until(asking, run, "internal error in certificate rotation; retrying")
            probe = partial(self.probe, address, bundles)
            keep_until(asking, probe, "internal error in the certificate probe; retrying")
        return asking.aclose

    def metrics(self) -> list[StateMetric]:
        """The gauges and counters of the certificates."""

        def rotated() -> float | dict[str, float]:
            return self.rotation.rotated.timestamp() if self.rotation and self.rotation.rotated else {}

        end = "Unix time at which the serving certificate, or the managed CA, expires."
        match = "1 if a configuration's caBundles verify the serving certificate."
        failures = "Steps of the managed certificates' rotation that failed."
        return [
            StateMetric(EXPIRY, end, self.expiry, ("certificate",)),
            StateMetric(MATCH, match, self.matches, ("configuration",)),
            StateMetric(ROTATED, "Unix time at which the managed CA began to sign.", rotated),
            StateMetric(RELOADS, "Changes of mounted certificates by result.", lambda: dict(self.reloads), ("result",)),
            StateMetric(FAILURES, failures, lambda: self.rotation.failures if self.rotation else 0),
        ]

    def expiry(self) -> dict[str, float]:
        """The Unix times at which the serving certificate, and the managed CA, expire; those that there are."""
        result = {}
        if self._pair:
            result["serving"] = self._pair.not_after.timestamp()
        if self.rotation and self.rotation.authority_end:
            result["ca"] = self.rotation.authority_end.timestamp()
        return result

    def matches(self) -> dict[str, float]:
        """By webhook configuration, 1 if its caBundles verify the serving certificate, otherwise 0."""
        return {name: float(match) for name, match in self._probed.matches.items()} if self._probed else {}

    async def _try_take(
        self, what: str, followed: files.Followed, check: Callable[..., T], use: Callable[[T], None]
    ) -> bool:
        """Use what changed files hold; whether there was such a change."""

        def checked() -> T | None:
            contents = followed.look()
            return None if contents is None else check(*contents)

        try:
            # Only what is used on the loop is used by all: a listener that starts meanwhile, and a rotation, are there.
            if (taken := await asyncio.to_thread(checked)) is None:
                return False
            use(taken)
        except (CertificateError, files.FileError) as error:
            self.reloads["rejected"] += 1
            self._log.error(f"changed {what} is invalid; keeping the previous one", why=str(error))
            return False
        self.reloads["accepted"] += 1
        self._log.info(f"{what} reloaded")
        return True

    def _check_pair(self, certificate: bytes, key: bytes) -> Pair:
        return check_files(*self._files, (certificate, key))

    def _use(self, pair: Pair) -> None:
        try:
            for tls in (self._tls, *self._others):
                tls.swap(pair.certificate, pair.key)
        except ssl.SSLError as error:
            why = error.reason or "no PEM"
            raise CertificateError(f"OpenSSL does not accept the certificate or its key ({why}); renew them") from None
        self._pair = pair

    def _check_clients(self, pem: bytes) -> bytes:
        check_client_authorities(self._client_ca, pem)
        return pem

    def _use_clients(self, pem: bytes) -> None:
        try:
            self._tls.trust(pem)
        except ssl.SSLError:
            raise CertificateError(f"OpenSSL does not accept {self._client_ca}; use a valid CA certificate") from None


def host_of(url: str | None, settings: Settings) -> str:
    """The name by which the API server calls the server: that of its URL outside the cluster, else of its Service."""
    named = urlsplit(url).hostname if url else None
    return named or f"{settings.webhooks.service.name}.{settings.webhooks.service.namespace}.svc"


def _context(client_ca: files.Followed | None, setting: str) -> ReloadableTLSContext:
    """A TLS context without a pair that accepts the certificates of a file's CAs, if there is one."""
    if client_ca is None:
        return ReloadableTLSContext()
    try:
        (pem,) = client_ca.read()
        check_client_authorities(client_ca.paths[0], pem)
        return ReloadableTLSContext(client_ca=pem)
    except files.FileError as error:
        raise InputError(str(error), setting, "use a readable PEM file") from None
    except CertificateError as error:
        raise InputError(str(error), setting) from None
    except ssl.SSLError:
        raise InputError("OpenSSL does not accept the client CA", setting, "use a valid CA certificate") from None


async def make_plan(situation: Situation, now: datetime, later: datetime) -> Plan:
    """`certs.state.plan` in a thread: caBundles may be large."""
    return await asyncio.to_thread(plan, situation, now, later)
