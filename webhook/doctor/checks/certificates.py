"""Can the API server verify us? The caBundles, the CA's Secret, and the certificate where we can be dialled."""

from __future__ import annotations

import binascii
import ssl
from base64 import b64decode
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

from cryptography import x509

from certs.authority import parse_bundle
from certs.handshake import verify_server_certificate
from webhook import names
from webhook.doctor.support.finding import Finding, pluralize, several, unreadable
from webhook.doctor.support.installation import Installation
from webhook.errors import Unavailable
from webhook.install.registration import Manifest

CHECK: Final = "certificates"

# Whoever renews does so long before: at two thirds of a life (we, and cert-manager).
_LATE: Final = 0.8
_HTTPS: Final = 443
_KEEPER: Final = "look at the log of the replicas, which keep the caBundles, and at their rights"
_GIVER: Final = "have whoever issues the certificate write it, for example with cert-manager's inject-ca-from"


async def check(installation: Installation) -> list[Finding]:
    """What each configuration trusts, and whether it goes with what signs and what is served."""
    live = await installation.every_configuration()
    if isinstance(live, Unavailable):
        return [unreadable(CHECK, "caBundles", live)]
    now = datetime.fromtimestamp(installation.clock.wall(), UTC)
    managed = await installation.manages_certificates()
    todo = _KEEPER if managed else _GIVER
    wanted = {_title(manifest) for manifest in installation.expected_configurations()}
    found: list[Finding] = []
    trusted: dict[str, tuple[bytes, ...]] = {}
    for kind, configuration in live:
        title = f"{kind} {configuration.meta.name}"
        if title in wanted and configuration.ours:
            bundles = {entry.name: _pem(entry.client_config.ca_bundle) for entry in configuration.ours}
            trusted[title] = tuple(dict.fromkeys(bundles.values()))
            found += _bundles(title, bundles, now, todo)
    if managed:
        found += await _secret(installation, trusted, now)
    found += await _check_served(installation, trusted)
    return found


def _title(manifest: Manifest) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def _pem(bundle: str | None) -> bytes:
    try:
        return b64decode(bundle or "")
    except (binascii.Error, ValueError):
        return b"no base64"


def _bundles(title: str, bundles: dict[str, bytes], now: datetime, todo: str) -> list[Finding]:
    """One finding for each kind of mistake, one if there is none."""
    by_problem: dict[str, list[str]] = {}
    late: list[x509.Certificate] = []
    for entry, pem in bundles.items():
        certificates = parse_bundle(pem)
        problem = _problem(pem, certificates, now)
        if problem:
            by_problem.setdefault(problem, []).append(entry.removesuffix(f".{names.DOMAIN}"))
        else:
            # Of several, some are on their way out.
            late += [each for each in _newest(certificates) if _is_late(each, now)]
    found = [
        Finding(CHECK, title, "failure", f"{problem}, so that we can't be called: {several(entries)}", todo)
        for problem, entries in by_problem.items()
    ]
    if late:
        what = f"its newest CA ends at {late[0].not_valid_after_utc:%Y-%m-%d %H:%M} UTC and is overdue for renewal"
        found.append(Finding(CHECK, title, "warning", what, todo))
    if not found:
        ends = min(each.not_valid_after_utc for pem in bundles.values() for each in _newest(parse_bundle(pem)))
        what = f"{pluralize(len(bundles), 'caBundle')}, good until {ends:%Y-%m-%d %H:%M} UTC"
        found.append(Finding(CHECK, title, "ok", what))
    return found


def _problem(pem: bytes, certificates: tuple[x509.Certificate, ...], now: datetime) -> str:
    if not pem:
        return "there is no caBundle"
    if not certificates:
        return "the caBundle holds no certificate"
    if all(each.not_valid_after_utc <= now for each in certificates):
        ended = max(each.not_valid_after_utc for each in certificates)
        return f"the caBundle expired at {ended:%Y-%m-%d %H:%M} UTC"
    if all(each.not_valid_before_utc > now for each in certificates):
        return "the caBundle is not valid yet, by our clock"
    return ""


