"""Asking a plain function until all facts that it needs are read: the one loop behind reviews and explanations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from webhook.admission.step_budget import TooComplex
from webhook.cluster.source import Cluster
from webhook.errors import InputError, Unavailable
from webhook.facts import Facts, Key, NotRead

T = TypeVar("T")

# Each round reads at least one fact; more rounds than this mean that a function never ends.
MAX_ROUNDS: Final = 8


async def replay(decide: Callable[[Facts], T], cluster: Cluster, facts: Facts, deadline: float, input_name: str) -> T:
    """What a deterministic function of facts says, once they are read.

    Args:
        decide: reads ``facts``, which raises `NotRead`; its other errors are passed on.
        cluster: answers the keys.
        facts: grows by what is read.
        deadline: on the running loop's clock, in seconds; look-ups end by then.
        input_name: the name of the input, for the error.

    Raises:
        InputError: all rounds together take more steps than ``facts.budget`` allows.
        RuntimeError: it never gets to an end, a bug.
    """
    try:
        return facts.budget.run(decide, facts)
    except TooComplex as error:
        raise InputError(str(error), input_name) from None
    except NotRead as missing:
        keys = missing.keys
    return await resume(decide, cluster, facts, deadline, input_name, keys)


async def resume(
    decide: Callable[[Facts], T],
    cluster: Cluster,
    facts: Facts,
    deadline: float,
    input_name: str,
    keys: tuple[Key[Any], ...],
) -> T:
    """What a deterministic function of facts returns, from its second call on.

    Args:
        decide: reads ``facts``, which raises `NotRead`; its other errors are passed on.
        cluster: answers the keys.
        facts: gets the facts that are read.
        deadline: on the running loop's clock, in seconds; look-ups end by then.
        input_name: the name of the input, for the error.
        keys: the facts that the first call needed.

    Raises:
        InputError: all rounds together take more steps than ``facts.budget`` allows.
        RuntimeError: the function needs new facts in every round: a bug.
    """
    for _ in range(MAX_ROUNDS):
        for key, value in zip(keys, await _read(keys, cluster, deadline), strict=True):
            facts.learn(key, value)
        try:
            return facts.budget.run(decide, facts)
        except TooComplex as error:
            raise InputError(str(error), input_name) from None
        except NotRead as missing:
            keys = missing.keys
    raise RuntimeError(f"{input_name} asked for facts in more than {MAX_ROUNDS} rounds")


async def _read(keys: tuple[Key[Any], ...], cluster: Cluster, deadline: float) -> list[object | None | Unavailable]:
    if len(keys) == 1:
        return [await cluster.read(keys[0], deadline)]
    return list(await asyncio.gather(*(cluster.read(key, deadline) for key in keys)))
