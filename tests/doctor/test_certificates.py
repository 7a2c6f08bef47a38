from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from certs.authority import Authority
from tests.doctor.world import MUTATING, NS, VALIDATING, DoctorWorld, authority, base64, codes
from webhook.doctor.certificates import check_certificates, check_clock
from webhook.doctor.installation import CONFIGURATIONS, DEPLOYMENTS, SECRETS
from webhook.k8s.client.clock import Clock
from webhook.k8s.resources import LEASES

LAST = "MutatingWebhookConfiguration zz-kubevirt-webhook"
SECRET = f"Secret {NS}/ca"
DAY = timedelta(days=1)


def trust(world: DoctorWorld, pem: bytes | str | None, *, entries: int = 99) -> None:
    for entry in world.entries()[:entries]:
        entry["clientConfig"]["caBundle"] = base64(pem) if isinstance(pem, bytes) else pem


def sign_with(world: DoctorWorld, signer: Authority) -> None:
    world.server.put(SECRETS, "ca", NS, data={"ca.crt": base64(signer.pem)})


async def test_all_is_well(world: DoctorWorld) -> None:
    findings = await world.run(check_certificates)

    well = codes(findings, "ok")
    assert f"{LAST}: ca-bundle-valid" in well
    assert f"{SECRET}: ca-trusted" in well
    assert len(well) == 4
    assert codes(findings, "unknown") == [f"Service {NS}/{NS}: served-not-checked"]


@pytest.mark.parametrize(
    ("bundle", "code"),
    [
        (None, "ca-bundle-missing"),
        ("", "ca-bundle-missing"),
        ("%%%", "ca-bundle-missing"),
        ("YQ", "ca-bundle-malformed"),
        (b"nothing", "ca-bundle-malformed"),
        (authority(2 * DAY, DAY).pem, "ca-bundle-expired"),
        (authority(-1 * DAY).pem, "ca-bundle-not-yet-valid"),
    ],
    ids=["none", "empty", "invalid base64", "other base64", "other bytes", "expired", "future"],
)
async def test_a_ca_bundle_that_is_of_no_use(world: DoctorWorld, bundle: bytes | str | None, code: str) -> None:
    trust(world, bundle, entries=2)

    failures = [one for one in await world.run(check_certificates) if one.verdict == "failure" and one.subject == LAST]

    (failure,) = failures
    assert failure.code == code
    assert failure.found.endswith(" pods.scheduling.enforce, pods.scheduling.observe")


async def test_an_old_ca_beside_a_new_one_is_no_mistake(world: DoctorWorld) -> None:
    trust(world, authority(2 * DAY, DAY).pem + world.authority.pem)

    findings = await world.run(check_certificates)

    assert codes(findings, "failure") + codes(findings, "warning") == []


async def test_a_ca_that_nobody_renewed(world: DoctorWorld) -> None:
    late = authority(9 * DAY, 10 * DAY)
    trust(world, late.pem)
    for resource in (MUTATING, VALIDATING):
        for entry in world.entries("kubevirt-webhook", resource):
            entry["clientConfig"]["caBundle"] = base64(late.pem)
    sign_with(world, late)

    warnings = [one for one in await world.run(check_certificates) if one.verdict == "warning"]

    assert {one.subject for one in warnings} >= {LAST, SECRET}
    assert {one.code for one in warnings} == {"ca-bundle-late", "ca-late"}


def store(data: dict[str, str] | None) -> Callable[[DoctorWorld], object]:
    return lambda world: world.server.put(SECRETS, "ca", NS, data=data)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda world: sign_with(world, authority()), "ca-not-trusted"),
        (store(None), "secret-malformed"),
        (store({}), "secret-malformed"),
        (store({"ca.crt": ""}), "secret-malformed"),
        (store({"ca.crt": base64(b"x")}), "secret-malformed"),
        (lambda world: world.server.remove(SECRETS, "ca", NS), "secret-missing"),
    ],
    ids=["another CA", "no data", "empty", "no certificate", "other bytes", "no Secret"],
)
async def test_a_secret_that_is_of_no_use(
    world: DoctorWorld, change: Callable[[DoctorWorld], object], code: str
) -> None:
    change(world)

    assert codes(await world.run(check_certificates), "failure") == [f"{SECRET}: {code}"]


async def test_an_expired_ca_that_signs(world: DoctorWorld) -> None:
    sign_with(world, authority(2 * DAY, DAY))

    (finding,) = [one for one in await world.run(check_certificates) if one.verdict == "failure"]

    assert finding.code == "ca-expired"
    assert finding.todo.endswith("annotate secret ca kubevirt-webhook.github.io/rotate-ca=now")


