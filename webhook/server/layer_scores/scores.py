"""The scheduler extender for image layers, put together: the watch of nodes, registries, and the listener."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from certs import files
from certs.handshake import verifying
from certs.pem import MAX_BYTES
from webhook.errors import InputError
from webhook.images.registry.client import RegistryClient
from webhook.images.registry.credentials import PullSecrets
from webhook.images.registry.images import Images
from webhook.images.registry.manifest_files import ManifestFiles
from webhook.images.registry.node_layers import NodeLayers
from webhook.server.answers import TrafficObserver
from webhook.server.layer_scores.extender import PATH, Extender
from webhook.server.listener import SHUTDOWN_SECONDS, serving
from webhook.server.ops import StateMetric
from webhook.server.part import Connect, ServingCertificates
from webhook.server.tasks import keep_until
from webhook.settings.model import LayersSettings, RegistrySettings


class LayerScores(msgspec.Struct):
    """What scores layers.

    Attributes:
        nodes: gets the nodes from their watch.
        secrets: reads pull secrets; None: nothing does.
        extender: answers kube-scheduler, once it listens.
    """

    nodes: NodeLayers
    images: Images
    secrets: PullSecrets | None
    extender: Extender | None = None

    @asynccontextmanager
    async def listening(
        self, settings: LayersSettings, certificates: ServingCertificates, traffic: TrafficObserver
    ) -> AsyncIterator[str]:
        """A listener for as long as the context lasts; gives its URL.

        Exceptions go to ``traffic``.

        Raises:
            InputError: nothing can listen there, or the client CA cannot be used.
        """
        tls: ssl.SSLContext | None = None
        if settings.client_ca_file:
            tls = await certificates.listener_for(Path(settings.client_ca_file), "layers.clientCaFile")
        self.extender = Extender(
            self.nodes.index,
            self.images,
            settings.schedulers,
            traffic,
            clients=settings.client_names,
            pull_secrets=settings.pull_secrets,
        )
        async with serving(self.extender.listener(), settings.listen, tls, "layers.listen", SHUTDOWN_SECONDS) as bound:
            yield f"{'https' if tls else 'http'}://{bound}{PATH.rpartition('/')[0]}"

    def metrics(self) -> tuple[StateMetric, ...]:
        """The gauges and counters."""
        index, images = self.nodes.index, self.images
        waiting = "Manifests of images that wait to be fetched."
        node_images = "Images on nodes, by whether their layers are known."
        at_limit = "Nodes that list as many images as the kubelet lists by default, and probably have more."
        dropped = "Manifests not fetched because too many were waiting."
        requests, fetches = "Requests of kube-scheduler by result.", "Fetches of manifests by result."
        secrets, by_result = "Pull secrets that could not be read.", ("result",)

        def layers() -> dict[str, float]:
            return {"known": index.known_images, "unknown": index.unknown_images}

        def failures() -> float | dict[str, float]:
            return self.secrets.failures if self.secrets else {}

        def answered() -> dict[str, int]:
            return self.extender.results if self.extender else {}

        return (
            StateMetric("kubevirt_webhook_layers_queue_length", waiting, lambda: images.waiting),
            StateMetric("kubevirt_webhook_layers_images", node_images, layers, ("layers",)),
            StateMetric("kubevirt_webhook_layers_nodes_at_image_limit", at_limit, lambda: len(self.nodes.cut)),
            StateMetric("kubevirt_webhook_layers_requests_total", requests, answered, by_result),
            StateMetric("kubevirt_webhook_layers_fetches_total", fetches, lambda: images.results, by_result),
            StateMetric("kubevirt_webhook_layers_fetches_dropped_total", dropped, lambda: images.dropped),
            StateMetric("kubevirt_webhook_layers_pull_secret_failures_total", secrets, failures),
        )


@asynccontextmanager
async def open_layer_scores(connect: Connect, settings: LayersSettings) -> AsyncIterator[LayerScores]:
    """The scores of layers for as long as the context lasts, without the listener.

    Raises:
        InputError: the settings cannot be used, or those of the connection for pull secrets.
    """
    cache = _cache(settings)
    contexts = {name: _context(name, registry) for name, registry in settings.registries.items()}
    nodes = NodeLayers(settings.registries)
    async with AsyncExitStack() as ends:
        secrets = None
        if settings.pull_secrets:
            secrets = PullSecrets(await connect(ends))
        clients = {}
        for name, registry in settings.registries.items():
            client = clients[name] = RegistryClient(name, registry, tls=contexts[name], own=nodes.own)
            ends.push_async_callback(client.close)
        images = Images(clients, files=cache, keyrings=secrets, on_manifest=nodes.on_manifest)
        nodes.use(images)
        for work in (images, nodes):
            keep_until(ends, work.run, f"{type(work).__name__}: internal error; retrying")
        yield LayerScores(nodes, images, secrets)


def _cache(settings: LayersSettings) -> ManifestFiles | None:
    directory = Path(settings.cache_directory)
    if settings.cache_directory and not directory.is_dir():
        fix = "create it, or mount a volume"
        raise InputError(f"{settings.cache_directory} is not a directory", "layers.cacheDirectory", fix)
    return ManifestFiles(directory, settings.cache_bytes) if settings.cache_directory else None


def _context(name: str, registry: RegistrySettings) -> ssl.SSLContext | None:
    if not registry.ca_file:
        return None
    try:
        return verifying(files.read(registry.ca_file, MAX_BYTES))
    except files.FileError as error:
        what = f"{registry.ca_file} {error.what}"
    except (ssl.SSLError, ValueError):
        what = f"{registry.ca_file} holds no valid CA certificates"
    raise InputError(what, f"layers.registries.{name}.caFile", "use a PEM file of CA certificates")
