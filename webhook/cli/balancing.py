"""Makes the migrations of a plan that balances nodes, one after the other, each by a plan of that moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from webhook.errors import InputError, Unavailable
from webhook.forecast.balance import Course
from webhook.forecast.balance_report import BalancePlan, Move
from webhook.k8s.client.api import ApiConnectionError, Requests, decode, explain
from webhook.k8s.resources import PODS
from webhook.k8s.types.meta import Object, View
from webhook.placement.machines import ENDED_PHASES, MIGRATIONS, Migration

_SECONDS: Final = 2.0
_CREATED: Final = 201
_OK: Final = 200
_NOT_FOUND: Final = 404
_SERVER_ERROR: Final = 500
_SUCCEEDED: Final = "Succeeded"
# A launcher ends some eight seconds after its guest has left.
_LEAVING_SECONDS: Final = 120.0
# The plan of now, of at most so many moves, after some have been made.
Plan = Callable[[Course, int], Awaitable[BalancePlan]]


class StoppedError(InputError):
    """A migration was not made, or has failed."""


async def run(api: Requests, plan: Plan, most: int, say: Callable[[str], None], pause: float = _SECONDS) -> BalancePlan:
    """Make the migrations of plans until the target is reached, nothing helps, or one fails; the plan of the end.

    Args:
        api: the cluster, where migrations are created.
        plan: makes the plan of now. After each migration it is made again, so that a surprise changes what follows;
            without one it is what is left.
        most: how many migrations, at most.
        say: writes a line.
        pause: how many seconds pass between two looks at a migration.

    Cancelled (Ctrl-C), it says what goes on in the cluster.

    Raises:
        StoppedError: a migration cannot be created or read, or has failed. Nothing after it is begun.
        InputError: there is no plan.
    """
    course = Course()
    while len(course.made) < most:
        now = await plan(course, most - len(course.made))
        if not now.moves:
            break
        first = now.moves[0]
        left = f"{len(now.moves) - 1} planned after it not begun"
        name = await _create(api, first, left, say)
        say(f"{first.namespace}/{first.name}: {first.source} -> {first.to}, migration {name}")
        try:
            ended = await _end(api, first, name, left, pause)
        except asyncio.CancelledError:
            say(f"{first.namespace}/{name}: stopped waiting; the migration goes on in the cluster; {left}")
            raise
        if ended is None or ended.phase != _SUCCEEDED:
            what = f"the migration has {'failed' if ended else 'been deleted'}; {left}"
            raise StoppedError(what, f"{first.namespace}/{name}", "see its conditions, and run the command again")
        course = Course(now, (*course.made, first))
        try:
            await _leave(api, first, ended.source_pod, pause, say)
        except asyncio.CancelledError:
            say(f"{first.namespace}/{name}: stopped; the migration has succeeded; {left}")
            raise
        say(f"{first.namespace}/{first.name}: done, {first.deviation:g}pp above the mean")
    return await plan(course, 0)


async def _create(api: Requests, move: Move, left: str, say: Callable[[str], None]) -> str:
    """The name of the migration that is created."""
    where = f"migration of {move.namespace}/{move.name}"
    perhaps = f"it may have been created, and go on; {left}"
    fix = "see kubectl get virtualmachineinstancemigrations, and run the command again"
    try:
        status, body = await api.request("POST", MIGRATIONS.path(move.namespace), body=move.migration)
    except asyncio.CancelledError:
        say(f"{where}: stopped; {perhaps}")
        raise
    except (ApiConnectionError, TimeoutError) as error:
        raise StoppedError(f"{_why(error)}; {perhaps}", where, fix) from None
    if status >= _SERVER_ERROR:
        # Such as etcd's timeouts, after which the object may be there.
        raise StoppedError(f"the API server answers {status}: {_message(body)}; {perhaps}", where, fix)
    if status != _CREATED:
        what = f"the API server denies it ({status}): {_message(body)}; {left}"
        raise StoppedError(what, where, "correct that, and run the command again")
    created = decode(body, Migration, MIGRATIONS.kind)
    if isinstance(created, Unavailable) or not created.meta.name:
        why = created.why if isinstance(created, Unavailable) else "the API server's answer names no migration"
        raise StoppedError(f"{why}; {perhaps}", where, fix)
    return created.meta.name


class _State(View, frozen=True):
    source_pod: str | None = None


class _Status(View, frozen=True):
    phase: str | None = None
    migration_state: _State | None = None


class _Phased(Object, frozen=True):
    """A migration, or a pod, with what says how far it is."""

    status: _Status | None = None

    @property
    def phase(self) -> str:
        return (self.status.phase if self.status else None) or ""

    @property
    def source_pod(self) -> str:
        """Of a migration, the name of the pod that the VM leaves; empty: KubeVirt has not written it."""
        state = self.status.migration_state if self.status else None
        return (state.source_pod if state else None) or ""


async def _end(api: Requests, move: Move, name: str, left: str, pause: float) -> _Phased | None:
    """A migration that has ended; None: it is gone."""
    where = f"{move.namespace}/{name}"

    def unread(why: str) -> StoppedError:
        return StoppedError(f"the migration cannot be read any more, and may go on: {why}; {left}", where)

    while True:
        try:
            status, body = await api.request("GET", MIGRATIONS.path(move.namespace, name))
        except (ApiConnectionError, TimeoutError) as error:
            raise unread(_why(error)) from None
        if status == _NOT_FOUND:
            return None
        if status != _OK:
            raise unread(explain("get", MIGRATIONS, move.namespace, status, body).why)
        found = decode(body, _Phased, MIGRATIONS.kind)
        if isinstance(found, Unavailable):
            raise unread(found.why)
        if found.phase in ENDED_PHASES:
            return found
        await asyncio.sleep(pause)


async def _leave(api: Requests, move: Move, pod: str, pause: float, say: Callable[[str], None]) -> None:
    """Wait until the pod that a VM has left has ended: KubeVirt calls a migration done while it still takes its room.

    The next plan would count it, and move more VMs than has to be. One that does not end in time, or cannot be read,
    is counted.
    """
    deadline = time.monotonic() + _LEAVING_SECONDS
    while pod and time.monotonic() < deadline:
        try:
            status, body = await api.request("GET", PODS.path(move.namespace, pod))
        except (ApiConnectionError, TimeoutError):
            break
        found = decode(body, _Phased, PODS.kind) if status == _OK else None
        if status == _NOT_FOUND or (isinstance(found, _Phased) and found.phase in ENDED_PHASES):
            return
        if not isinstance(found, _Phased):
            break
        await asyncio.sleep(pause)
    if pod:
        say(f"{move.namespace}/{move.name}: the pod {pod}, which it has left, still takes room on {move.source}")


def _why(error: ApiConnectionError | TimeoutError) -> str:
    return error.why if isinstance(error, ApiConnectionError) else "the request to the API server timed out"


def _message(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body).get("message", ""))
    except (msgspec.DecodeError, AttributeError):
        return ""
