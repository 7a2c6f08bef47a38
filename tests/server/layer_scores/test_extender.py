"""The extender's answers to kube-scheduler."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from pytest_aiohttp import AiohttpClient

from tests.server.conftest import MOST_AHEAD, CountedServer, GuardedServer, listening_on_loopback
from tests.server.raw_requests import head
from tests.waiting import PATIENCE
from webhook.images.index import LayerIndex
from webhook.images.manifests import ImageReference, Layer
from webhook.images.registry.fetch_queue import PullScope
from webhook.server.answers import RequestDenied
from webhook.server.layer_scores.extender import MAX_BODY_BYTES, MAX_LAYERS, PATH, Extender
from webhook.server.listener import split_address

AMD, ARM = "linux/amd64", "linux/arm64"
DISK = "quay.io/disk:40"

Client = TestClient[Any, Any]


class Known:
    """Layers by repository and platform."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, str], tuple[Layer, ...]] = {("disk", AMD): (Layer("L1", 30), Layer("L2", 70))}
        self.asked: list[tuple[str, str, PullScope]] = []
        self.error: Exception | None = None

    def is_listed(self, reference: ImageReference) -> bool:
        return reference.registry == "quay.io"

    def layers(
        self, reference: ImageReference, platform: str, scope: PullScope | None = None
    ) -> tuple[Layer, ...] | None:
        assert scope
        self.asked.append((str(reference), platform, scope))
        if self.error:
            raise self.error
        return self.of.get((reference.repository, platform))


def body(
    *, scheduler: str = "kubevirt", images: tuple[str, ...] = (DISK,), nodes: Any = ("a", "b"), **spec: Any
) -> bytes:
    containers = [{"name": f"c{number}", "image": image} for number, image in enumerate(images)]
    pod = {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"schedulerName": scheduler, "containers": containers, **spec},
    }
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": nodes}).encode()


class ExtenderWorld:
    def __init__(self, **options: Any) -> None:
        self.index, self.known, self.counted = LayerIndex(), Known(), CountedServer()
        for image in self.index.put("a", AMD, ["one"]):
            self.index.learn(image, [Layer("L1", 30)])
        self.index.put("b", AMD, [])
        known: Any = self.known
        self.extender = Extender(self.index, known, ["kubevirt"], self.counted, **options)

    def scores(self, request: bytes) -> dict[str, int]:
        return {each["Host"]: each["Score"] for each in json.loads(self.extender.prioritize(request))}


@pytest.fixture
def world() -> ExtenderWorld:
    return ExtenderWorld()


