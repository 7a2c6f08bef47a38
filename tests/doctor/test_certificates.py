from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest
from aiohttp import web

from certs.authority import Authority
from certs.state import CaState, Retired
from tests.certs.memory import serving
from tests.doctor.world import (
    CONFIGURED,
    MUTATING,
    NS,
    Change,
    DoctorWorld,
    authority,
    base64,
    both,
    forbid,
    put,
    remove,
)
from webhook.doctor.certificates import check_certificates, check_clock
from webhook.doctor.installation import DEPLOYMENTS, SECRETS
from webhook.k8s.client.clock import Clock
from webhook.k8s.resources import LEASES

LAST = "MutatingWebhookConfiguration zz-kubevirt-webhook"
SECRET = f"Secret {NS}/ca"
NOT_DIALLED = f"unknown Service {NS}/{NS}: served-not-checked"
LEASE = (LEASES, "kubevirt-scheduler", "kubevirt-scheduler")
DAY = timedelta(days=1)


def trust(pem: bytes | str | None, *, entries: int = 99) -> Change:
    bundle = base64(pem) if isinstance(pem, bytes) else pem
    return lambda it: [entry["clientConfig"].update(caBundle=bundle) for entry in it.entries()[:entries]]


def store(data: dict[str, str] | None) -> Change:
    return put(SECRETS, "ca", NS, data=data)


def sign_with(signer: Authority) -> Change:
    return store({"ca.crt": base64(signer.pem)})


async def test_all_is_well(world: DoctorWorld) -> None:
    told = await world.told(check_certificates)
    assert len(told) == 5
    assert {NOT_DIALLED, f"ok {LAST}: ca-bundle-valid", f"ok {SECRET}: ca-trusted"} <= {*told}
    assert await world.problems(check_certificates) == [NOT_DIALLED]


@pytest.mark.parametrize(
    ("bundle", "code"),
    [
        *((None, "ca-bundle-missing"), ("", "ca-bundle-missing"), ("%%%", "ca-bundle-malformed")),
        *(("YQ", "ca-bundle-malformed"), (b"nothing", "ca-bundle-malformed")),
        *((authority(2 * DAY, DAY).pem, "ca-bundle-expired"), (authority(-1 * DAY).pem, "ca-bundle-not-yet-valid")),
    ],
    ids=["none", "empty", "invalid base64", "other base64", "other bytes", "expired", "future"],
)
async def test_a_ca_bundle_that_is_of_no_use(world: DoctorWorld, bundle: bytes | str | None, code: str) -> None:
    findings = await world.run(check_certificates, trust(bundle, entries=2))
    (failure,) = [one for one in findings if one.verdict == "failure" and one.subject == LAST]
    assert failure.code == code
    assert failure.found.endswith(" pods.scheduling.enforce, pods.scheduling.observe")


def move_to_a_closed_port(world: DoctorWorld) -> None:
    world.url = "https://localhost:1"
    world.register()


async def test_a_ca_that_nobody_renewed(world: DoctorWorld) -> None:
    late = authority(9 * DAY, 10 * DAY)
    for resource, name in CONFIGURED:
        for entry in world.entries(name, resource):
            entry["clientConfig"]["caBundle"] = base64(late.pem)

    findings = await world.run(check_certificates, sign_with(late))

    warnings = [one for one in findings if one.verdict == "warning"]
    assert {one.subject for one in warnings} >= {LAST, SECRET}
    assert {one.code for one in warnings} == {"ca-bundle-late", "ca-late"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda it: trust(authority(2 * DAY, DAY).pem + it.authority.pem)(it), NOT_DIALLED),
        (sign_with(authority()), f"failure {SECRET}: ca-not-trusted; {NOT_DIALLED}"),
        (sign_with(authority(2 * DAY, DAY)), f"failure {SECRET}: ca-expired; {NOT_DIALLED}"),
        # As a replica leaves it until it may make the next CA.
        *((store(data), f"warning {SECRET}: secret-malformed; {NOT_DIALLED}") for data in (None, {}, {"ca.crt": ""})),
        (store({"ca.crt": base64(b"x")}), f"failure {SECRET}: secret-malformed; {NOT_DIALLED}"),
        (remove(SECRETS, "ca", NS), f"failure {SECRET}: secret-missing; {NOT_DIALLED}"),
        (forbid(SECRETS, NS, "ca"), f"unknown {SECRET}: unreadable; {NOT_DIALLED}"),
        (move_to_a_closed_port, "unknown https://localhost:1: served-not-reached"),
        (forbid(MUTATING), "unknown caBundles: unreadable"),
    ],
    ids=[
        *("an old CA too", "another CA", "expired", "no data", "empty", "no certificate", "other bytes", "no Secret"),
        *("no permission", "a closed port", "unlisted configurations"),
    ],
)
async def test_secrets_and_servers(world: DoctorWorld, change: Change, expected: str) -> None:
    assert "; ".join(await world.problems(check_certificates, change)) == expected


