"""Certificates that the API server can verify, and the clocks on which certificates and Leases depend."""

from __future__ import annotations

import binascii
import ssl
from base64 import b64decode
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

from cryptography import x509

from certs.authority import parse_bundle
from certs.handshake import verify_server_certificate
from certs.rotation import RETIRED
from certs.state import CaState
from webhook import names
from webhook.doctor.installation import Installation
from webhook.errors import Unavailable
from webhook.findings import Finding, check, failure, ok, readable, unknown, warning
from webhook.k8s.resources import LEASES
from webhook.k8s.types.meta import unix_time
from webhook.policies.scheduling.settings import SchedulingSettings
from webhook.text import abbreviate, pluralize

_CERTIFICATES: Final = "certificates"
# kubevirt-webhook and cert-manager renew at two thirds of a certificate's lifetime.
_LATE: Final = 0.8
_DATE: Final = "%Y-%m-%d %H:%M UTC"
_KEEPER: Final = "check the log and the permissions of the replicas, which update the caBundles"
# By these, cert-manager (or OpenShift's service CA) writes caBundles.
_INJECTING: Final = (
    *(f"cert-manager.io/inject-{what}" for what in ("ca-from", "ca-from-secret", "apiserver-ca")),
    "service.beta.openshift.io/inject-cabundle",
)
_ARGO_CD: Final = "argocd.argoproj.io/tracking-id"
_IGNORE: Final = (
    "set ignoreDifferences for webhooks[].clientConfig.caBundle and RespectIgnoreDifferences=true in its Application, "
    "as in examples/gitops"
)
_GIVER: Final = "set the caBundle from the issuer of the certificate, for example with cert-manager's inject-ca-from"
# Serving certificates are valid from five minutes before they are made, so they tolerate this much.
_GRAVE_SKEW_SECONDS: Final = 300.0
_SKEW_SECONDS: Final = 10.0
# The different caBundles of a configuration's entries, by its kind and name.
_Trusted = dict[str, tuple[bytes, ...]]


@check(_CERTIFICATES)
async def check_certificates(installation: Installation) -> list[Finding]:
    """Compare the CAs that each configuration trusts with the CA that signs and the certificate that is served."""
    live = readable("caBundles", await installation.every_configuration())
    now = datetime.fromtimestamp(installation.clock.wall(), UTC)
    managed = await installation.manages_certificates()
    expected = installation.expected_configurations()
    own_titles = {f"{manifest['kind']} {manifest['metadata']['name']}" for manifest in expected}
    findings: list[Finding] = []
    trusted: _Trusted = {}
    for kind, configuration in live:
        title = f"{kind} {configuration.meta.name}"
        if title in own_titles and configuration.own_entries:
            bundles = {entry.name: _pem(entry.client_config.ca_bundle) for entry in configuration.own_entries}
            trusted[title] = tuple(dict.fromkeys(bundles.values()))
            findings += _check_bundles(title, bundles, now, _KEEPER if managed else _GIVER)
            if managed and (annotations := sorted({*(configuration.meta.annotations or {})} & {*_INJECTING})):
                what = f"has {annotations[0]}, so another program writes the caBundles that the replicas write"
                todo = f"remove it: kubectl annotate {kind.lower()} {configuration.meta.name} {annotations[0]}-"
                findings.append(warning("ca-bundle-injected", title, what, todo))
            elif configuration.meta.annotation(_ARGO_CD) and any(pem == b"" for pem in bundles.values()):
                what = "is managed by Argo CD, which removes caBundles at each sync unless it is told to ignore them"
                findings.append(warning("ca-bundle-removed", title, what, _IGNORE))
    if managed:
        findings += await _check_secret(installation, trusted, now)
    return findings + await _check_served(installation, trusted)


def _pem(bundle: str | None) -> bytes:
    try:
        return b64decode(bundle or "", validate=True)
    except (binascii.Error, ValueError):
        return b"not base64"


