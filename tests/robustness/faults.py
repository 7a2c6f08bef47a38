"""The faults that are injected, each with an end after which the cluster heals by itself."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TypeAlias

from .checker import NOTICE_SECONDS
from .cluster import Cluster, RobustReplica
from .history import Fault
from .limits import CannotError, address_space_limit, memory_limit
from .proxy import Rule
from .traffic import quietly

RESOURCES = (
    "namespaces",
    "virtualmachineinstancetypes",
    "virtualmachinepreferences",
    "nodes",
    "kubevirts",
    "virtualmachineinstances",
    "pods",
    "virtualmachineinstancemigrations",
)
STATUSES = (410, 429, 500, 503)
# Beyond that, replicas answer hardly anything, and little is decided that could be wrong.
MOST_AT_ONCE = 3


@dataclass(frozen=True)
class About:
    """What there is to say of a fault that is in force.

    Attributes:
        clock: as `Fault.clock`.
    """

    words: str
    clock: float = 0.0


# A fault as it is in force.
Fault_: TypeAlias = Callable[[Cluster, random.Random], AbstractContextManager[str | About]]


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Attributes:
        seconds: the bounds of how long it lasts; beyond them come those that ``current`` adds to.
        current: how often the age up to which stores decide is added.
        alone: nothing else is broken while it begins and ends.
        weight: how often it is chosen.
    """

    inject: Fault_
    seconds: tuple[float, float]
    current: float = 0.0
    alone: bool = False
    weight: int = 4


class Faults:
    """Injects faults one after the other and beside each other; to be run by the thread that started the cluster.

    Linux ends processes with the thread that has started them, and faults start some again.
    """

    def __init__(
        self, cluster: Cluster, seed: int, current_seconds: float, wanted: Sequence[str] = (), *, only: bool = False
    ) -> None:
        self._cluster = cluster
        self._random = random.Random(f"{seed} faults")
        self._current = current_seconds
        self._wanted = list(wanted)
        self._names = list(wanted) if only else list(KINDS)
        self._active: list[tuple[float, str, ExitStack]] = []
        self.done: list[Fault] = []

    def run(self, until: float, quiet: float) -> None:
        """Injects until then, with so many seconds without new faults between them at most."""
        try:
            while (now := time.time()) < until:
                self._end(now)
                self._begin(now, until)
                pause = self._random.uniform(0.5, quiet)
                self._wait(min(until, now + pause))
        finally:
            self._end(float("inf"))

    def rest(self, until: float) -> None:
        """Injects nothing until then: what fails for long after a fault fails without a cause."""
        self._wait(until)

    def _wait(self, until: float) -> None:
        while time.time() < until:
            time.sleep(0.2)
            self._end(time.time())
            if self._cluster.kubevirt:
                self._cluster.kubevirt.revive()

    def _begin(self, now: float, until: float) -> None:
        names = [name for name in self._names if name not in {active for _, active, _ in self._active}]
        if len(self._active) >= MOST_AT_ONCE and not self._wanted:
            return
        if self._wanted:
            name = self._wanted.pop(0)
        elif not names:
            return
        else:
            name = self._random.choices(names, [KINDS[name].weight for name in names])[0]
        kind = KINDS[name]
        lasts = self._random.uniform(*kind.seconds) + kind.current * self._current
        if now + lasts > until and kind.current:
            return
        if kind.alone:
            if any(KINDS[active].current for _, active, _ in self._active):
                return
            self._end(float("inf"))
        try:
            stack, about = self._injected(name, now)
        except CannotError as error:
            print(f"  {time.strftime('%H:%M:%S')} {name} is skipped: {error}", flush=True)
            self._names = [other for other in self._names if other != name]
            return
        print(f"  {time.strftime('%H:%M:%S')} {name} for {lasts:.0f} s: {about.words}", flush=True)
        self._active.append((time.time() + lasts, name, stack))
        if kind.alone:
            time.sleep(lasts)
            self._end(float("inf"))

    def _injected(self, name: str, now: float) -> tuple[ExitStack, About]:
        """A fault in force, which is noted last of all when it has ended."""
        injected, ends = ExitStack(), ExitStack()
        told = injected.enter_context(KINDS[name].inject(self._cluster, self._random))
        about = About(told) if isinstance(told, str) else told
        ends.callback(lambda: self.done.append(Fault(name, now - 0.1, time.time(), about.words, about.clock)))
        ends.push(injected)
        return ends, about

    def _end(self, now: float) -> None:
        for entry in [entry for entry in self._active if entry[0] <= now]:
            self._active.remove(entry)
            entry[2].close()


def _a_replica(cluster: Cluster, chance: random.Random) -> RobustReplica:
    return chance.choice([replica for replica in cluster.replicas if replica.running] or list(cluster.replicas))


