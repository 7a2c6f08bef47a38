"""All attacks at once, beside a real API server, on one replica that has a pod's memory and every listener open."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvloop
from prometheus_client.parser import text_string_to_metric_families

from bench.reliability.client import RetryingClients, unverified, vm_request
from bench.reliability.errors import ReliabilityError
from bench.reliability.outcome import ReliabilityOutcome
from bench.reliability.server import resident
from tests.e2e.support.access import Access
from tests.e2e.support.kube import Json, Kube, KubeError, eventually
from tests.e2e.support.migrations import MigrationMover, guest, migration
from tests.e2e.support.objects import make_node
from tests.e2e.support.plane import ControlPlane
from tests.e2e.support.processes import free_port
from tests.e2e.support.tenant import Tenant
from tests.e2e.support.webhook_server import INSTANCETYPES, MIGRATION, SCHEDULING, WebhookServer, install
from tests.e2e.support.workloads import MIGRATIONS, VMS, vm
from tests.server.hostile_bytes import ADMIN_PARTS, FLOODS, LISTENERS, PATHS, connected, flood, trickle
from tests.server.raw_requests import head
from webhook.server.app import MAX_BODY

SECONDS: Final = 600.0
# The pod's limit, as the manifests have it.
LIMIT_BYTES: Final = 512 * 1024 * 1024
# In a cluster attackers have processors of their own.
_NICE: Final = 10
_VALIDATE: Final = "/validate/instancetypes/virtualmachines/enforce"
# Listeners that serve TLS: those that other pods can reach.
_TLS: Final = ("webhooks", *ADMIN_PARTS)
# Every attack has an address of its own, since connections are limited by address; that of the API server is 127.0.0.1.
_SOURCES: Final = {listener: f"127.0.1.{number}" for number, listener in enumerate(LISTENERS, 1)}
_TRICKLING: Final = 8
_HALF_OPEN: Final = 50
_FORGING: Final = 14
_CREATING: Final = 8
_DRY_RUNS: Final = 16
_VM_BYTES, _DRY_RUN_BYTES = 300_000, 1_400_000
# An object's annotations may have 256 KiB.
_ANNOTATIONS: Final = 10_000
# How long the API server may take for what an attacker has begun.
_END_SECONDS: Final = 90.0

Attack = Callable[[], Coroutine[Any, Any, None]]


class Target(NamedTuple):
    """What attackers know, in processes of their own."""

    ports: Mapping[str, int]
    plane: tuple[Path, str, Path]
    forbidden: str
    migrations: str
    annotated: str
    end: float

    @property
    def attacked(self) -> bool:
        """Whether the attack goes on."""
        return time.monotonic() < self.end


class Replica(WebhookServer):
    """The program with every listener open, in a cgroup."""

    def __init__(self, access: Access, directory: Path, cgroup: Path | None) -> None:
        self.ports = {"extender": free_port(), **dict.fromkeys(ADMIN_PARTS, free_port())}
        settings: dict[str, Json] = {"admin": {"listen": f"0.0.0.0:{self.ports['page']}", "metrics": True}}
        settings["layers"] = {"listen": f"127.0.0.1:{self.ports['extender']}"}
        settings["schedulers"] = {"kubevirt": {"healthCheck": "off"}}
        super().__init__(access, directory, "together", settings)
        self.ports |= {"webhooks": self.port, "ops": self._ops_port}
        self._cgroup = cgroup

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._popen is not None
        return self._popen.pid

    def answered(self) -> int:
        """How many reviews it has answered, by its audit lines: its metrics have a listener that takes a token."""
        return self._audit.read_bytes().count(b"\n")

    def _command(self) -> list[str]:
        # Without the change that tests make to metrics.
        own = ["webhook" if part.endswith(".counted") else part for part in super()._command()]
        if self._cgroup is None:
            return own
        return ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._cgroup / "cgroup.procs"), *own]


def together(binaries: Path, scale: float) -> ReliabilityOutcome:
    """All attacks for `SECONDS`, or a part of them."""
    with tempfile.TemporaryDirectory(prefix="bench-reliability-") as name, limited() as (cgroup, limit):
        directory = Path(name)
        with ControlPlane(directory / "plane", binaries) as plane:
            install(plane.admin)
            for zone in ("east", "west"):
                make_node(plane.admin, f"node-{zone}", {"topology.kubernetes.io/zone": zone})
            with Replica(plane, directory, cgroup) as replica:
                assert replica.validates
                replica.insist()
                return uvloop.run(_attacked(replica, limit, SECONDS * scale))


TOGETHER: Final = {"together": together}


async def _attacked(replica: Replica, limit: str, seconds: float) -> ReliabilityOutcome:
    honest, target = _prepared(replica, seconds)
    clients = RetryingClients(replica.port, unverified(), vm_request(honest.namespace), expected=b'"patch"')
    context = multiprocessing.get_context("spawn")
    results: SimpleQueue[Counter[str]] = context.SimpleQueue()
    attackers = [context.Process(target=each, args=(target, results), daemon=True) for each in (_bytes, _objects)]
    began, restarts, peak = replica.pid, 0, 0
    for attacker in attackers:
        attacker.start()
    async with clients.running() as felt:
        while target.attacked:
            if not replica.running:
                restarts += 1
                replica.start()
            with suppress(OSError, ReliabilityError):
                peak = max(peak, resident(replica.pid, "VmHWM"))
            await asyncio.sleep(0.1)
    assert restarts or replica.pid == began
    for attacker in attackers:
        await asyncio.to_thread(attacker.join, _END_SECONDS)
    seen: Counter[str] = Counter()
    while not results.empty():
        seen.update(results.get())
    admin = replica.access.admin
    if gave_up := _fail_opens(admin):
        seen["calls that the API server gave up"] = gave_up
    stored = len(admin.list(VMS, target.forbidden)) + len(admin.list(MIGRATIONS, target.migrations))
    felt.failures.update({"restarts": restarts, "forbidden objects stored": stored} if restarts or stored else {})
    for broken in ("forbidden dry runs allowed", "attackers failed"):
        if seen[broken]:
            felt.failures[broken] += seen[broken]
    felt.failures["attackers without a result"] += sum(attacker.exitcode != 0 for attacker in attackers)
    felt.failures = +felt.failures
    tried = sum(seen[name] for name in ("VMs", "migrations"))
    counts = ", ".join(f"{count:,} {name}" for name, count in sorted(seen.items()))
    return ReliabilityOutcome(
        "together",
        f"all attacks for {seconds:g} s; {limit}",
        felt,
        peak,
        f"{restarts} restarts; {stored} of {tried:,} forbidden objects stored; tried: {counts}",
    )


def _fail_opens(kube: Kube) -> int:
    """How many calls the API server has given up, and went on without an answer."""
    families = text_string_to_metric_families(kube.text("/metrics"))
    name = "apiserver_admission_webhook_fail_open_count_total"
    return int(sum(sample.value for family in families for sample in family.samples if sample.name == name))


def _prepared(replica: Replica, seconds: float) -> tuple[Tenant, Target]:
    honest = Tenant.new(replica, policies=[SCHEDULING])
    forbidden = Tenant.new(replica, policies=[SCHEDULING, INSTANCETYPES])
    forbidden.annotate(allowed_instancetypes="VirtualMachineInstancetype/small")
    moving = Tenant.new(replica, policies=[MIGRATION])
    MigrationMover(moving, guest(), "node-east")
    annotated = Tenant.new(replica)
    many = {f"a{number}": "x" for number in range(_ANNOTATIONS)}
    annotated.owner.patch("v1/namespaces", annotated.namespace, {"metadata": {"annotations": many}})
    kube = replica.access.admin
    # What is counted as stored later must not be allowed only because the replica does not know the list yet.
    eventually(lambda: _denied(kube, VMS, _vm(10), forbidden.namespace), what="the allow-list to be enforced")
    eventually(lambda: _denied(kube, MIGRATIONS, _migration(), moving.namespace), what="migrations to be denied")
    access = replica.access
    return honest, Target(
        {name: replica.ports[name] for name in LISTENERS},
        (access.directory, access.server, access.binaries),
        forbidden.namespace,
        moving.namespace,
        annotated.namespace,
        time.monotonic() + seconds,
    )


# -- attackers on the listeners ----------------------------------------------------------------------------------------


def _bytes(target: Target, results: SimpleQueue[Counter[str]]) -> None:
    """Everything that takes no credential: in a process of its own, so that honest clients have theirs."""
    os.nice(_NICE)
    done: Counter[str] = Counter()
    uvloop.run(_all_bytes(target, done))
    results.put(done)


async def _all_bytes(target: Target, done: Counter[str]) -> None:
    attacks: list[tuple[str, int, Attack]] = []
    for listener in LISTENERS:
        port, source, tls, path = target.ports[listener], _SOURCES[listener], listener in _TLS, PATHS[listener]
        attacks += [("floods of bytes", 1, partial(flood, port, path, kind, tls=tls, source=source)) for kind in FLOODS]
        # Neither a handshake nor a head is ever whole.
        half = partial(trickle, port, b"GET / HT", tls=False, source=source, seconds=5)
        attacks.append(("half-open connections", _HALF_OPEN, half))
    announced = head(MAX_BODY, f"{_VALIDATE}?timeout=10s")
    announce = partial(trickle, target.ports["webhooks"], announced, tls=True, source="127.0.2.1", seconds=10)
    attacks.append(("bodies of 7 MiB announced", _TRICKLING, announce))
    for number, (name, method) in enumerate((("page", "GET"), ("explain", "POST")), 2):
        forge = partial(_forged, target.ports[name], PATHS[name], method, f"127.0.2.{number}")
        attacks.append((f"made-up tokens for {name}", _FORGING, forge))
    await asyncio.gather(
        *(_repeated(name, attack, target, done) for name, count, attack in attacks for _ in range(count))
    )


async def _forged(port: int, path: str, method: str, source: str) -> None:
    """A request with a made-up token."""
    async with asyncio.timeout(10), connected(port, tls=True, source=source) as (reader, writer):
        token = f"Authorization: Bearer {os.urandom(16).hex()}"
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{token}\r\nConnection: close\r\n\r\n".encode())
        await reader.read()


async def _repeated(name: str, attack: Attack, target: Target, done: Counter[str]) -> None:
    """An attack again and again; a server that cuts it off has won, and is attacked again."""
    while target.attacked:
        with suppress(OSError, EOFError, TimeoutError):
            await attack()
        done[name] += 1
        await asyncio.sleep(0.01)


# -- attackers through the API server ----------------------------------------------------------------------------------


def _objects(target: Target, results: SimpleQueue[Counter[str]]) -> None:
    """Everything that a tenant may send to the API server."""
    os.nice(_NICE)
    kube, done, lock = Access(*target.plane).admin, Counter[str](), threading.Lock()

    def attempt(name: str, resource: str, obj: Json, namespace: str, **query: str) -> None:
        denied = _denied(kube, resource, obj, namespace, **query)
        with lock:
            done[name] += 1
            done["forbidden dry runs allowed"] += bool(query) and not denied

    def label() -> None:
        change = {"metadata": {"labels": {"changed": str(time.monotonic_ns())}}}
        with suppress(KubeError):
            kube.patch("v1/namespaces", target.annotated, change)
        with lock:
            done["label changes"] += 1

    small, large = _vm(_VM_BYTES), _vm(_DRY_RUN_BYTES)
    steps: list[tuple[int, Callable[[], None]]] = [
        (_CREATING, lambda: attempt("VMs", VMS, small, target.forbidden)),
        (_DRY_RUNS, lambda: attempt("dry runs", VMS, large, target.forbidden, dryRun="All")),
        (2, lambda: attempt("migrations", MIGRATIONS, _migration(), target.migrations)),
        (1, label),
    ]

    def loop(step: Callable[[], None]) -> None:
        while target.attacked:
            try:
                step()
            except OSError:  # the API server is as busy as all others
                with lock:
                    done["requests without an answer"] += 1
            except BaseException:
                with lock:
                    done["attackers failed"] += 1
                raise

    threads = [threading.Thread(target=loop, args=(step,)) for count, step in steps for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put(+done)


def _vm(size: int) -> Json:
    """A VM of an instancetype that is not on the list."""
    made = vm(instancetype={"kind": "VirtualMachineInstancetype", "name": "huge"})
    made["metadata"] = {"generateName": "forbidden-"}
    volume = {"name": "init", "cloudInitNoCloud": {"userData": "x" * size}}
    made["spec"]["template"]["spec"]["volumes"] = [volume]
    return made


def _migration() -> Json:
    """A migration to where no node is."""
    return migration("web", {"topology.kubernetes.io/zone": "nowhere"})


def _denied(kube: Kube, resource: str, obj: Json, namespace: str, **query: str) -> bool:
    try:
        kube.create(resource, obj, namespace, **query)
    except KubeError:
        return True
    return False


# -- the pod's limit ---------------------------------------------------------------------------------------------------


@contextmanager
def limited(root: Path = Path("/sys/fs/cgroup")) -> Iterator[tuple[Path | None, str]]:
    """A cgroup with the pod's memory, and a sentence about it; None and why, where this machine has none to give."""
    try:
        cgroup = _make_cgroup(root)
    except OSError as error:
        yield None, f"no memory limit: no cgroup can be made here ({error.strerror})"
        return
    try:
        yield cgroup, f"in a cgroup of {LIMIT_BYTES // 1024 // 1024} MiB"
    finally:
        with suppress(OSError):
            cgroup.rmdir()


def _make_cgroup(root: Path) -> Path:
    """Below this process's own in version 1; beside it in version 2, where what has processes has no cgroups below."""
    own = Path("/proc/self/cgroup").read_text()
    first = re.search(r"^\d+:(?:[^:]*,)?memory(?:,[^:]*)?:/(.*)$", own, re.MULTILINE)
    second = re.search(r"^0::/(.*)$", own, re.MULTILINE)
    if first:
        place, limit = root / "memory" / first[1], "memory.limit_in_bytes"
    else:
        place, limit = (root / second[1] if second else root), "memory.max"
        place = place if place == root else place.parent
    cgroup = place / f"kubevirt-webhook-bench-{os.getpid()}"
    cgroup.mkdir()
    try:
        (cgroup / limit).write_text(str(LIMIT_BYTES))
    except OSError:
        cgroup.rmdir()
        raise
    return cgroup
