"""Layers at once from memory, and in the background from registries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.images.registry.fake_registry import manifest
from webhook.images.manifests import ImageReference, Layer, digest_of
from webhook.images.registry.client import RETRY_SECONDS, RegistryError
from webhook.images.registry.credentials import Keyring, RegistryCredentials
from webhook.images.registry.fetch_queue import PullScope
from webhook.images.registry.images import TAG_SECONDS, Images
from webhook.images.registry.manifest_files import ManifestFiles

AMD, ARM = "linux/amd64", "linux/arm64"
ANN = RegistryCredentials("ann", "secret")
L1, L2 = (Layer(digest_of(b"L1"), 100),), (Layer(digest_of(b"L2"), 7),)
SHOP = PullScope("shop", ("secret",))


def index(**images: bytes) -> bytes:
    written = [
        {"digest": digest_of(body), "size": 1, "platform": {"os": "linux", "architecture": name}}
        for name, body in images.items()
    ]
    return json.dumps({"schemaVersion": 2, "manifests": written}).encode()


def tagged(tag: str = "40", registry: str = "quay.io") -> ImageReference:
    return ImageReference(registry, "disk", tag)


def pinned(body: bytes, registry: str = "quay.io") -> ImageReference:
    return ImageReference(registry, "disk", "", digest_of(body))


class ImageSource:
    """A registry, its clock, and all requests to it."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.asked: list[tuple[str, RegistryCredentials | None]] = []
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.now = 0.0
        self.tells_digests = False

    async def digest(self, reference: ImageReference, credentials: RegistryCredentials | None = None) -> str:
        return digest_of(await self.manifest(reference, credentials)) if self.tells_digests else ""

    def add(self, body: bytes, tag: str = "") -> bytes:
        self.contents[digest_of(body)] = body
        if tag:
            self.contents[tag] = body
        return body

    async def manifest(self, reference: ImageReference, credentials: RegistryCredentials | None = None) -> bytes:
        self.asked.append((reference.version, credentials))
        if self.gate:
            await self.gate.wait()
        if self.error:
            raise self.error
        if reference.version not in self.contents:
            raise RegistryError("absent", "there is none")
        return self.contents[reference.version]


class FakeKeyrings:
    async def keyring(self, namespace: str, names: tuple[str, ...]) -> Keyring:
        return [("quay.io", ANN)] if (namespace, names) == ("shop", ("secret",)) else []


@asynccontextmanager
async def running(
    source: ImageSource,
    *,
    files: ManifestFiles | None = None,
    on_manifest: Callable[[str], None] = lambda _: None,
    other: ImageSource | None = None,
) -> AsyncIterator[Images]:
    clients: Any = {"quay.io": source} | ({"other.example": other} if other else {})
    keyrings: Any = FakeKeyrings()
    images = Images(clients, files=files, keyrings=keyrings, on_manifest=on_manifest, clock=lambda: source.now)
    task = asyncio.create_task(images.run())
    try:
        yield images
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def source() -> ImageSource:
    return ImageSource()


@pytest.fixture
async def images(source: ImageSource) -> AsyncIterator[Images]:
    async with running(source) as images:
        yield images


async def settle(images: Images) -> None:
    """Wait until all that was queued has been fetched."""
    for _ in range(1000):
        await asyncio.sleep(0.002)
        if not any(queue or queue._running for queue in images.queues.values()):
            return
    raise AssertionError("the queues do not empty")


async def fetched(images: Images, *image: Any) -> tuple[Layer, ...] | None:
    """What is known of an image's layers, before all that was queued has been fetched."""
    found = images.layers(*image)
    await settle(images)
    return found


