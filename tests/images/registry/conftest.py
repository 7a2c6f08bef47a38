"""Registries for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.images.registry.fake_registry import FakeRegistry, serving


@pytest.fixture
async def registry() -> AsyncIterator[FakeRegistry]:
    async with serving() as one:
        yield one


@pytest.fixture
async def other() -> AsyncIterator[FakeRegistry]:
    async with serving() as one:
        yield one