@contextmanager
def _killed_replica(cluster: Cluster, chance: random.Random) -> Iterator[str]:
    replica = _a_replica(cluster, chance)
    number = cluster.replicas.index(replica)
    replica.kill()
    try:
        yield f"replica {number}"
    finally:
        _restart(replica)


def _restart(replica: RobustReplica) -> None:
    """As a kubelet does it with a container that has ended."""
    if not replica.running:
        replica.kill()  # of what has ended by itself, what the kernel keeps of it
        replica.start()


@contextmanager
def _stopped_replica(cluster: Cluster, chance: random.Random) -> Iterator[str]:
    replica = _a_replica(cluster, chance)
    replica.is_stopped = True
    quietly(replica.freeze)
    try:
        yield f"replica {cluster.replicas.index(replica)}"
    finally:
        if replica.running:
            replica.thaw()
        replica.is_stopped = False


@contextmanager
def _killed_apiserver(cluster: Cluster, chance: random.Random) -> Iterator[str]:
    cluster.plane._apiserver.kill()
    try:
        yield ""
    finally:
        cluster.plane.start_apiserver()


@contextmanager
def _stopped_apiserver(cluster: Cluster, chance: random.Random) -> Iterator[str]:
    process = cluster.plane._apiserver
    process.pause()
    try:
        yield ""
    finally:
        process.resume()


@contextmanager
def _stopped_etcd(cluster: Cluster, chance: random.Random) -> Iterator[str]:
    process = cluster.plane._etcd
    process.pause()
    try:
        yield ""
    finally:
        process.resume()


@contextmanager
def _killed_etcd(cluster: Cluster, chance: random.Random) -> Iterator[str]:
    cluster.plane.stop_etcd()
    try:
        yield ""
    finally:
        cluster.plane.start_etcd()


@contextmanager
def _compacted_etcd(cluster: Cluster, chance: random.Random) -> Iterator[str]:
    quietly(cluster.compact)
    if chance.random() < 0.5:
        quietly(cluster.defragment)
    yield ""


@contextmanager
def _restored_etcd(cluster: Cluster, chance: random.Random) -> Iterator[str]:
    """As Kubernetes asks for it: all API servers end before, and begin after it; its other parts are restarted."""
    saved = cluster.plane.save_etcd()
    lost = chance.uniform(3, 15)
    time.sleep(lost)
    with cluster.kubevirt.away() if cluster.kubevirt else nullcontext():
        cluster.plane._apiserver.kill()
        cluster.plane.restore_etcd(saved)
        cluster.plane.start_apiserver()
    yield f"to a copy of {lost:.0f} s ago"


@contextmanager
def _rotated_ca(cluster: Cluster, chance: random.Random) -> Iterator[str]:
    quietly(cluster.installation.rotate)
    yield ""


def _wrong_clock(cluster: Cluster, chance: random.Random, seconds: float) -> AbstractContextManager[About]:
    @contextmanager
    def wrong() -> Iterator[About]:
        replica = _a_replica(cluster, chance)
        replica.set_clock(seconds)
        try:
            yield About(f"replica {cluster.replicas.index(replica)}, by {seconds:+.0f} s", seconds)
        finally:
            replica.set_clock(0.0)

    return wrong()


def _clock_off(cluster: Cluster, chance: random.Random) -> AbstractContextManager[About]:
    """By what certificates allow for: five minutes' grace, and a third of the life of one of five minutes."""
    return _wrong_clock(cluster, chance, chance.uniform(-60, 240))


def _clock_jumps(cluster: Cluster, chance: random.Random) -> AbstractContextManager[About]:
    """There and back, farther than certificates last."""
    return _wrong_clock(cluster, chance, chance.choice((-1, 1)) * chance.uniform(600, 7200))


@contextmanager
def _little_memory(
    cluster: Cluster,
    chance: random.Random,
    limit: Callable[[int, int], AbstractContextManager[None]],
    rooms: Sequence[int],
) -> Iterator[str]:
    """A replica ends when it reaches its limit, or it goes on; where it has ended, it comes back."""
    replica = _a_replica(cluster, chance)
    room = chance.choice(rooms)
    if not replica.running:
        yield "none runs"
        return
    try:
        with limit(replica.pid, room):
            yield f"replica {cluster.replicas.index(replica)}, {room >> 10} KiB more"
    finally:
        if not replica.running:
            print(
                f"  {time.strftime('%H:%M:%S')} replica {cluster.replicas.index(replica)} has ended by it", flush=True
            )
        _restart(replica)


def _memory_limit(cluster: Cluster, chance: random.Random) -> AbstractContextManager[str]:
    return _little_memory(cluster, chance, memory_limit, (0, 64 << 10, 256 << 10))


def _failing_allocations(cluster: Cluster, chance: random.Random) -> AbstractContextManager[str]:
    return _little_memory(cluster, chance, address_space_limit, (256 << 10, 1 << 20, 4 << 20))


