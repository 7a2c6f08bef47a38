"""Answering what a policy awaits, from a cluster, and evaluating it again before it denies.

A policy suspends with a batch of keys. `drive` reads a batch at once, under the deadline, and sends the answers back.

No object is denied, and no user is warned, because of an object or a list of an informer's store, which may be a moment
old. KubeVirt checks again what a store lets pass. A user who applies an instancetype and a VM of it together must not
read that the VM does not fit the instancetype of a second ago, so before such an answer each `ObjectKey` and `ListKey`
that a store answered is read again. Nodes are not: they are too many. A namespace and the KubeVirt object are not
either: `webhook.review.scope` has read the namespace again where its store would switch the policy off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from webhook.admission.decision import Decision
from webhook.admission.step_budget import TooComplex
from webhook.cluster.source import Cluster
from webhook.errors import InputError
from webhook.facts import Batch, Facts, ListKey, ObjectKey, Unreadable, advance, uncached_key
from webhook.k8s.types.meta import Object
from webhook.kubevirt.resources import NAMED_BY_VMS

T = TypeVar("T")

_OUT_OF_TIME: Final = "the deadline has passed before all that the answer depends on was read"


async def drive(coroutine: Coroutine[Any, Any, T], cluster: Cluster, facts: Facts, deadline: float, where: str) -> T:
    """What a coroutine that awaits facts alone returns.

    Args:
        coroutine: awaits ``facts``, and has not begun; its errors are passed on.
        cluster: answers the keys.
        facts: those of the coroutine.
        deadline: on the running loop's clock, in seconds; look-ups end by then.
        where: what asks, for the error: the path of a URL, or the name of a command or an input.

    Raises:
        InputError: the coroutine takes more steps than ``facts.budget`` allows.
        Unreadable: the coroutine needs more facts, and the deadline has passed. It never sees that: it is closed. Of a
            look-up that has begun and ends too late it gets `Unavailable`.
    """
    batch: Batch = ()
    try:
        while True:
            answers = await _read(cluster, batch, deadline) if batch else None
            try:
                batch = facts.budget.run(advance, coroutine, answers)
            except StopIteration as returned:
                result: T = returned.value
                return result
            except TooComplex as error:
                raise InputError(str(error), where) from None
    finally:
        coroutine.close()


async def _read(cluster: Cluster, batch: Batch, deadline: float) -> Sequence[object]:
    """The answers to the keys of a batch, which are looked up at the same time."""
    if asyncio.get_running_loop().time() >= deadline:
        raise Unreadable(_OUT_OF_TIME)
    if len(batch) == 1:
        # Nearly always: no task for this.
        return [await cluster.read(batch[0], deadline)]
    answers: list[object] = await asyncio.gather(*(cluster.read(key, deadline) for key in batch))
    return answers


async def confirmed(decide: Callable[[Facts], Awaitable[Decision]], facts: Facts) -> Decision:
    """A policy's decision. Before it denies or warns, it is made again with all that came from stores read again.

    The policy knows nothing of it.
    """
    decision = await decide(facts)
    if not (decision.denial or decision.warnings):
        return decision
    stored = facts.informer_keys()
    if not stored:
        return decision
    before, now = await facts.all(*stored), await facts.all(*map(uncached_key, stored))
    if all(_is_same(key, old, new) for key, old, new in zip(stored, before, now, strict=True)):
        return decision
    return await decide(facts.uncached())


# Of these an informer keeps the name and the spec, and so no policy decides by anything else.
_KEPT_BY_SPEC: Final = frozenset(resource.path() for resource in NAMED_BY_VMS)


def _is_same(key: ObjectKey[Any] | ListKey[Any], old: object, new: object) -> bool:
    """Whether a decision by what came from a store is one by what the API server says now."""
    if old is new or old == new:
        return True
    return key.resource.path() in _KEPT_BY_SPEC and _specs(old) == _specs(new)


def _specs(fact: object) -> object:
    """An object, or those of a list, by name and spec; as it is what is neither."""
    if isinstance(fact, tuple):
        return [_specs(each) for each in fact]
    return (fact.meta.name, getattr(fact, "spec", None)) if isinstance(fact, Object) else fact
