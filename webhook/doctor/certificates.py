"""Certificates that the API server can verify, and the clocks on which certificates and Leases depend."""

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
from webhook.doctor.report import Finding, Installation, abbreviate, unreadable
from webhook.errors import Unavailable
from webhook.install.registration import Manifest
from webhook.k8s.resources import LEASES
from webhook.k8s.types.meta import unix_time
from webhook.text import pluralize

_CERTIFICATES: Final = "certificates"
# kubevirt-webhook and cert-manager renew at two thirds of a certificate's lifetime.
_LATE: Final = 0.8
_HTTPS: Final = 443
_DATE: Final = "%Y-%m-%d %H:%M UTC"
_KEEPER: Final = "check the log and the permissions of the replicas, which update the caBundles"
_GIVER: Final = "set the caBundle from the issuer of the certificate, for example with cert-manager's inject-ca-from"
_CLOCK: Final = "clock"
# Serving certificates are valid from five minutes before they are made, so they tolerate this much.
_GRAVE_SKEW_SECONDS: Final = 300.0
_SKEW_SECONDS: Final = 10.0


async def check_certificates(installation: Installation) -> list[Finding]:
    """Compare the CAs that each configuration trusts with the CA that signs and the certificate that is served."""
    live = await installation.every_configuration()
    if isinstance(live, Unavailable):
        return [unreadable(_CERTIFICATES, "caBundles", live)]
    now = datetime.fromtimestamp(installation.clock.wall(), UTC)
    managed = await installation.manages_certificates()
    todo = _KEEPER if managed else _GIVER
    own_titles = {_title(manifest) for manifest in installation.expected_configurations()}
    findings: list[Finding] = []
    trusted: dict[str, tuple[bytes, ...]] = {}
    for kind, configuration in live:
        title = f"{kind} {configuration.meta.name}"
        if title in own_titles and configuration.own_entries:
            bundles = {entry.name: _pem(entry.client_config.ca_bundle) for entry in configuration.own_entries}
            trusted[title] = tuple(dict.fromkeys(bundles.values()))
            findings += _check_bundles(title, bundles, now, todo)
    if managed:
        findings += await _check_secret(installation, trusted, now)
    findings += await _check_served(installation, trusted)
    return findings


def _title(manifest: Manifest) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def _pem(bundle: str | None) -> bytes:
    try:
        return b64decode(bundle or "")
    except (binascii.Error, ValueError):
        return b"not base64"


def _check_bundles(title: str, bundles: dict[str, bytes], now: datetime, todo: str) -> list[Finding]:
    """One finding for each kind of fault, or one if there is none."""
    by_problem: dict[tuple[str, str], list[str]] = {}
    late: list[x509.Certificate] = []
    for entry, pem in bundles.items():
        certificates = parse_bundle(pem)
        problem = _problem(pem, certificates, now)
        if problem:
            by_problem.setdefault(problem, []).append(entry.removesuffix(f".{names.DOMAIN}"))
        else:
            # Older CAs beside the newest one expire as intended.
            late += [each for each in _newest(certificates) if _is_late(each, now)]
    findings = []
    for (code, fault), entries in by_problem.items():
        what = f"{fault}, so the API server cannot call {abbreviate(entries)}"
        findings.append(Finding(_CERTIFICATES, code, title, "failure", what, todo))
    if late:
        what = f"the newest CA expires at {late[0].not_valid_after_utc:{_DATE}} and is overdue for renewal"
        findings.append(Finding(_CERTIFICATES, "ca-bundle-late", title, "warning", what, todo))
    if not findings:
        ends = min(each.not_valid_after_utc for pem in bundles.values() for each in _newest(parse_bundle(pem)))
        what = f"has {pluralize(len(bundles), 'caBundle')}, valid until {ends:{_DATE}}"
        findings.append(Finding(_CERTIFICATES, "ca-bundle-valid", title, "ok", what))
    return findings


def _problem(pem: bytes, certificates: tuple[x509.Certificate, ...], now: datetime) -> tuple[str, str] | None:
    """The code and a clause about a caBundle of no use."""
    if not pem:
        return "ca-bundle-missing", "the caBundle is missing"
    if not certificates:
        return "ca-bundle-malformed", "the caBundle holds no certificate"
    if all(each.not_valid_after_utc <= now for each in certificates):
        ended = max(each.not_valid_after_utc for each in certificates)
        return "ca-bundle-expired", f"the caBundle expired at {ended:{_DATE}}"
    if all(each.not_valid_before_utc > now for each in certificates):
        return "ca-bundle-not-yet-valid", "the caBundle is not valid yet by the clock of this host"
    return None


def _newest(certificates: Iterable[x509.Certificate]) -> list[x509.Certificate]:
    return [max(certificates, key=lambda each: each.not_valid_after_utc)]


def _is_late(certificate: x509.Certificate, now: datetime) -> bool:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begin + (end - begin) * _LATE


