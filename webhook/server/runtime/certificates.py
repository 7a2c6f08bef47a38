"""The serving certificate, and the CAs of the API server's client certificate: kept fresh while `serve` runs.

Managed certificates live in the CA's Secret, and in the caBundles of the webhook configurations. caBundles are written
by a strategic merge patch over the resourceVersion that was read, entries by name. Not by server-side apply: its field
manager would own the entries beside the one that installed them, and the API server would then reject the installer's
apply of a manifest without one of them (the rest of the entry would be the caBundle alone).
"""

from __future__ import annotations

import asyncio
import binascii
import ssl
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from certs import files
from certs.authority import check_client_authorities
from certs.handshake import verify_server_certificate
from certs.pem import MAX_BYTES, POLL_SECONDS, CertificateError, Pair
from certs.rotation import KEYS, Bundles, NotNow, Plan, Rotation, Situation, StoredSecret, Terms, WebhookConfiguration
from certs.source import check_files, self_signed
from certs.state import plan
from webhook import names
from webhook.errors import InputError, Unavailable
from webhook.install.registration import API_VERSION, Manifest, RegistrationTarget, configurations
from webhook.k8s.client.api import ApiConnectionError, Requests, decode, explain
from webhook.k8s.client.clock import REAL_TIME
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object
from webhook.server.listener import split_address
from webhook.server.ops import StateMetric
from webhook.server.runtime.options import Options
from webhook.server.runtime.tasks import connected, keep_until
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
    ) -> None:
        """Keep the certificate fresh and probe it until the end.

        Args:
            options: the command line; without a URL, the API server calls the settings' Service.
            settings: the settings in force.
            address: the address of the listener, ``HOST:PORT``.
            ends: what ends at the server's end.
            live: whether there is an API server, with webhook configurations to read.
        """
        keep_until(ends, self.follow, "internal error while following the certificate's files; retrying")
        if live and settings.tls.mode != "self-signed":
            transport = await connected(options.kubeconfig, ends)
            bundles = CaBundles(transport, configurations(settings, RegistrationTarget(url=options.url or "")))
            if settings.tls.mode == "managed":
                secret = CaSecret(transport, settings.webhooks.service.namespace, settings.tls.secret_name)
                keep_until(ends, self.manage(secret, bundles).run, "internal error in certificate rotation; retrying")
            keep_until(ends, lambda: self.probe(address, bundles), "internal error in the certificate probe; retrying")

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


FIELD_MANAGER: Final = "kubevirt-webhook-certificates"
# On the Secret, with any value: make another CA now.
ROTATE_ANNOTATION: Final = f"{names.DOMAIN}/rotate-ca"

# etcd's revision before anything is written, so that no object has it.
_NO_VERSION: Final = "1"
_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_SECONDS: Final = 10.0
_MANAGER: Final = {"fieldManager": FIELD_MANAGER}


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str
    annotations: dict[str, str] | None = None


class _ClientConfig(msgspec.Struct, rename="camel"):
    ca_bundle: str = ""


class _WebhookEntry(msgspec.Struct, rename="camel"):
    name: str
    client_config: _ClientConfig


class _SecretOrConfiguration(msgspec.Struct):
    """The content of a Secret, or of a webhook configuration."""

    metadata: _Meta
    data: dict[str, str] | None = None
    webhooks: list[_WebhookEntry] | None = None