class TestLayers:
    async def test_what_is_unknown_is_none_and_known_the_next_time(self, source: ImageSource) -> None:
        source.add(manifest(), "40")
        heard: list[str] = []
        async with running(source, on_manifest=heard.append) as images:
            assert await fetched(images, tagged(), AMD) is None
            assert images.layers(tagged(), AMD) == images.layers(pinned(manifest()), AMD) == L1
            assert source.asked == [("40", None)]
        assert heard == [digest_of(manifest())], "everybody who waits hears of a manifest"

    async def test_an_index_has_an_image_for_each_platform(self, source: ImageSource, images: Images) -> None:
        one, two = source.add(manifest()), source.add(manifest({"L2": 7}))
        whole = source.add(index(amd64=one, arm64=two), "40")
        for _ in range(3):
            await fetched(images, tagged(), AMD)
        assert images.layers(tagged(), AMD) == L1
        assert images.lacking(digest_of(whole), ARM) == digest_of(two)
        assert await fetched(images, tagged(), ARM) is None
        assert (images.layers(tagged(), ARM), images.layers(tagged(), "linux/s390x")) == (L2, ())

    async def test_an_index_in_an_index_is_not_followed(self, source: ImageSource, images: Images) -> None:
        source.add(index(amd64=source.add(index(amd64=source.add(manifest())))), "40")
        assert [await fetched(images, tagged(), AMD) for _ in range(4)] == [None] * 4
        assert len(source.asked) == 2

    @pytest.mark.control("request-forgery-by-a-registry")
    async def test_a_registry_that_is_not_listed_is_not_contacted(self, images: Images) -> None:
        reference = tagged(registry="evil.example")
        assert not images.is_listed(reference)
        assert (images.layers(reference, AMD), images.waiting) == (None, 0)

    async def test_a_digest_is_fetched_once(self, source: ImageSource, images: Images) -> None:
        body = source.add(manifest())
        source.gate = asyncio.Event()
        for namespace in ("shop", "other", "third"):
            for _ in range(100):
                assert images.layers(pinned(body), AMD, PullScope(namespace)) is None
                await asyncio.sleep(0)
        source.gate.set()
        await settle(images)
        assert (images.layers(pinned(body), AMD), len(source.asked)) == (L1, 1)

    async def test_also_where_several_tags_point_to_it(self, source: ImageSource, images: Images) -> None:
        source.tells_digests = True
        source.contents["latest"] = body = source.add(manifest(), "40")
        for reference in (tagged("40"), tagged("latest"), pinned(body)):
            images.layers(reference, AMD, PullScope("shop"))
        await settle(images)
        assert (images.layers(tagged("latest"), AMD), images.results["fetched"]) == (L1, 1)

    async def test_a_tag_is_looked_at_again_and_the_old_one_counts_meanwhile(
        self, source: ImageSource, images: Images
    ) -> None:
        source.add(manifest(), "40")
        await fetched(images, tagged(), AMD)
        source.add(manifest({"L2": 7}), "40")
        assert (images.layers(tagged(), AMD), images.waiting) == (L1, 0)
        source.now += TAG_SECONDS
        assert (await fetched(images, tagged(), AMD), images.layers(tagged(), AMD)) == (L1, L2)

    async def test_a_tag_that_has_not_moved_costs_no_pull(self, source: ImageSource, images: Images) -> None:
        source.tells_digests = True
        body = source.add(manifest(), "40")
        for _ in range(3):
            await fetched(images, tagged(), AMD)
            assert images.layers(tagged(), AMD) == L1
            source.now += TAG_SECONDS
        # The first time the manifest follows; then it is there.
        assert [version for version, _ in source.asked] == ["40", digest_of(body), "40", "40"]
        assert images.results["fetched"] == 1

    async def test_what_was_fetched_once_is_read_from_its_file(self, source: ImageSource, tmp_path: Path) -> None:
        body = source.add(manifest())
        for result in ("fetched", "file"):
            async with running(source, files=ManifestFiles(tmp_path, 1_000_000)) as images:
                assert await fetched(images, pinned(body), AMD) is None
                assert (images.layers(pinned(body), AMD), images.results[result]) == (L1, 1)
        assert len(source.asked) == 1