@contextmanager
def _rules(
    cluster: Cluster, rule: Rule, replicas: Sequence[int] | None = None, *, break_open: bool = True
) -> Iterator[str]:
    with ExitStack() as rules:
        for number, proxy in enumerate(cluster.installation.proxies):
            if replicas is None or number in replicas:
                rules.enter_context(proxy.rule(rule, break_open=break_open))
        where = "" if replicas is None else f", replicas {', '.join(map(str, replicas))}"
        yield f"{rule}{where}"


def _late_watch(cluster: Cluster, chance: random.Random) -> AbstractContextManager[str]:
    """Of what is stored, and changes most."""
    resources = ("virtualmachineinstancetypes", *["namespaces"] * 2, *["virtualmachinepreferences"] * 4)
    return _rules(cluster, Rule(chance.choice(resources), "watch", delay=chance.uniform(5, 12)), break_open=False)


def _failing_answers(cluster: Cluster, chance: random.Random) -> AbstractContextManager[str]:
    """The namespaces at first, without which nothing is decided."""
    resource = chance.choice(("", *RESOURCES, "namespaces", ""))
    part = chance.choice(("any", "any", "list", "page", "watch", "get"))
    return _rules(cluster, Rule(resource, part, status=chance.choice(STATUSES)))  # type: ignore[arg-type]


def _failing_gets(cluster: Cluster, chance: random.Random) -> AbstractContextManager[str]:
    """What no store has cannot be read at all."""
    return _rules(cluster, Rule("", "get", status=chance.choice(STATUSES[1:])))


def _cut_watches(cluster: Cluster, chance: random.Random) -> AbstractContextManager[str]:
    return _rules(cluster, Rule(chance.choice(RESOURCES[:5]), "watch", lines=chance.randrange(4)))


def _cut_connections(cluster: Cluster, chance: random.Random) -> AbstractContextManager[str]:
    return _rules(cluster, Rule(cut=True), [chance.randrange(len(cluster.replicas))])


def _late_answers(cluster: Cluster, chance: random.Random) -> AbstractContextManager[str]:
    return _rules(cluster, Rule("", chance.choice(("any", "get")), delay=chance.uniform(0.2, 2.5)))


@contextmanager
def _failing_pages(cluster: Cluster, chance: random.Random) -> Iterator[str]:
    """No list comes whole, and every watch ends with 410: each first page is an answer all the same."""
    resource = "namespaces"
    with (
        _rules(cluster, Rule(resource, "page", status=chance.choice((429, 500)))) as about,
        _rules(cluster, Rule(resource, "watch", status=410)),
    ):
        yield about


@contextmanager
def _blind_replica(cluster: Cluster, chance: random.Random) -> Iterator[str]:
    number = chance.randrange(len(cluster.replicas))
    replica = cluster.replicas[number]
    with _rules(cluster, Rule(cut=True), [number]) as about:
        replica.blind_since = time.time()
        try:
            yield about
        finally:
            replica.blind_since = None


KINDS: Mapping[str, Kind] = {
    "killed replica": Kind(_killed_replica, (1, 5)),
    "stopped replica": Kind(_stopped_replica, (1, 12)),
    "killed API server": Kind(_killed_apiserver, (0.5, 3), alone=True, weight=1),
    "stopped API server": Kind(_stopped_apiserver, (1, 5), alone=True),
    "stopped etcd": Kind(_stopped_etcd, (1, 4), alone=True),
    "killed etcd": Kind(_killed_etcd, (0.5, 2), alone=True, weight=2),
    "compacted etcd": Kind(_compacted_etcd, (1, 2), alone=True),
    "restored etcd": Kind(_restored_etcd, (1, 2), alone=True, weight=1),
    "clock off": Kind(_clock_off, (20, 40)),
    "clock jumps": Kind(_clock_jumps, (5, 30), weight=2),
    "memory limit": Kind(_memory_limit, (4, 12), weight=2),
    "failing allocations": Kind(_failing_allocations, (4, 12), weight=2),
    "rotated CA": Kind(_rotated_ca, (10, 20), weight=2),
    "late watch": Kind(_late_watch, (15, 30), weight=8),
    "failing answers": Kind(_failing_answers, (4, 15), weight=8),
    "failing gets": Kind(_failing_gets, (6, 12)),
    "cut watches": Kind(_cut_watches, (5, 15)),
    "cut connections": Kind(_cut_connections, (2, 10)),
    "late answers": Kind(_late_answers, (3, 10)),
    "failing pages": Kind(_failing_pages, (35, 45), current=1.5, weight=2),
    "blind replica": Kind(_blind_replica, (NOTICE_SECONDS + 10, NOTICE_SECONDS + 20), current=1.0, weight=1),
}
