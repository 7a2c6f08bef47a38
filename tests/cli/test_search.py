from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from webhook.cli.given import GivenObjects
from webhook.cli.search import Search, configuration_of
from webhook.cluster import objects
from webhook.errors import InputError, Unavailable
from webhook.kubevirt.config import DEFAULTS
from webhook.kubevirt.lookup import Get
from webhook.kubevirt.views import KubeVirt

IMAGE = {"kind": "DataSource", "metadata": {"name": "i", "namespace": "a"}}


class SearchedSource(objects.Objects):
    """A source of objects that has one image, and denies access to claims."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | Unavailable | None:
        self.asked.append((kind, namespace, name))
        if kind == "PersistentVolumeClaim":
            return Unavailable("no")
        return IMAGE if (kind, namespace, name) == ("DataSource", "a", "i") else None

    async def kubevirts(self) -> list[KubeVirt] | Unavailable:
        return []

    async def definitions(self) -> None:
        return None


async def test_what_was_read_is_remembered_and_what_is_missing_too() -> None:
    source, runs = SearchedSource(), []
    search = Search(GivenObjects(), source)

    def ask(get: Get) -> list[Any]:
        runs.append(1)
        return [get("DataSource", "a", "i"), get("DataSource", "a", "none"), get("DataSource", "a", "i")]

    assert await search.answer(ask) == [IMAGE, None, IMAGE]
    assert await search.answer(ask) == [IMAGE, None, IMAGE]
    assert source.asked == [("DataSource", "a", "i"), ("DataSource", "a", "none")]
    assert len(runs) == 4


async def test_files_come_first_and_without_a_source_alone() -> None:
    found = GivenObjects(others={("DataSource", "a", "i"): {"from": "file"}})
    source = SearchedSource()

    assert await Search(found, source).answer(lambda get: get("DataSource", "a", "i")) == {"from": "file"}
    assert await Search(found, None).answer(lambda get: get("DataSource", "a", "x")) is None
    assert source.asked == []


@pytest.mark.parametrize(("namespace", "place"), [("a", "a/c"), ("", "c")])
async def test_what_can_not_be_read(namespace: str, place: str, golden: Callable[[str], None]) -> None:
    with pytest.raises(InputError) as caught:
        await Search(GivenObjects(), SearchedSource()).answer(lambda get: get("PersistentVolumeClaim", namespace, "c"))
    assert caught.value.where == f"PersistentVolumeClaim {place}"
    golden(str(caught.value))


async def test_without_a_kubevirt_its_own_settings_count() -> None:
    for source in (None, SearchedSource()):
        assert (await configuration_of(GivenObjects(), source))[0] == DEFAULTS
