"""A cluster in memory, reviews of any endpoint, and a Reviewer's answers to them."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tests import builders
from tests.admission.audit_schema import valid
from tests.builders import Json, changed, known, vmi
from webhook.admission.audit import Record
from webhook.admission.wire import MAX_NOTE
from webhook.cluster.source import Cluster
from webhook.facts import NOT_READ, Key, KubeVirtKey, ListKey, ObjectKey, VerdictKey
from webhook.k8s.types.meta import Namespace
from webhook.policies.instancetypes.settings import InstancetypeSettings
from webhook.policies.migration.settings import MigrationSettings
from webhook.policies.registry import BY_PATH
from webhook.policy import Endpoint
from webhook.review.reviewer import Evaluation, Observer, Reviewer
from webhook.settings.model import Settings

PODS = BY_PATH["/mutate/scheduling/pods/enforce"]
PODS_OBSERVED = BY_PATH["/mutate/scheduling/pods/observe"]
VMS = BY_PATH["/mutate/scheduling/virtualmachines/enforce"]


class MemoryCluster(Cluster):
    """Answers from a dict: ``peeked`` at once, the rest only when read; ``listed`` are all namespaces."""

    def __init__(
        self, facts: dict[Key[Any], object], peeked: set[Key[Any]] | None = None, listed: Iterable[Namespace] = ()
    ) -> None:
        self.facts = facts
        self.peeked = set(facts) if peeked is None else peeked
        self.reads: list[Key[Any]] = []
        self.restored: list[Callable[[str], None]] = []
        self.waits: tuple[str, ...] = ()
        self._listed = tuple(listed)

    def on_restore(self, act: Callable[[str], None]) -> None:
        self.restored.append(act)

    def peek(self, key: Key[Any]) -> object:
        return self.facts[key] if key in self.peeked else NOT_READ

    async def read(self, key: Key[Any], deadline: float) -> Any:
        self.reads.append(key)
        if isinstance(key, VerdictKey):
            return key.judge()
        return self.facts[self.given(key)]

    def given(self, key: Key[Any]) -> Key[Any]:
        """The key of a given fact: a fact that is not given as uncached is unchanged."""
        if key in self.facts or not isinstance(key, ObjectKey | ListKey):
            return key
        return msgspec.structs.replace(key, uncached=False)

    def staleness(self) -> dict[str, float]:
        return {}

    def ages(self, keys: Iterable[Key[Any]]) -> dict[str, float]:
        return {type(key).__name__: math.inf if isinstance(key, KubeVirtKey) else 1.23456 for key in keys}

    def namespaces(self) -> tuple[Namespace, ...]:
        return self._listed

    def waiting_for(self) -> tuple[str, ...]:
        return self.waits


class KeptInMemory(Observer):
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.errors: list[BaseException] = []

    def write(self, record: Record) -> None:
        valid(record)
        self.records.append(record)

    def on_failure(self, endpoint: Endpoint, error: BaseException) -> None:
        self.errors.append(error)


def evaluate(
    asked: Json,
    facts: dict[Key[Any], object] | None = None,
    endpoint: Endpoint = PODS,
    cluster: MemoryCluster | None = None,
    kept: KeptInMemory | None = None,
    failure_policy: Any = None,
    body: bytes | None = None,
) -> tuple[Evaluation, Json]:
    """The verdict, and the response as the API server reads it.

    Args:
        failure_policy: of every policy that has one.
        body: the bytes to send, where JSON cannot express them.
    """
    kept = kept or KeptInMemory()
    cluster = cluster or MemoryCluster(known(vmi()) if facts is None else facts)
    reviewer = Reviewer(cluster, lambda: failing(failure_policy), kept, kept, wall=lambda: 1_700_000_000.25)
    data = msgspec.json.encode(asked) if body is None else body

    async def both() -> tuple[Evaluation, bytes]:
        return await reviewer.evaluate(endpoint, data, 1e9), await reviewer.review(endpoint, data, 1e9)

    verdict, answer = asyncio.run(both())
    response: Json = json.loads(answer)["response"]
    assert response["uid"] == asked["request"]["uid"]
    for key, note in response["auditAnnotations"].items():
        # Behind the entry's name the API server takes a qualified name's last part, or drops the annotation.
        assert re.fullmatch("[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", key)
        assert len(note) <= MAX_NOTE
    return verdict, response


def failing(failure_policy: Any) -> Settings:
    """The settings with the failure policy of every policy that has one; None: as they are."""
    usual = builders.settings()
    if failure_policy is None:
        return usual
    return changed(
        usual,
        instancetypes=InstancetypeSettings(failure_policy=failure_policy),
        migration=MigrationSettings(failure_policy=failure_policy),
    )