def _newest(certificates: Iterable[x509.Certificate]) -> list[x509.Certificate]:
    return [max(certificates, key=lambda each: each.not_valid_after_utc)]


def _is_late(certificate: x509.Certificate, now: datetime) -> bool:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begin + (end - begin) * _LATE


async def _secret(installation: Installation, trusted: dict[str, tuple[bytes, ...]], now: datetime) -> list[Finding]:
    """The CA that signs must be in every caBundle."""
    name = installation.settings.server.ca_secret
    subject = f"Secret {installation.namespace}/{name}"
    secret = await installation.ca_secret()
    if isinstance(secret, Unavailable):
        return [unreadable(CHECK, subject, secret)]
    if secret is None:
        todo = "look at the log of the replicas, which make it, and at their rights"
        return [Finding(CHECK, subject, "failure", "it isn't there, so that no replica has a CA to sign with", todo)]
    certificates = parse_bundle(_pem(secret.data.ca_crt if secret.data else ""))
    if not certificates:
        todo = f"delete it, and the replicas make another: kubectl -n {installation.namespace} delete secret {name}"
        return [Finding(CHECK, subject, "failure", "its ca.crt holds no certificate", todo)]
    signs = certificates[0]
    rotate = f"kubectl -n {installation.namespace} annotate secret {name} kubevirt-webhook.github.io/rotate-ca=now"
    if signs.not_valid_after_utc <= now:
        what = f"its CA expired at {signs.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        return [Finding(CHECK, subject, "failure", what, rotate)]
    strangers = [title for title, bundles in trusted.items() if any(signs not in parse_bundle(pem) for pem in bundles)]
    if strangers:
        what = f"its CA is not in every caBundle of {several(strangers)}"
        return [Finding(CHECK, subject, "failure", what, _KEEPER)]
    if _is_late(signs, now):
        what = f"its CA ends at {signs.not_valid_after_utc:%Y-%m-%d %H:%M} UTC and is overdue for renewal"
        return [Finding(CHECK, subject, "warning", what, rotate)]
    what = f"its CA is in every caBundle, and signs until {signs.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    return [Finding(CHECK, subject, "ok", what)]


async def _check_served(installation: Installation, trusted: dict[str, tuple[bytes, ...]]) -> list[Finding]:
    """Dial as the API server does, with each different caBundle."""
    if not installation.url:
        webhooks = installation.settings.webhooks
        subject = f"Service {webhooks.service_namespace}/{webhooks.service_name}"
        what = "a Service can be dialled only within the cluster, so the served certificate was not looked at"
        todo = "look at kubevirt_webhook_ca_bundle_match, where each replica says whether it can be called"
        return [Finding(CHECK, subject, "unknown", what, todo)]
    parts = urlsplit(installation.url)
    host, port = parts.hostname or "", parts.port or _HTTPS
    problems: dict[str, None] = {}
    for pem in dict.fromkeys(pem for bundles in trusted.values() for pem in bundles):
        try:
            await verify_server_certificate(host, port, host, pem)
        except ssl.SSLCertVerificationError as error:
            problems[f"the API server's caBundle refuses the certificate served there ({error.verify_message})"] = None
        except (OSError, ValueError, TimeoutError) as error:
            what = f"it can't be dialled from here ({type(error).__name__})"
            todo = "see that it runs and listens there; only the API server has to reach it"
            return [Finding(CHECK, installation.url, "unknown", what, todo)]
    if problems:
        todo = "restart the server, or write the CA that it serves with into the caBundles"
        return [Finding(CHECK, installation.url, "failure", what, todo) for what in problems]
    if not trusted:
        return []
    return [Finding(CHECK, installation.url, "ok", "it serves a certificate that every caBundle accepts")]