async def _check_secret(
    installation: Installation, trusted: dict[str, tuple[bytes, ...]], now: datetime
) -> list[Finding]:
    """Check that the CA that signs is in every caBundle."""
    name = installation.settings.tls.secret_name
    subject = f"Secret {installation.namespace}/{name}"
    secret = await installation.ca_secret()
    if isinstance(secret, Unavailable):
        return [unreadable(_CERTIFICATES, subject, secret)]
    if secret is None:
        todo = "check the log and the permissions of the replicas, which create it"
        what = "does not exist, so no replica has a CA to sign with"
        return [Finding(_CERTIFICATES, "secret-missing", subject, "failure", what, todo)]
    certificates = parse_bundle(_pem(secret.data.ca_crt if secret.data else ""))
    if not certificates:
        todo = f"delete it; the replicas create a new one: kubectl -n {installation.namespace} delete secret {name}"
        return [Finding(_CERTIFICATES, "secret-malformed", subject, "failure", "key ca.crt holds no certificate", todo)]
    signs = certificates[0]
    rotate = f"kubectl -n {installation.namespace} annotate secret {name} kubevirt-webhook.github.io/rotate-ca=now"
    if signs.not_valid_after_utc <= now:
        what = f"the CA expired at {signs.not_valid_after_utc:{_DATE}}"
        return [Finding(_CERTIFICATES, "ca-expired", subject, "failure", what, rotate)]
    unknown = [title for title, bundles in trusted.items() if any(signs not in parse_bundle(pem) for pem in bundles)]
    if unknown:
        what = f"the CA is missing from caBundles of {abbreviate(unknown)}"
        return [Finding(_CERTIFICATES, "ca-not-trusted", subject, "failure", what, _KEEPER)]
    if _is_late(signs, now):
        what = f"the CA expires at {signs.not_valid_after_utc:{_DATE}} and is overdue for renewal"
        return [Finding(_CERTIFICATES, "ca-late", subject, "warning", what, rotate)]
    what = f"the CA is in every caBundle and valid until {signs.not_valid_after_utc:{_DATE}}"
    return [Finding(_CERTIFICATES, "ca-trusted", subject, "ok", what)]


async def _check_served(installation: Installation, trusted: dict[str, tuple[bytes, ...]]) -> list[Finding]:
    """Connect as the API server does, with each different caBundle."""
    if not installation.url:
        webhooks = installation.settings.webhooks
        subject = f"Service {webhooks.service.namespace}/{webhooks.service.name}"
        what = "the served certificate was not checked: a Service can be reached only within the cluster"
        todo = "check the metric kubevirt_webhook_ca_bundle_match, in which each replica reports the same check"
        return [Finding(_CERTIFICATES, "served-not-checked", subject, "unknown", what, todo)]
    parts = urlsplit(installation.url)
    host, port = parts.hostname or "", parts.port or _HTTPS
    problems: dict[str, None] = {}
    for pem in dict.fromkeys(pem for bundles in trusted.values() for pem in bundles):
        try:
            await verify_server_certificate(host, port, host, pem)
        except ssl.SSLCertVerificationError as error:
            problems[f"a caBundle does not verify the served certificate ({error.verify_message})"] = None
        except (OSError, ValueError, TimeoutError) as error:
            what = f"cannot be reached from this host ({type(error).__name__})"
            todo = "check that the server runs and listens there; only the API server has to reach it"
            return [Finding(_CERTIFICATES, "served-not-reached", installation.url, "unknown", what, todo)]
    if problems:
        todo = "restart the server, or add the CA of its certificate to the caBundles"
        return [
            Finding(_CERTIFICATES, "served-not-trusted", installation.url, "failure", what, todo) for what in problems
        ]
    if not trusted:
        return []
    what = "serves a certificate that every caBundle verifies"
    return [Finding(_CERTIFICATES, "served-trusted", installation.url, "ok", what)]


async def check_clock(installation: Installation) -> list[Finding]:
    """Compare the API server's clock with that of this host, and those of the schedulers with the API server's."""
    before = installation.clock.wall()
    server = await installation.reader.api.date()
    if isinstance(server, Unavailable):
        return [unreadable(_CLOCK, "API server", server)]
    # The Date header is cut off at whole seconds; the local time is the middle between before and after.
    skew = server + 0.5 - (before + installation.clock.wall()) / 2
    findings = [_evaluate_skew("API server", skew, "this host", "check that NTP runs on both hosts")]
    for scheduler in installation.settings.scheduling.schedulers.values():
        health_check = scheduler.health_check
        if health_check.kind != "lease":
            continue
        lease = await installation.reader.get(LEASES, health_check.namespace, health_check.name)
        renewed = None if lease is None or isinstance(lease, Unavailable) else lease.spec and lease.spec.renew_time
        moment = unix_time(renewed or None)
        # A renewal in the past may just be old, so only one in the future shows a wrong clock.
        if moment is not None and moment > server + 1 + _SKEW_SECONDS:
            subject, todo = f"scheduler {scheduler.name}", "check that NTP runs on its node"
            findings.append(_evaluate_skew(subject, moment - server, "the API server", todo))
    return findings


def _evaluate_skew(subject: str, skew: float, other: str, todo: str) -> Finding:
    direction = "ahead of" if skew > 0 else "behind"
    what = f"clock is {abs(skew):.0f}s {direction} the clock of {other}"
    if abs(skew) > _GRAVE_SKEW_SECONDS:
        what = f"{what}, more than certificates tolerate ({_GRAVE_SKEW_SECONDS:.0f}s)"
        return Finding(_CLOCK, "clock-wrong", subject, "failure", what, todo)
    if abs(skew) > _SKEW_SECONDS:
        return Finding(_CLOCK, "clock-skewed", subject, "warning", what, todo)
    what = f"clock agrees with the clock of {other} within {max(1, abs(skew)):.0f}s"
    return Finding(_CLOCK, "clock-correct", subject, "ok", what)