def _check_bundles(title: str, bundles: dict[str, bytes], now: datetime, todo: str) -> Iterator[Finding]:
    """One finding for each kind of fault, or one if there is none."""
    by_problem: dict[tuple[str, str], list[str]] = {}
    late: list[x509.Certificate] = []
    for entry, pem in bundles.items():
        certificates = parse_bundle(pem)
        if problem := _problem(pem, certificates, now):
            by_problem.setdefault(problem, []).append(entry.removesuffix(f".{names.DOMAIN}"))
        elif _is_late(newest := _newest(certificates), now):
            # Older CAs beside the newest one expire as intended.
            late.append(newest)
    for (code, fault), entries in by_problem.items():
        yield failure(code, title, f"{fault}, so the API server cannot call {abbreviate(entries)}", todo)
    if late:
        what = f"the newest CA expires at {late[0].not_valid_after_utc:{_DATE}} and is overdue for renewal"
        yield warning("ca-bundle-late", title, what, todo)
    elif not by_problem:
        ends = min(_newest(parse_bundle(pem)).not_valid_after_utc for pem in bundles.values())
        yield ok("ca-bundle-valid", title, f"has {pluralize(len(bundles), 'caBundle')}, valid until {ends:{_DATE}}")


def _problem(pem: bytes, certificates: tuple[x509.Certificate, ...], now: datetime) -> tuple[str, str] | None:
    """The code and a clause about a caBundle of no use."""
    if not pem:
        return "ca-bundle-missing", "the caBundle is missing"
    if not certificates:
        return "ca-bundle-malformed", "the caBundle holds no certificate"
    if (ended := _newest(certificates).not_valid_after_utc) <= now:
        return "ca-bundle-expired", f"the caBundle expired at {ended:{_DATE}}"
    if all(each.not_valid_before_utc > now for each in certificates):
        return "ca-bundle-not-yet-valid", "the caBundle is not valid yet by the clock of this host"
    return None


def _newest(certificates: Iterable[x509.Certificate]) -> x509.Certificate:
    return max(certificates, key=lambda each: each.not_valid_after_utc)


def _is_late(certificate: x509.Certificate, now: datetime) -> bool:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begin + (end - begin) * _LATE


@check(_CERTIFICATES)
async def _check_secret(installation: Installation, trusted: _Trusted, now: datetime) -> list[Finding]:
    """Check that the CA that signs is in every caBundle."""
    name = installation.settings.tls.secret_name
    subject = f"Secret {installation.namespace}/{name}"
    secret = readable(subject, await installation.ca_secret())
    if secret is None:
        todo = "check the log and the permissions of the replicas, which create it"
        return [failure("secret-missing", subject, "does not exist, so no replica has a CA to sign with", todo)]
    pem = _pem(secret.data.ca_crt if secret.data else "")
    certificates = parse_bundle(pem)
    if not certificates:
        # As after the Secret was deleted: the certificate in service is kept.
        finding, why = (failure, "holds no certificate") if pem else (warning, "has no certificate yet")
        log = f"kubectl -n {installation.namespace} logs -l app.kubernetes.io/name=kubevirt-webhook --tail=-1"
        todo = f"wait: a replica makes the next CA five minutes after its last one; {log} says what keeps it from that"
        return [finding("secret-malformed", subject, f"key ca.crt {why}", todo)]
    signs = certificates[0]
    ends = f"{signs.not_valid_after_utc:{_DATE}}"
    rotate = f"kubectl -n {installation.namespace} annotate secret {name} kubevirt-webhook.github.io/rotate-ca=now"
    if signs.not_valid_after_utc <= now:
        return [failure("ca-expired", subject, f"the CA expired at {ends}", rotate)]
    if lacking := [title for title, pems in trusted.items() if any(signs not in parse_bundle(pem) for pem in pems)]:
        what = f"the CA is missing from caBundles of {abbreviate(lacking)}"
        return [failure("ca-not-trusted", subject, what, _KEEPER)]
    if _is_late(signs, now):
        return [warning("ca-late", subject, f"the CA expires at {ends} and is overdue for renewal", rotate)]
    what = f"the CA is in every caBundle and valid until {ends}"
    others = {each for pems in trusted.values() for pem in pems for each in parse_bundle(pem)} - {signs}
    if not others:
        return [ok("ca-trusted", subject, what)]
    # Those that are about to sign are trusted before that.
    state, _ = CaState.decode({RETIRED: _pem(secret.data.retired if secret.data else "") or b"[]"}, now)
    until = max((each.until for each in state.retired if each.certificate in others), default=None)
    other = f"the former one is trusted until {until:{_DATE}}" if until else "another one is trusted beside it"
    return [ok("ca-rotates", subject, f"{what}; a rotation is under way: {other}")]


