"""Fixes taken back, one by one: what the checker must find, or it proves nothing.

Each is applied in a replica's process, which `replica` starts, and lies nowhere in the product. A reversal brings back
a fault that the server once had, or one that a rule is there for.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mutation:
    """A fault, how a replica gets it, and what of the checker finds it.

    Attributes:
        fault: in a clause.
        rules: of the checker; one of them must report it.
        faults: the injected faults that the run needs most, by their names in `faults`.
    """

    fault: str
    apply: Callable[[], None]
    rules: frozenset[str]
    faults: tuple[str, ...] = ()


def _put(owner: Any, **members: Any) -> None:
    """Replaces members of a class or module. One that is not there is an error: its mutation would prove nothing."""
    for name, member in members.items():
        getattr(owner, name)
        setattr(owner, name, member)


def _stale_lists() -> None:
    from webhook.k8s.client import reflector

    take: Any = reflector.Reflector._take

    async def mutated(self: Any, fresh: Any, items: Any) -> None:
        now = self._clock.now()
        if hasattr(self, "_prove"):
            self._prove(now)
        else:
            self._heard_at = now
        await take(self, fresh, items)

    _put(reflector.Reflector, _take=mutated)


def _ready_without_apiserver() -> None:
    from webhook.cluster.live import LiveCluster

    waiting_for = LiveCluster.waiting_for

    def mutated(self: LiveCluster) -> tuple[str, ...]:
        return () if self._ready else waiting_for(self)

    _put(LiveCluster, waiting_for=mutated)


def _eight_batches() -> None:
    from webhook.cluster.source import Cluster
    from webhook.facts import Facts, Key
    from webhook.review import driver, reviewer

    drive: Any = driver.drive

    async def read_one_by_one(self: Facts, *keys: Key[Any]) -> None:
        for key in keys:
            await self.get(key)

    class Counting:
        def __init__(self, cluster: Cluster) -> None:
            self._cluster, self._reads = cluster, 0

        async def read(self, *arguments: Any) -> object:
            self._reads += 1
            if self._reads > 8:
                raise RuntimeError("asked for more than 8 batches of facts")
            return await self._cluster.read(*arguments)

    async def mutated(policy: Any, cluster: Cluster, *arguments: Any) -> Any:
        return await drive(policy, Counting(cluster), *arguments)

    _put(reviewer, drive=mutated)
    _put(Facts, prefetch=read_one_by_one)


def _no_fresh_read() -> None:
    from webhook.review import reviewer

    async def mutated(policy: Callable[[Any], Any], facts: Any) -> Any:
        return await policy(facts)

    _put(reviewer, confirmed=mutated)


def _first_page_only() -> None:
    from webhook.k8s.client import list_pages, reflector

    all_pages: Any = list_pages.raw_pages

    async def mutated(*arguments: Any) -> AsyncGenerator[Any, None]:
        async for page in all_pages(*arguments):
            yield page
            return

    _put(list_pages, raw_pages=mutated)
    _put(reflector, raw_pages=mutated)


def _namespaces_by_store() -> None:
    from msgspec.structs import replace

    from webhook.cluster.live import LiveCluster
    from webhook.facts import NamespaceKey

    stored: Any = LiveCluster._stored

    def mutated(self: LiveCluster, key: Any) -> object:
        return stored(self, replace(key, uncached=False) if isinstance(key, NamespaceKey) else key)

    _put(LiveCluster, _stored=mutated)


def _settings_frozen() -> None:
    from webhook.settings_file import SettingsFile

    async def mutated(self: SettingsFile) -> None:
        return

    _put(SettingsFile, poll=mutated)


def _validation_fails_open() -> None:
    from webhook.admission.decision import Denial
    from webhook.policies.migration import virtualmachineinstancemigrations as policy
    from webhook.policy import PolicyEndpoint

    def mutated(status: int, *rest: Any) -> Denial | None:
        return None if status == 503 else Denial(status, *rest)

    _put(PolicyEndpoint, fails_closed=lambda *_: False)
    _put(policy, Denial=mutated)


def _mutation_fails_closed() -> None:
    from webhook.policy import PolicyEndpoint

    _put(PolicyEndpoint, fails_closed=lambda *_: True)


def _defaults_forgotten() -> None:
    from webhook.policies.instancetypes import updates

    _put(updates, _preserved_defaults=lambda _: [])


def _limit_ignored() -> None:
    from webhook.policies.migration import virtualmachineinstancemigrations as policy

    async def mutated(*_: Any) -> None:
        return None

    _put(policy, _evaluate_limit=mutated)


def _lists_allow_all() -> None:
    from webhook.policies.instancetypes.settings import InstancetypeSettings

    with_annotations: Any = InstancetypeSettings.with_annotations

    def mutated(self: InstancetypeSettings, parameters: Mapping[str, str]) -> Any:
        kept = {key: value for key, value in parameters.items() if not key.endswith("/allowed-instancetypes")}
        return with_annotations(self, kept)

    _put(InstancetypeSettings, with_annotations=mutated)


MUTATIONS: Mapping[str, Mutation] = {
    "stale-lists": Mutation(
        "an informer counts as current while its lists fail on a later page",
        _stale_lists,
        frozenset({"unexplained", "not-allowed"}),
        ("failing pages",),
    ),
    "ready-without-apiserver": Mutation(
        "a replica stays ready that has long reached no API server",
        _ready_without_apiserver,
        frozenset({"ready-while-blind"}),
        ("blind replica",),
    ),
    "eight-batches": Mutation(
        "a review may ask for eight batches of facts, one in each",
        _eight_batches,
        frozenset({"internal-error", "unexplained"}),
    ),
    "no-fresh-read": Mutation(
        "what a store remembers denies, without a read of the API server",
        _no_fresh_read,
        frozenset({"unexplained"}),
        ("late watch",),
    ),
    "first-page-only": Mutation(
        "the first page of a list is taken for the whole", _first_page_only, frozenset({"unexplained"})
    ),
    "namespaces-by-store": Mutation(
        "what a store remembers says that a namespace has not opted in",
        _namespaces_by_store,
        frozenset({"unexplained"}),
        ("late watch",),
    ),
    "settings-frozen": Mutation("settings are read at the start alone", _settings_frozen, frozenset({"unexplained"})),
    "validation-fails-open": Mutation(
        "a migration that cannot be evaluated is admitted",
        _validation_fails_open,
        frozenset({"failed-open", "unexplained"}),
        ("failing gets",),
    ),
    "mutation-fails-closed": Mutation(
        "a VM whose namespace cannot be read is denied",
        _mutation_fails_closed,
        frozenset({"failed-closed"}),
        ("failing answers",),
    ),
    "defaults-forgotten": Mutation(
        "an overwrite takes a VM the default that it was given",
        _defaults_forgotten,
        frozenset({"default-lost", "unexplained"}),
    ),
    "limit-ignored": Mutation(
        "more migrations are unfinished than the settings allow",
        _limit_ignored,
        frozenset({"over-the-limit", "unexplained"}),
        ("cut watches",),
    ),
    "lists-allow-all": Mutation(
        "a namespace's list of instancetypes is not looked at", _lists_allow_all, frozenset({"not-allowed"})
    ),
}
