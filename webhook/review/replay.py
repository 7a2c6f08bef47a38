"""Running a plain function until all facts that it needs are read, and again before it denies: the loop behind reviews.

No object is denied, and no user is warned, because of an informer's store, which may be a moment old. KubeVirt checks
again what a store lets pass. A user who applies an instancetype and a VM of it together must not read that the VM does
not fit the instancetype of a second ago, so before such an answer all that came from stores is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

from webhook.admission.decision import Decision
from webhook.admission.step_budget import TooComplex
from webhook.admission.wire import Request
from webhook.cluster.source import Cluster
from webhook.errors import InputError
from webhook.facts import Facts, Key, NotRead, uncached_key
from webhook.k8s.types.meta import Object
from webhook.policies.common.required_facts import Unreadable
from webhook.settings.model import PolicySettings

T = TypeVar("T")
V = TypeVar("V", bound=Object)
S = TypeVar("S", bound=PolicySettings)

_OUT_OF_TIME: Final = "the deadline has passed before all that the answer depends on was read"

# A policy says what mode enforce would do; it has no clock, no network and no memory. Its settings are its policy's
# section of the snapshot, with the namespace's parameters worked in.
Handler: TypeAlias = Callable[[V, Request[V], Facts, S], Decision]


class OutOfTime(Unreadable):
    """The deadline has passed, and facts that the answer depends on have not been read."""


async def replay(
    decide: Callable[[Facts], T],
    cluster: Cluster,
    facts: Facts,
    deadline: float,
    input_name: str,
    keys: tuple[Key[Any], ...] = (),
) -> T:
    """What a deterministic function of facts returns, once they are read.

    The function is called again each time that something new has been read, so its rounds end with the facts that it
    can ask for; the deadline and the steps of ``facts.budget`` end them earlier.

    Args:
        decide: reads ``facts``, which raises `NotRead`; its other errors are passed on.
        cluster: answers the keys.
        facts: gets the facts that are read.
        deadline: on the running loop's clock, in seconds; look-ups end by then.
        input_name: the name of the input, for the error.
        keys: the facts that a first call needed, if there was one.

    Raises:
        InputError: all rounds together take more steps than ``facts.budget`` allows.
        OutOfTime: the function needs more facts, and the deadline has passed.
        RuntimeError: a round asks for nothing but what has been read: a bug.
    """
    loop = asyncio.get_running_loop()
    asked: set[Key[Any]] = set()
    while True:
        if keys:
            if asked.issuperset(keys):
                raise RuntimeError(
                    f"{input_name} asks again for facts that have been read: {', '.join(map(repr, keys))}"
                )
            if loop.time() >= deadline:
                raise OutOfTime(_OUT_OF_TIME)
            asked.update(keys)
            if len(keys) == 1:
                # Nearly always: no task for this.
                values = [await cluster.read(keys[0], deadline)]
            else:
                values = await asyncio.gather(*(cluster.read(key, deadline) for key in keys))
            for key, value in zip(keys, values, strict=True):
                facts.learn(key, value)
        try:
            return facts.budget.run(decide, facts)
        except TooComplex as error:
            raise InputError(str(error), input_name) from None
        except NotRead as missing:
            keys = missing.keys


def with_confirmation(handler: Handler[V, S]) -> Handler[V, S]:
    """A policy that evaluates again, with facts that are read again, before it denies or warns."""

    def confirm(view: V, request: Request[V], facts: Facts, settings: S) -> Decision:
        decision = handler(view, request, facts, settings)
        if not (decision.denial or decision.warnings):
            return decision
        cached: list[Key[Any]] = [*facts.informer_keys()]
        if not cached:
            return decision
        uncached = [uncached_key(key) for key in cached]
        facts.need(*uncached)
        pairs = zip(cached, uncached, strict=True)
        if all(_content(facts.get(old)) == _content(facts.get(new)) for old, new in pairs):
            return decision
        return handler(view, request, facts.fresh(), settings)

    return confirm


def _content(fact: object) -> object:
    """What a decision rests on, of an object or a list: stored ones have no metadata but the name."""
    if isinstance(fact, tuple):
        return [(item.meta.name, _content(item)) for item in fact]
    if isinstance(fact, Object) and getattr(fact, "data", None) is None:
        return getattr(fact, "spec", None)
    return fact