@check(_CERTIFICATES)
async def _check_served(installation: Installation, trusted: _Trusted) -> list[Finding]:
    """Connect as the API server does, with each different caBundle."""
    url = installation.url
    if not url:
        service = installation.settings.webhooks.service
        what = "the served certificate was not checked: a Service can be reached only within the cluster"
        todo = "check the metric kubevirt_webhook_ca_bundle_match, in which each replica reports the same check"
        return [unknown("served-not-checked", f"Service {service.namespace}/{service.name}", what, todo)]
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 443
    problems: dict[str, None] = {}
    for pem in dict.fromkeys(pem for bundles in trusted.values() for pem in bundles):
        try:
            await verify_server_certificate(host, port, host, pem)
        except ssl.SSLCertVerificationError as error:
            problems[f"a caBundle does not verify the served certificate ({error.verify_message})"] = None
        except (OSError, ValueError, TimeoutError) as error:
            what = f"cannot be reached from this host ({type(error).__name__})"
            todo = "check that the server runs and listens there; only the API server has to reach it"
            return [unknown("served-not-reached", url, what, todo)]
    todo = "restart the server, or add the CA of its certificate to the caBundles"
    if problems or not trusted:
        return [failure("served-not-trusted", url, what, todo) for what in problems]
    return [ok("served-trusted", url, "serves a certificate that every caBundle verifies")]


@check("clock")
async def check_clock(installation: Installation) -> list[Finding]:
    """Compare the API server's clock with that of this host, and those of the schedulers with the API server's."""
    api = readable("API server", installation.reader.api)
    before = installation.clock.wall()
    server = readable("API server", await api.date())
    # The Date header is cut off at whole seconds; the local time is the middle between before and after.
    skew = server + 0.5 - (before + installation.clock.wall()) / 2
    findings = [_evaluate_skew("API server", skew, "this host", "check that NTP runs on both hosts")]
    for scheduler in installation.settings.of(SchedulingSettings).schedulers.values():
        health_check = scheduler.watched
        if health_check.kind != "lease":
            continue
        lease = await installation.reader.get(LEASES, health_check.namespace, health_check.name)
        spec = None if isinstance(lease, Unavailable) else lease and lease.spec
        moment = unix_time(spec.renew_time if spec else None)
        # A renewal in the past may just be old, so only one in the future shows a wrong clock.
        if moment is not None and moment > server + 1 + _SKEW_SECONDS:
            subject, todo = f"scheduler {scheduler.name}", "check that NTP runs on its node"
            findings.append(_evaluate_skew(subject, moment - server, "the API server", todo))
    return findings


def _evaluate_skew(subject: str, skew: float, other: str, todo: str) -> Finding:
    what = f"clock is {abs(skew):.0f}s {'ahead of' if skew > 0 else 'behind'} the clock of {other}"
    if abs(skew) > _GRAVE_SKEW_SECONDS:
        what = f"{what}, more than certificates tolerate ({_GRAVE_SKEW_SECONDS:.0f}s)"
        return failure("clock-wrong", subject, what, todo)
    if abs(skew) > _SKEW_SECONDS:
        return warning("clock-skewed", subject, what, todo)
    return ok("clock-correct", subject, f"clock agrees with the clock of {other} within {max(1, abs(skew)):.0f}s")