async def test_a_rotation_is_told_with_its_end(world: DoctorWorld) -> None:
    former, now = authority(DAY), datetime.fromtimestamp(world.clock.wall(), UTC)
    both_trusted = trust(world.authority.pem + former.pem)
    stored = CaState(world.authority, retired=(Retired(former.certificate, now + 7 * DAY),)).encode()
    keep = store({name: base64(value) for name, value in stored.items()})

    (finished,) = [one for one in await world.run(check_certificates, keep) if one.subject == SECRET]
    (rotates,) = [one for one in await world.run(check_certificates, both(keep, both_trusted)) if one.subject == SECRET]
    # Trusted by hand, or about to sign.
    begun = both(both_trusted, sign_with(world.authority))
    (other,) = [one for one in await world.run(check_certificates, begun) if one.subject == SECRET]

    assert [one.verdict for one in (finished, rotates, other)] == ["ok"] * 3
    assert [one.code for one in (finished, rotates, other)] == ["ca-trusted", "ca-rotates", "ca-rotates"]
    assert f"the former one is trusted until {now + 7 * DAY:%Y-%m-%d %H:%M} UTC" in rotates.found
    assert other.found.endswith("another one is trusted beside it")


async def test_nothing_is_dialled_without_configurations(world: DoctorWorld) -> None:
    gone = [remove(resource, name) for resource, name in CONFIGURED]
    assert await world.told(check_certificates, move_to_a_closed_port, *gone) == [f"ok {SECRET}: ca-trusted"]


async def test_mounted_certificates_have_no_secret_of_ours(world: DoctorWorld) -> None:
    container = {"image": "x", "args": ["serve", "--tls", "mounted"]}
    mounted = put(DEPLOYMENTS, NS, NS, spec={"template": {"spec": {"containers": [container]}}})

    findings = await world.run(check_certificates, mounted, remove(SECRETS, "ca", NS), trust(None))

    (failure,) = [one for one in findings if one.verdict == "failure"]
    assert "cert-manager" in failure.todo


async def test_the_served_certificate_is_verified(world: DoctorWorld, tmp_path: Path) -> None:
    for signer, outcome in (
        (world.authority, "ok {}: served-trusted"),
        (authority(), "failure {}: served-not-trusted"),
    ):
        async with serving(signer, "localhost", tmp_path) as port:
            world.url = f"https://localhost:{port}"
            world.register()
            *others, last = await world.told(check_certificates)
        assert last == outcome.format(world.url)
        assert all(line.startswith("ok ") for line in others)


CORRECT = "ok API server: clock-correct"
TODAY = web.Response(headers={"Date": "today"})


@pytest.mark.parametrize(
    ("ours", "change", "expected"),
    [
        (0, lambda _: None, [CORRECT]),
        (-100, lambda _: None, ["warning API server: clock-skewed"]),
        (100, lambda _: None, ["warning API server: clock-skewed"]),
        (1000, lambda _: None, ["failure API server: clock-wrong"]),
        (0, lambda it: it.lease(ago=-100), [CORRECT, "warning scheduler kubevirt: clock-skewed"]),
        (0, lambda it: it.lease(ago=-1000), [CORRECT, "failure scheduler kubevirt: clock-wrong"]),
        *((0, put(*LEASE, spec=spec), [CORRECT]) for spec in (None, {}, {"renewTime": "yesterday"})),
        (0, lambda it: it.server.answer("/version", lambda _: TODAY), ["unknown API server: unreadable"]),
    ],
)
async def test_clocks(world: DoctorWorld, ours: float, change: Change, expected: list[str]) -> None:
    world.clock = Mock(wraps=Clock(), wall=lambda: time.time() + ours)
    world.server.wall = time.time
    assert await world.told(check_clock, change) == expected
    assert ours == 0 or (" ahead of " in world.found[0].found) is (ours < 0)


def give_annotation(key: str) -> Change:
    """To the last configuration."""
    return lambda world: world.server.held(MUTATING)["", "zz-kubevirt-webhook"]["metadata"].update(
        annotations={key: "x"}
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (give_annotation("cert-manager.io/inject-ca-from"), [f"warning {LAST}: ca-bundle-injected"]),
        (give_annotation("service.beta.openshift.io/inject-cabundle"), [f"warning {LAST}: ca-bundle-injected"]),
        # A sync has not removed any.
        (give_annotation("argocd.argoproj.io/tracking-id"), []),
        (
            both(give_annotation("argocd.argoproj.io/tracking-id"), trust(None)),
            [f"failure {LAST}: ca-bundle-missing", f"warning {LAST}: ca-bundle-removed"],
        ),
    ],
    ids=["cert-manager", "OpenShift", "Argo CD", "Argo CD without caBundles"],
)
async def test_who_else_writes_ca_bundles(world: DoctorWorld, change: Change, expected: list[str]) -> None:
    of_last = [line for line in await world.problems(check_certificates, change) if LAST in line]
    assert of_last == expected