class _ObjectClient(NamedTuple):
    """One object in the API, read and written with the permissions for it alone."""

    api: Requests
    resource: Resource[Object]
    namespace: str
    name: str

    async def call(
        self,
        verb: str,
        expected: tuple[int, ...],
        body: Any = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Status and body of the answer; without one, or where its status is not expected, it raises `NotNow`."""
        path = self.resource.path(self.namespace, self.name)
        method = "GET" if verb == "get" else "PATCH"
        try:
            status, answer = await self.api.request(method, path, query or {}, body, content_type, seconds=_SECONDS)
        except ApiConnectionError as error:
            raise NotNow(f"{self._where}: {error.why}") from None
        if status not in expected:
            raise NotNow(f"{self._where}: {explain(verb, self.resource, self.namespace, status, answer).why}")
        return status, answer

    async def read(self) -> _SecretOrConfiguration | None:
        """Its newest state; None: it does not exist. An answer that cannot be decoded raises `NotNow`, too."""
        status, body = await self.call("get", (200, 404))
        if status != 200:
            return None
        content = decode(body, _SecretOrConfiguration, self.resource.kind)
        if isinstance(content, Unavailable):
            raise NotNow(f"{self._where}: {content.why}")
        return content

    @property
    def _where(self) -> str:
        return f"{self.resource.kind}{f' {self.namespace}' if self.namespace else ''}/{self.name}"


class CaSecret:
    """The Secret that holds the CA; `certs.rotation.SecretStore`.

    It needs: get, patch and create on this one Secret. RBAC knows its name in server-side apply alone, not where an
    object is posted to a collection.

    Args:
        api: the connection to the API server.
        namespace: namespace of the Secret.
        name: name of the Secret.
    """

    def __init__(self, api: Requests, namespace: str, name: str) -> None:
        self._secret: Final = _ObjectClient(api, Resource("", "v1", "secrets", "Secret", True, Object), namespace, name)

    async def read(self) -> StoredSecret | None:
        """Its newest state; values that are no base64 count as empty."""
        secret = await self._secret.read()
        if secret is None:
            return None
        data = {key: _decode(text) for key, text in (secret.data or {}).items() if key in KEYS}
        annotations = secret.metadata.annotations or {}
        return StoredSecret(data, secret.metadata.resource_version, ROTATE_ANNOTATION in annotations)

    async def create(self, data: Mapping[str, bytes]) -> bool:
        """Create the Secret with values by key, not encoded; False: it exists already."""
        metadata: Manifest = {
            "name": self._secret.name,
            "namespace": self._secret.namespace,
            "labels": {"app.kubernetes.io/name": "kubevirt-webhook"},
            # A Secret that exists has another version: the API server answers 409, and changes nothing.
            "resourceVersion": _NO_VERSION,
        }
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": _encode(data)}
        status, _ = await self._secret.call("create", (201, 409), secret, _APPLY, _MANAGER)
        return status == 201

    async def replace(self, data: Mapping[str, bytes], version: str, *, answered: bool) -> bool:
        """Change the CA's keys, and remove those without a value; False: the Secret has another resourceVersion by now.

        Its other content is kept; ``answered`` removes the annotation that requests another CA.
        """
        metadata: Manifest = {"resourceVersion": version}
        if answered:
            metadata["annotations"] = {ROTATE_ANNOTATION: None}
        change = {"metadata": metadata, "data": {**dict.fromkeys(KEYS), **_encode(data)}}
        status, _ = await self._secret.call("patch", (200, 404, 409), change, _MERGE)
        return status == 200


class CaBundles:
    """The caBundles of the server's webhook configurations; `certs.rotation.Bundles`.

    It needs: get and patch on these configurations. Entries that others added to them are left alone.

    Args:
        api: the connection to the API server.
        manifests: the expected configurations, as `registration.configurations` makes them.
    """

    def __init__(self, api: Requests, manifests: Iterable[Manifest]) -> None:
        self._clients: Final[dict[str, _ObjectClient]] = {}
        group, _, version = API_VERSION.partition("/")
        for manifest in manifests:
            kind, name = manifest["kind"], manifest["metadata"]["name"]
            resource = Resource(group, version, f"{kind.lower()}s", kind, False, Object)
            self._clients[f"{kind}/{name}"] = _ObjectClient(api, resource, "", name)

    async def read(self) -> Mapping[str, WebhookConfiguration | None]:
        """Every configuration by ``KIND/NAME``; None: it does not exist."""
        contents = {where: await client.read() for where, client in self._clients.items()}
        return {where: _configuration(each) if each else None for where, each in contents.items()}

    async def write(self, name: str, version: str, bundles: Mapping[str, bytes]) -> bool:
        """Change the caBundles of entries that exist; ``name`` is a ``KIND/NAME``."""
        entries = [{"name": entry, "clientConfig": {"caBundle": pem}} for entry, pem in _encode(bundles).items()]
        change = {"metadata": {"resourceVersion": version}, "webhooks": entries}
        status, _ = await self._clients[name].call("patch", (200, 404, 409), change, _STRATEGIC, _MANAGER)
        return status == 200


def _configuration(content: _SecretOrConfiguration) -> WebhookConfiguration:
    own = [entry for entry in content.webhooks or () if entry.name.endswith(f".{names.DOMAIN}")]
    bundles = {entry.name: _decode(entry.client_config.ca_bundle) for entry in own}
    return WebhookConfiguration(content.metadata.resource_version, bundles)


def _decode(text: str) -> bytes:
    try:
        # What is not base64 is left out otherwise, and something else than what was written is decoded.
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _encode(data: Mapping[str, bytes]) -> dict[str, str]:
    return {key: b64encode(value).decode("ascii") for key, value in data.items()}


_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - what is listened on


class ProbeResult(NamedTuple):
    """By configuration, whether a client that trusts each of its caBundles accepts the server; why not, as clauses."""

    matches: Mapping[str, bool]
    why: tuple[str, ...]


async def probe(address: str, host: str, bundles: Mapping[str, Mapping[str, bytes] | None]) -> ProbeResult:
    """Dial the server's own listener, ``HOST:PORT``, once for every different caBundle.

    ``host`` is the name by which the API server calls it; the caBundles (PEM) are by entry by configuration, None for a
    configuration that does not exist.
    """
    matches, why = dict[str, bool](), list[str]()
    evaluated: dict[bytes, str] = {}
    for name, entries in bundles.items():
        problems: dict[str, None] = {} if entries is not None else {"it does not exist": None}
        for pem in (entries or {}).values():
            if pem not in evaluated:
                evaluated[pem] = await _rejection(address, host, pem)
            if evaluated[pem]:
                problems[evaluated[pem]] = None
        matches[name] = not problems
        why += [f"{name}: {each}" for each in problems]
    return ProbeResult(matches, tuple(why))


async def _rejection(address: str, host: str, pem: bytes) -> str:
    """Why a client with this caBundle could not call the server; empty if it could."""
    if not pem:
        return "an entry has no caBundle"
    where, port = split_address(address)
    try:
        await verify_server_certificate(_ANY.get(where, where), port, host, pem)
    except ssl.SSLCertVerificationError as error:
        return f"its caBundle does not verify the serving certificate ({error.verify_message})"
    except (OSError, ValueError, TimeoutError) as error:
        return f"the server's own listener cannot be called with its caBundle ({type(error).__name__})"
    return ""