class TestFailures:
    @pytest.mark.control("hostile-registries")
    async def test_a_failure_is_remembered(self, source: ImageSource, images: Images) -> None:
        for cause, seconds in RETRY_SECONDS.items():
            source.error = RegistryError(cause, "because")
            source.asked.clear()
            for _ in range(5):
                assert await fetched(images, tagged(cause), AMD) is None
            assert len(source.asked) == 1
            source.now += seconds
            await fetched(images, tagged(cause), AMD)
            assert len(source.asked) == 2
        assert images.results == {"fetched": 0, "file": 0} | {str(cause): 2 for cause in RETRY_SECONDS}

    async def test_what_is_no_manifest_is_remembered_too(self, source: ImageSource, images: Images) -> None:
        source.contents["40"] = b"{}"
        assert [await fetched(images, tagged(), AMD) for _ in range(3)] == [None] * 3
        assert (len(source.asked), images.results["invalid"]) == (1, 1)

    async def test_a_bug_does_not_end_the_others(
        self, source: ImageSource, images: Images, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("webhook.images.registry.images._RESTART_SECONDS", 0.0)
        source.add(manifest(), "41")
        source.error = KeyError("bug")
        for number in range(8):
            images.layers(tagged(f"x{number}"), AMD)
        await settle(images)
        source.error = None
        await fetched(images, tagged("41"), AMD)
        assert images.layers(tagged("41"), AMD) == L1

    @pytest.mark.control("silent-registries")
    async def test_a_registry_that_never_answers_holds_up_its_own_alone(self, source: ImageSource) -> None:
        works = ImageSource()
        source.gate = asyncio.Event()
        body = works.add(manifest(), "40")
        async with running(source, other=works) as images:
            for number in range(50):
                images.layers(tagged(f"x{number}"), AMD, PullScope("mallory"))
            # A digest belongs to no namespace: the first that names it must not keep others from reading it elsewhere.
            images.layers(pinned(body), AMD, PullScope("mallory"))
            reference = pinned(body, "other.example")
            assert images.layers(reference, AMD, PullScope("mallory")) is None
            for _ in range(500):
                await asyncio.sleep(0.002)
                if found := images.layers(reference, AMD):
                    break
            assert found == L1

    @pytest.mark.control("many-layers")
    async def test_the_layers_that_are_kept_are_bounded(
        self, source: ImageSource, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By their number, since one manifest of a tenant may have hundreds."""
        monkeypatch.setattr("webhook.images.registry.images.MAX_LAYERS", 1000)
        bodies = [manifest({f"{image}-{layer}": 1 for layer in range(300)}) for image in range(10)]
        async with running(source) as images:
            for body in bodies:
                await fetched(images, pinned(source.add(body)), AMD)
            assert [body for body in bodies if images._manifests.get(digest_of(body))] == bodies[-3:]
            # An index counts by its images.
            await fetched(images, pinned(source.add(index(**{f"a{number}": manifest() for number in range(200)}))), AMD)
            assert images._manifests.currsize <= 1000

    async def test_a_registry_that_answers_too_late_is_unavailable(
        self, source: ImageSource, images: Images, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("webhook.images.registry.images.JOB_SECONDS", 0.05)
        source.gate = asyncio.Event()
        for number in range(6):
            images.layers(tagged(f"x{number}"), AMD)
        await settle(images)
        assert images.results["unavailable"] == 6


class TestCredentials:
    @pytest.mark.control("pull-secrets-of-others")
    async def test_they_are_those_of_the_pods_own_secrets(self, source: ImageSource, images: Images) -> None:
        source.add(manifest(), "40")
        for scope in (PullScope("other", ("secret",)), SHOP):
            await fetched(images, tagged(), AMD, scope)
        assert source.asked == [("40", None), ("40", ANN)]

    @pytest.mark.control("pull-secrets-of-others")
    async def test_the_failure_of_one_namespace_is_not_that_of_another(
        self, source: ImageSource, images: Images
    ) -> None:
        body = manifest()
        source.error = RegistryError("denied", "no")
        await fetched(images, pinned(body), AMD, PullScope("mallory"))
        source.error = None
        source.add(body)
        assert await fetched(images, pinned(body), AMD, SHOP) is None
        assert images.layers(pinned(body), AMD, SHOP) == L1
        assert source.asked == [(digest_of(body), None), (digest_of(body), ANN)]

    @pytest.mark.control("pull-secrets-of-others")
    async def test_where_one_namespaces_tag_points_to_is_not_known_to_others(
        self, source: ImageSource, images: Images
    ) -> None:
        source.add(manifest(), "40")
        await fetched(images, tagged(), AMD, SHOP)
        source.error = RegistryError("denied", "no")
        for scope in (PullScope("mallory"), PullScope("mallory", ("secret",))):
            assert images.layers(tagged(), AMD, scope) is None
