"""An informer never believes its store to be younger than it is, whichever pages and lines fail, and then it heals."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cluster.faulty_apiserver import ANSWERS, LINES, FaultyApiServer
from tests.virtual_time import LoopClock, run
from webhook.errors import Unavailable
from webhook.k8s.client import reflector as module
from webhook.k8s.client.freshness import Fresh
from webhook.k8s.client.reflector import CURRENT_SECONDS, Reflector
from webhook.k8s.resources import NAMESPACES
from webhook.k8s.types.meta import Namespace

NAMES = ("a", "b", "c", "d", "e")
PAGES = (1, 2, 3)
HOUR = 3600.0
# Until a store has healed: a silent watch is cut after 100 s, and a kind that is not served is listed again after 30 s.
HEALED_SECONDS = 200.0


class Informer:
    """A reflector of namespaces at work, and what its API server has really held."""

    def __init__(self, server: FaultyApiServer, reflector: Reflector[Namespace]) -> None:
        self.server = server
        self.reflector = reflector

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def staleness(self) -> float:
        return self.reflector.freshness(self.now).age

    @property
    def is_current(self) -> bool:
        return isinstance(self.reflector.freshness(self.now), Fresh)

    @property
    def problem(self) -> Unavailable | None:
        return self.reflector.freshness(self.now).problem

    @property
    def modes(self) -> dict[str, str | None]:
        return {namespace.meta.name or "": namespace.meta.label("mode") for namespace in self.reflector}

    def assert_honest(self) -> None:
        """The store is what the API server held at some moment that is no longer ago than the staleness says."""
        assert self.is_current is (self.staleness < CURRENT_SECONDS)
        if math.isinf(self.staleness):
            return
        kept, end = self.modes, math.inf
        for since, modes in reversed(self.server.history):
            if modes == kept:
                break
            end = since
        assert end >= self.now - self.staleness

    async def pass_time(self, seconds: float, step: float = 7.0) -> None:
        """Let time pass, and look at each step whether the informer is honest."""
        end = self.now + seconds
        while self.now < end:
            await asyncio.sleep(step)
            self.assert_honest()

    async def assert_heals(self) -> None:
        self.server.heal()
        await self.pass_time(HEALED_SECONDS)
        assert (self.is_current, self.modes, self.problem) == (
            True,
            self.server.modes,
            None,
        )
        # For good.
        await self.pass_time(HOUR, step=29.0)
        assert (self.is_current, self.modes) == (True, self.server.modes)


@asynccontextmanager
async def informing() -> AsyncIterator[Informer]:
    """An informer of five namespaces that lists two of them in a page, and has been up to date for a while."""
    server = FaultyApiServer()
    for name in NAMES:
        server.put(name, "enforce")
    reflector = Reflector(server, NAMESPACES, clock=LoopClock(), jitter=lambda first, _: first)
    informer = Informer(server, reflector)
    with mock.patch.object(module, "PAGE_LIMIT", 2):
        task = asyncio.create_task(reflector.run())
        try:
            await informer.pass_time(130.0)
            assert informer.is_current
            yield informer
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("fault", ANSWERS)
def test_a_page_that_always_fails(fault: str, page: int) -> None:
    """The pages before it come each time, and prove nothing."""

    async def main() -> None:
        async with informing() as informer:
            informer.server.fail(pages={page: fault})
            informer.server.expire()
            informer.server.put("a", "off")
            if (fault, page) == ("404", 1):
                # That is an answer: a kind that is not served has no objects. To this the history has no snapshot.
                await asyncio.sleep(HOUR)
                assert (informer.is_current, informer.modes) == (True, {})
            else:
                failing = informer.now
                await informer.pass_time(HOUR)
                assert informer.staleness >= informer.now - failing
                assert informer.problem is not None
            await informer.assert_heals()

    run(main())


@pytest.mark.parametrize("lines", [0, 1, 2])
@pytest.mark.parametrize("fault", LINES)
def test_a_line_that_always_fails(fault: str, lines: int) -> None:
    """Changes come faster than watches that end after some lines bring them."""

    async def main() -> None:
        async with informing() as informer:
            informer.server.lines = lines
            informer.server.fail(line=fault)
            for number in range(1000):
                informer.server.put("a", f"mode-{number}")
                await informer.pass_time(0.2, step=0.2)
            await informer.pass_time(HOUR)
            await informer.assert_heals()

    run(main())


@pytest.mark.parametrize("fault", ANSWERS)
def test_a_watch_that_is_never_accepted_is_made_up_for_by_lists(fault: str) -> None:
    async def main() -> None:
        async with informing() as informer:
            informer.server.fail(watch=fault, line="cut")
            informer.server.put("a", "off")
            await informer.pass_time(HOUR)
            if fault in ANSWERS[: ANSWERS.index("half")]:
                assert informer.modes == informer.server.modes
            await informer.assert_heals()

    run(main())


def test_no_api_server_for_an_hour_after_a_410() -> None:
    async def main() -> None:
        async with informing() as informer:
            informer.server.expire()
            informer.server.die()
            informer.server.put("a", "off")
            failing = informer.now
            await informer.pass_time(HOUR)
            assert informer.staleness >= informer.now - failing
            await informer.assert_heals()

    run(main())


def test_events_without_bookmarks_are_made_up_for_by_lists() -> None:
    """As where an API server has no watch cache, and etcd does not notify its progress."""

    async def main() -> None:
        async with informing() as informer:
            informer.server.bookmark_seconds = math.inf
            informer.server.expire()
            oldest = 0.0
            for number in range(500):
                informer.server.put("a", f"mode-{number}")
                await informer.pass_time(7.0)
                assert informer.modes == informer.server.modes
                oldest = max(oldest, informer.staleness)
            # Two watches that were cut.
            assert CURRENT_SECONDS < oldest < 2 * module.SILENCE_SECONDS + 10.0
            informer.server.bookmark_seconds = 60.0
            await informer.assert_heals()

    run(main())


@pytest.mark.parametrize("seconds", [0.0, 1.5, 40.0])
@pytest.mark.parametrize("code", ["429", "500", "410"])
def test_a_watch_that_always_ends_in_an_error_is_logged_once(
    code: str, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    """It has been accepted each time, for some seconds; that is no recovery."""

    async def main() -> None:
        async with informing() as informer:
            informer.server.pause = seconds
            informer.server.fail(line=f"ERROR {code}")
            await informer.pass_time(HOUR)
            said = [record.levelno for record in caplog.records]
            # A 410 is followed by a list, which is all that it asks for.
            assert said == ([] if code == "410" and seconds else [logging.WARNING])
            await informer.assert_heals()
            assert [record.levelno for record in caplog.records] == (said and [*said, logging.INFO])

    with caplog.at_level(logging.INFO, module.__name__):
        run(main())


FAULTS = st.one_of(
    st.none(),
    st.builds(lambda page, fault: {"pages": {page: fault}}, st.sampled_from(PAGES), st.sampled_from(ANSWERS)),
    st.builds(lambda fault: {"other": fault}, st.sampled_from(ANSWERS)),
    st.builds(lambda fault: {"watch": fault}, st.sampled_from(ANSWERS)),
    st.builds(lambda fault: {"line": fault}, st.sampled_from(LINES)),
)
STEPS = st.tuples(
    *(FAULTS, st.integers(0, 3), st.booleans()),
    st.sampled_from([0.0, 0.3, 5.0, 40.0, 120.0, 400.0]),
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(["enforce", "off", None])), max_size=4),
)


@pytest.mark.control("stale-watches")
@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=12))
def test_whatever_fails_the_store_is_as_old_as_it_says(
    steps: list[tuple[dict[str, object] | None, int, bool, float, list[tuple[str, str | None]]]],
) -> None:
    async def main() -> None:
        async with informing() as informer:
            server = informer.server
            for fault, lines, expires, seconds, changes in steps:
                server.lines = lines
                server.fail(**fault or {})  # type: ignore[arg-type]
                if expires:
                    server.expire()
                for name, mode in changes:
                    if mode:
                        server.put(name, mode)
                    elif name in server.modes:
                        server.remove(name)
                    await asyncio.sleep(0.2)
                if fault == {"pages": {1: "404"}}:
                    # For a moment the kind is not served: no moment of the history is empty.
                    server.fail()
                await informer.pass_time(seconds)
            await informer.assert_heals()

    run(main())