async def test_a_secret_that_may_not_be_read(world: DoctorWorld) -> None:
    world.forbid(SECRETS, NS, "ca")

    findings = await world.run(check_certificates)

    assert f"{SECRET}: unreadable" in codes(findings, "unknown")
    assert any("grant get on secrets" in finding.found for finding in findings)


async def test_mounted_certificates_have_no_secret_of_ours(world: DoctorWorld) -> None:
    container = {"image": "x", "args": ["serve", "--tls", "mounted"]}
    world.server.put(DEPLOYMENTS, NS, NS, spec={"template": {"spec": {"containers": [container]}}})
    world.server.remove(SECRETS, "ca", NS)
    trust(world, None)

    (failure,) = [one for one in await world.run(check_certificates) if one.verdict == "failure"]

    assert "cert-manager" in failure.todo


# A server that can be dialled.
@asynccontextmanager
async def served(world: DoctorWorld, signer: Authority, directory: Path) -> AsyncIterator[None]:
    pair = signer.issue(["localhost"], datetime.now(UTC), DAY)
    (directory / "crt").write_bytes(pair.certificate)
    (directory / "key").write_bytes(pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "crt", directory / "key")

    async def nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(nothing, "localhost", 0, ssl=context) as server:
        world.url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
        world.register()
        yield


async def test_the_served_certificate_is_verified(world: DoctorWorld, tmp_path: Path) -> None:
    async with served(world, world.authority, tmp_path):
        findings = await world.run(check_certificates)

    assert f"{world.url}: served-trusted" in codes(findings, "ok")
    assert codes(findings, "failure") == []


async def test_a_server_with_another_certificate(world: DoctorWorld, tmp_path: Path) -> None:
    async with served(world, authority(), tmp_path):
        assert codes(await world.run(check_certificates), "failure") == [f"{world.url}: served-not-trusted"]


async def test_a_server_that_can_t_be_dialled(world: DoctorWorld) -> None:
    world.url = "https://localhost:1"
    world.register()

    assert codes(await world.run(check_certificates), "unknown") == ["https://localhost:1: served-not-reached"]


async def test_nothing_is_dialled_without_configurations(world: DoctorWorld) -> None:
    world.url = "https://localhost:1"
    for kind, name in (("Mutating", "kubevirt-webhook"), ("Mutating", "zz-kubevirt-webhook"), ("Validating", NS)):
        world.server.remove(CONFIGURATIONS[f"{kind}WebhookConfiguration"], name)

    assert [one.subject for one in await world.run(check_certificates)] == [SECRET]


async def test_configurations_that_may_not_be_listed(world: DoctorWorld) -> None:
    world.forbid(MUTATING)

    (finding,) = await world.run(check_certificates)

    assert (finding.subject, finding.verdict) == ("caBundles", "unknown")


class Shifted(Clock):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def wall(self) -> float:
        return time.time() + self.seconds


@pytest.mark.parametrize(
    ("ours", "verdict", "code"),
    [
        (0, "ok", "clock-correct"),
        (-100, "warning", "clock-skewed"),
        (100, "warning", "clock-skewed"),
        (1000, "failure", "clock-wrong"),
    ],
)
async def test_ours_beside_the_api_servers(world: DoctorWorld, ours: float, verdict: str, code: str) -> None:
    world.clock = Shifted(ours)  # type: ignore[assignment]

    (finding,) = await world.run(check_clock)

    assert (finding.subject, finding.verdict, finding.code) == ("API server", verdict, code)
    assert (" ahead of " in finding.found) is (ours < 0)


@pytest.mark.parametrize(("ahead", "verdict"), [(100, "warning"), (1000, "failure")])
async def test_a_lease_from_the_future(world: DoctorWorld, ahead: float, verdict: str) -> None:
    world.clock = Shifted(0)  # type: ignore[assignment]
    renewed = datetime.fromtimestamp(time.time() + ahead, UTC).isoformat()
    world.server.put(LEASES, "kubevirt-scheduler", "kubevirt-scheduler", spec={"renewTime": renewed})

    code = "clock-wrong" if verdict == "failure" else "clock-skewed"
    assert codes(await world.run(check_clock), verdict) == [f"scheduler kubevirt: {code}"]


@pytest.mark.parametrize("spec", [None, {}, {"renewTime": "yesterday"}])
async def test_a_lease_that_says_no_time(world: DoctorWorld, spec: object) -> None:
    world.clock = Shifted(0)  # type: ignore[assignment]
    world.server.put(LEASES, "kubevirt-scheduler", "kubevirt-scheduler", spec=spec)

    assert [one.subject for one in await world.run(check_clock)] == ["API server"]


async def test_an_api_server_without_a_clock(world: DoctorWorld) -> None:
    world.server.answer("/version", lambda _: web.Response(headers={"Date": "today"}))

    assert codes(await world.run(check_clock), "unknown") == ["API server: unreadable"]
