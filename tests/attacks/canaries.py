"""Canaries in objects that are read on behalf of a requester, and all that comes of a review of theirs.

Every string of the object that is read is a canary, but for what the requester is owed. A patch goes into the
requester's own object, and is looked at where it is not owed either.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tests import builders
from tests.builders import Json
from tests.review.memory import KeptInMemory, MemoryCluster
from webhook import names
from webhook.facts import Key, NamespaceKey
from webhook.k8s.types.meta import Namespace
from webhook.review.endpoints import BY_PATH, ENDPOINTS
from webhook.review.reviewer import Evaluation, Reviewer
from webhook.server.background.events import event_of
from webhook.settings.model import Settings

CANARY = "canary-7d1f"
MUTATE_VM = "/mutate/instancetypes/virtualmachines/enforce"
VALIDATE_VM = "/validate/instancetypes/virtualmachines/enforce"
MUTATE_VMI = "/mutate/instancetypes/virtualmachineinstances/enforce"
SCHEDULE_VM = "/mutate/scheduling/virtualmachines/enforce"
SCHEDULE_POD = "/mutate/scheduling/pods/enforce"
MIGRATE = "/validate/migration/virtualmachineinstancemigrations/enforce"
WARN = "/mutate/migration/virtualmachineinstancemigrations/enforce"
CONSTRAIN = "/mutate/migration/pods/enforce"
EVICT = "/mutate/eviction/pods/enforce"
# Members of objects whose keys people choose.
_MAPS = ("labels", "annotations", "nodeSelector", "addedNodeSelector")

Facts = dict[Key[Any], object]


def planted(value: Any, owed: Iterable[str] = (), path: str = "", number: Any = None) -> Any:
    """A JSON object with a canary for every string, and one more in each map, but at the paths that are owed."""
    number = number or itertools.count()
    if any(path == one or path.startswith((f"{one}.", f"{one}[")) for one in owed):
        return value
    if isinstance(value, dict):
        made = {key: planted(item, owed, f"{path}.{key}".removeprefix("."), number) for key, item in value.items()}
        return made | {f"{CANARY}/k{next(number)}": CANARY} if path.endswith(_MAPS) else made
    if isinstance(value, list):
        return [planted(item, owed, f"{path}[]", number) for item in value]
    return f"{CANARY}-{next(number)}" if isinstance(value, str) else value


class Shown(msgspec.Struct):
    """The results of a review.

    Attributes:
        requester: the answer without its patch, and the Event.
        audit: the line, without its details.
        asked: the keys of the facts that were looked up.
    """

    verdict: Evaluation
    requester: str
    patch: str
    audit: str
    details: str
    asked: list[Key[Any]]


def settings(**sections: Any) -> Settings:
    made = builders.settings()
    return msgspec.structs.replace(made, **sections)


def show(
    path: str, body: Json, facts: Mapping[Key[Any], object], made: Settings | None = None, mode: str = "enforce"
) -> Shown:
    """Sends a review to a server that does not verify its callers, which is the default."""
    labels = dict.fromkeys((names.policy_label(one.policy) for one in ENDPOINTS), mode)
    there = facts.get(NamespaceKey("demo")) if mode == "as given" else None
    there = there or msgspec.convert({"metadata": {"name": "demo", "labels": labels}}, Namespace)
    place: Facts = {NamespaceKey("demo"): there, NamespaceKey("demo", fresh=True): there}
    cluster = MemoryCluster({**facts, **place}, peeked=set())
    kept = KeptInMemory()
    reviewer = Reviewer(cluster, lambda: made or settings(), kept, kept)
    endpoint, data = BY_PATH[path], msgspec.json.encode(body)

    async def both() -> tuple[Evaluation, bytes]:
        evaluated = await reviewer.evaluate(endpoint, data, 1e9, verified=False)
        return evaluated, await reviewer.review(endpoint, data, 1e9, verified=False)

    verdict, answer = asyncio.run(both())
    assert kept.errors == []
    response = json.loads(answer)["response"]
    patch = base64.b64decode(response.pop("patch", "")).decode()
    record = msgspec.to_builtins(kept.records[0])
    details = json.dumps(record.pop("details", None))
    requester = json.dumps([response, str(event_of(endpoint, verdict))])
    return Shown(verdict, requester, patch, json.dumps(record), details, cluster.reads)


def review(obj: Json, **request: Any) -> Json:
    return builders.review(obj, "alice", **request)


def silent(shown: Shown, *also: str) -> None:
    """No canary in the answer, in the Event, nor in what else is named."""
    for text in (shown.requester, *also):
        assert CANARY not in text