class TestPrioritize:
    def test_nodes_score_by_the_bytes_that_they_have(self, world: ExtenderWorld) -> None:
        assert (world.scores(body()), world.extender.results["scored"]) == ({"a": 3}, 1)

    def test_pods_of_other_schedulers_get_nothing_at_once(self, world: ExtenderWorld) -> None:
        assert world.extender.prioritize(body(scheduler="default-scheduler")) == b"[]"
        assert (world.extender.prioritize(b'{"Pod": {}}'), world.known.asked) == (b"[]", [])
        assert world.extender.results["other-scheduler"] == 2

    def test_what_is_unknown_counts_for_nothing(self, world: ExtenderWorld) -> None:
        assert world.extender.prioritize(body(images=("quay.io/unknown:1",))) == b"[]"
        assert world.scores(body(images=("quay.io/unknown:1", DISK))) == {"a": 3}
        assert world.extender.results["no-scores"] == 1

    def test_images_that_no_list_has_are_not_asked_for(self, world: ExtenderWorld) -> None:
        world.extender.prioritize(body(images=("evil.example/disk:40", "not a reference", "quay.io/../x")))
        assert world.known.asked == []

    def test_only_platforms_that_the_pod_selects_count(self, world: ExtenderWorld) -> None:
        for image in world.index.put("arm", ARM, ["two"]):
            world.index.learn(image, [Layer("L9", 10)])
        world.known.of["disk", ARM] = (Layer("L9", 10),)
        nodes = ["a", "arm"]
        assert world.scores(body(nodes=nodes)) == {"a": 3, "arm": 10}
        assert world.scores(body(nodes=nodes, nodeSelector={"kubernetes.io/arch": "arm64"})) == {"arm": 10}
        assert world.scores(body(nodes=nodes, nodeSelector={"kubernetes.io/arch": "s390x"})) == {}

    @pytest.mark.parametrize(
        "request_body",
        [
            *(b"", b"null", b"{}", b"[" * 100_000, b'{"Pod": 1}', b"\xff", b'{"Pod": {"spec": {"containers": 1}}}'),
            *(body(nodes=nodes) for nodes in (None, 5, {"a": 1})),
            b'{"Pod": {"spec": {"schedulerName": "kubevirt"}}, "NodeNames": ' + b"[" * 100_000,
        ],
    )
    def test_what_kube_scheduler_would_not_send_is_an_error(self, world: ExtenderWorld, request_body: bytes) -> None:
        with pytest.raises(RequestDenied) as caught:
            world.extender.prioritize(request_body)
        assert caught.value.status == 400

    @pytest.mark.control("many-layers")
    def test_the_layers_of_one_pod_are_bounded(self, world: ExtenderWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        """A tenant's pod may have 64 images of 512 layers each; the scheduler waits for the answer."""
        for number in range(64):
            layers = tuple(Layer(f"L{number}-{layer}", 1) for layer in range(512))
            world.known.of[f"disk{number}", AMD] = layers
            for image in world.index.put("b", AMD, [f"image-{one}" for one in range(number + 1)]):
                world.index.learn(image, layers)
        wanted: list[int] = []
        real = world.index.answer

        def answer(asked: dict[str, dict[str, int]], names: Any) -> bytes:
            wanted.append(sum(map(len, asked.values())))
            return real(asked, names)

        monkeypatch.setattr(world.index, "answer", answer)
        assert world.scores(body(images=tuple(f"quay.io/disk{number}:1" for number in range(64)))) == {"b": 10}
        assert wanted == [MAX_LAYERS]

    def test_names_that_are_none_are_an_error_once_they_are_read(self, world: ExtenderWorld) -> None:
        for number in range(10):
            world.index.put(f"n{number}", AMD, ["one"])
        assert world.scores(body(nodes=["n3"])) == {"n3": 3}
        with pytest.raises(RequestDenied) as caught:
            world.extender.prioritize(body(nodes=[1]))
        assert caught.value.status == 400

    @pytest.mark.parametrize(("pull_secrets", "expected"), [(False, ()), (True, ("one", "two"))])
    def test_pull_secrets_are_read_only_if_the_admin_says_so(
        self, pull_secrets: bool, expected: tuple[str, ...]
    ) -> None:
        world = ExtenderWorld(pull_secrets=pull_secrets)
        world.extender.prioritize(body(imagePullSecrets=[{"name": "one"}, {"name": "two"}]))
        assert [scope for _, _, scope in world.known.asked] == [PullScope("shop", expected)]


async def client_of(world: ExtenderWorld, aiohttp_client: AiohttpClient) -> Client:
    return await aiohttp_client(GuardedServer(listening_on_loopback(world.extender.listener())))


@pytest.fixture
async def client(world: ExtenderWorld, aiohttp_client: AiohttpClient) -> Client:
    return await client_of(world, aiohttp_client)


async def answered(
    client: Client, data: Any, path: str = PATH, method: str = "POST", **headers: str
) -> tuple[int, str]:
    async with client.request(method, path, data=data, headers=headers) as response:
        return response.status, await response.text()


class TestHttp:
    @pytest.mark.parametrize("others", [(), [f"{number:04}-{'x' * 200}" for number in range(5000)]], ids=["", "many"])
    async def test_kube_scheduler_is_answered(self, client: Client, others: list[str]) -> None:
        for _ in range(3):
            async with client.post(PATH, data=body(nodes=[*others, "a", "b"])) as response:
                assert (response.status, response.content_type) == (200, "application/json")
                assert await response.json() == [{"Host": "a", "Score": 3}]

    @pytest.mark.parametrize(
        ("method", "path", "data", "status"),
        [
            *(("POST", "/", body(), 404), ("POST", "/v1/layers/filter", body(), 404), ("GET", PATH, b"", 405)),
            *(("POST", PATH, b"{}", 400), ("POST", PATH, body(nodes=None), 400)),
            ("POST", PATH, b" " * (MAX_BODY_BYTES + 1), 413),
        ],
    )
    async def test_other_requests_are_told_what_to_do(
        self, client: Client, world: ExtenderWorld, method: str, path: str, data: bytes, status: int
    ) -> None:
        got, text = await answered(client, io.BytesIO(data), path, method)
        assert got == status
        assert text.endswith("\n")
        assert world.extender.results["rejected"] == 1

    async def test_bodies_without_an_end_encoded_or_late_are_not_taken(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def pour() -> AsyncIterator[bytes]:
            for _ in range(MAX_BODY_BYTES // 65_536 + 2):
                yield b" " * 65_536

        assert (await answered(client, pour()))[0] == 411
        assert (await answered(client, b"x", **{"Content-Encoding": "gzip"}))[0] == 415
        monkeypatch.setattr("webhook.server.layer_scores.extender.PATIENCE_SECONDS", 0.05)
        url = client.make_url(PATH)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert (await reader.readline()).split()[1] == b"408"
        writer.close()

    async def test_a_bug_is_an_error_that_kube_scheduler_passes_over(
        self, client: Client, world: ExtenderWorld
    ) -> None:
        world.known.error = KeyError("bug")
        status, text = await answered(client, body())
        assert (status, "bug" in text, len(world.counted.crashes)) == (500, False, 1)


async def test_of_requests_sent_ahead_one_at_a_time_is_taken(world: ExtenderWorld) -> None:
    listener, pod = world.extender.listener(), body()
    async with listening_on_loopback(listener):
        reader, writer = await asyncio.open_connection(*split_address(listener.address))
        writer.write((head(len(pod), PATH) + pod) * 5000)
        for number in range(5000):
            await asyncio.wait_for(reader.readuntil(b"HTTP/1.1 200 OK"), PATIENCE)
            assert (listener.in_flight <= 1, listener.request_bytes <= MOST_AHEAD) == (True, True), number
        writer.transport.abort()
    assert world.extender.results["scored"] == 5000


@pytest.mark.control("strangers-ask-for-scores")
async def test_without_a_certificate_nobody_is_answered(aiohttp_client: AiohttpClient) -> None:
    world = ExtenderWorld(clients=["system:kube-scheduler"])
    assert (await answered(await client_of(world, aiohttp_client), body()))[0] == 403
    assert world.known.asked == []
