"""The layers of images, from memory at once or from registries in the background.

No request waits for a registry: what is not in memory is unknown, and is fetched for the next time. Tenants choose what
is fetched by the images of their pods, so the queue is bounded, for each namespace too, failures are remembered, and a
digest is fetched once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from webhook.images.manifests import Index, Layer, Manifest, ManifestError, digest_of, parse_manifest
from webhook.images.references import ImageReference
from webhook.images.registry.credentials import Keyring, RegistryCredentials
from webhook.images.registry.failure import RETRY_SECONDS, RegistryError
from webhook.images.registry.fetch_queue import NO_SCOPE, FetchJob, FetchQueue, PullScope
from webhook.images.registry.manifest_files import ManifestFiles
from webhook.images.registry.threads import in_thread

logger = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

# Of all manifests in memory: 200 bytes each. What was used longest ago is read again, from its file if there are files.
MAX_LAYERS: Final = 100_000
_MANIFEST_ITSELF: Final = 10
MAX_TAGS: Final = 10_000
MAX_FAILURES: Final = 10_000
# For each registry, so that one that hangs holds up no other.
WORKERS: Final = 4
# A tag may move; a pod that is placed by the old image is placed no worse than without.
TAG_SECONDS: Final = 600.0
# All of one fetch: requests, redirects and authentication.
JOB_SECONDS: Final = 30.0
_RESTART_SECONDS: Final = 5.0


class Fetcher(Protocol):
    """A client of one registry, as `webhook.images.registry.client.RegistryClient` is one."""

    async def manifest(self, reference: ImageReference, credentials: RegistryCredentials | None = None) -> bytes:
        """The bytes of a manifest or an index.

        Raises:
            RegistryError: there is none, or it cannot be read.
        """

    async def digest(self, reference: ImageReference, credentials: RegistryCredentials | None = None) -> str:
        """The digest to which a tag points; empty where the registry does not say it.

        Raises:
            RegistryError: there is no such tag, or it cannot be read.
        """


class Keyrings(Protocol):
    """Where the credentials of pods come from."""

    async def keyring(self, namespace: str, names: tuple[str, ...]) -> Keyring:
        """The credentials in Secrets of a namespace."""


class _Recent(Generic[K, V]):
    """A mapping of the most recently used keys.

    Args:
        most: the weight of all values at most.
        weigh: the weight of a value, at least 1; by default 1.

    Attributes:
        weight: that of all values.
    """

    def __init__(self, most: int, weigh: Callable[[V], int] = lambda _: 1) -> None:
        self._most: Final = most
        self._weigh: Final = weigh
        self._kept: Final[OrderedDict[K, V]] = OrderedDict()
        self.weight = 0

    def get(self, key: K) -> V | None:
        value = self._kept.get(key)
        if value is not None:
            self._kept.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        before = self._kept.pop(key, None)
        self.weight += self._weigh(value) - (0 if before is None else self._weigh(before))
        self._kept[key] = value
        while self.weight > self._most:
            _, oldest = self._kept.popitem(last=False)
            self.weight -= self._weigh(oldest)


def _weight_of(found: Manifest | Index) -> int:
    """What a manifest takes, in layers."""
    return _MANIFEST_ITSELF + (len(found.layers) if isinstance(found, Manifest) else len(found.images))


class Images:
    """The layers of images; make it inside the running loop.

    Args:
        clients: by the name of the registry; no other is contacted.
        files: where manifests are kept beyond a restart; None: nowhere.
        keyrings: credentials of pods; None: all images are read without.
        on_manifest: gets the digest of a manifest or an index that has become known.
        clock: the source of monotonic time.

    Attributes:
        queues: what is to be fetched, by registry.
        results: fetches by result: ``fetched``, ``file``, and the causes of failures.
    """

    def __init__(
        self,
        clients: Mapping[str, Fetcher],
        *,
        files: ManifestFiles | None = None,
        keyrings: Keyrings | None = None,
        on_manifest: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clients: Final = clients
        self._files: Final = files
        self._keyrings: Final = keyrings
        self._on_manifest: Final = on_manifest
        self._clock: Final = clock
        self._manifests: Final[_Recent[str, Manifest | Index]] = _Recent(MAX_LAYERS, _weight_of)
        self._tags: Final[_Recent[FetchJob, tuple[str, float]]] = _Recent(MAX_TAGS)
        self._retries: Final[_Recent[FetchJob, float]] = _Recent(MAX_FAILURES)
        self.queues: Final = {registry: FetchQueue() for registry in clients}
        self.results: Final[dict[str, int]] = {"fetched": 0, "file": 0, **dict.fromkeys(RETRY_SECONDS, 0)}

    @property
    def waiting(self) -> int:
        """Manifests that wait to be fetched."""
        return sum(map(len, self.queues.values()))

    @property
    def dropped(self) -> int:
        """Manifests that were not queued because too many waited."""
        return sum(queue.dropped for queue in self.queues.values())

    def is_listed(self, reference: ImageReference) -> bool:
        """Whether the registry of an image may be contacted."""
        return reference.registry in self._clients

    def layers(self, reference: ImageReference, platform: str, scope: PullScope = NO_SCOPE) -> tuple[Layer, ...] | None:
        """The layers of an image on a platform; None: they are not known, and are fetched unless that failed lately.

        Args:
            reference: the image.
            platform: ``OS/ARCHITECTURE``.
            scope: on whose behalf it is read.
        """
        if not self.is_listed(reference):
            return None
        digest = reference.digest or self._digest_of_tag(reference, scope)
        if not digest:
            return None
        found = self._manifest(_pin(reference, digest), scope)
        if isinstance(found, Index):
            inner = found.images.get(platform)
            if inner is None:
                return ()
            found = self._manifest(_pin(reference, inner), scope)
        # An index in an index would be one hop more for its author to choose.
        return found.layers if isinstance(found, Manifest) else None

    def lacking(self, digest: str, platform: str) -> str:
        """The digest of the manifest that is missing, where `layers` returned None for a reference with a digest."""
        found = self._manifests.get(digest)
        return found.images.get(platform, digest) if isinstance(found, Index) else digest

    async def run(self) -> None:
        """Fetch what is queued until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for queue in self.queues.values():
                for _ in range(WORKERS):
                    workers.create_task(self._work(queue))

    def _digest_of_tag(self, reference: ImageReference, scope: PullScope) -> str:
        job = FetchJob(reference, scope.credentials)
        digest, until = self._tags.get(job) or ("", 0.0)
        if self._clock() >= until:
            self._want(job, scope)
        return digest

    def _manifest(self, reference: ImageReference, scope: PullScope) -> Manifest | Index | None:
        found = self._manifests.get(reference.digest)
        if found is None:
            self._want(FetchJob(reference, scope.credentials), scope)
        return found

    def _want(self, job: FetchJob, scope: PullScope) -> None:
        if self._clock() >= (self._retries.get(job) or 0.0):
            self.queues[job.reference.registry].add(job, scope.namespace)

    async def _work(self, queue: FetchQueue) -> None:
        while True:
            job = await queue.take()
            try:
                async with asyncio.timeout(JOB_SECONDS):
                    await self._fetch(job)
            except RegistryError as error:
                self._fail(job, error)
            except TimeoutError:
                self._fail(job, RegistryError("unavailable", f"the registry did not answer within {JOB_SECONDS:.0f}s"))
            except Exception:
                # A bug must not end the fetches of all other images.
                logger.exception("internal error while an image's manifest was fetched")
                await asyncio.sleep(_RESTART_SECONDS)
            finally:
                queue.done(job)

    def _fail(self, job: FetchJob, error: RegistryError) -> None:
        self.results[error.cause] += 1
        self._retries.put(job, self._clock() + RETRY_SECONDS[error.cause])
        # Neither the repository nor the tag: tenants write them.
        logger.info("manifest of an image at %s not fetched: %s", job.reference.registry, error.why)

    async def _fetch(self, job: FetchJob) -> None:
        reference, registry = job.reference, self._clients[job.reference.registry]
        if reference.digest and self._manifests.get(reference.digest) is not None:
            # Another scope has brought it meanwhile.
            return
        credentials = await self._credentials(job)
        digest = "" if reference.digest else await registry.digest(reference, credentials)
        if digest:
            # A job of its own, so that each digest is fetched once.
            self._manifest(_pin(reference, digest), job.scope)
        else:
            digest = await self._read(reference, credentials)
            self._on_manifest(digest)
        if not reference.digest:
            self._tags.put(job, (digest, self._clock() + TAG_SECONDS))

    async def _read(self, reference: ImageReference, credentials: RegistryCredentials | None) -> str:
        """Read a manifest from its file or the registry; returns its digest."""
        body = await self._from_file(reference)
        if body is None:
            body = await self._clients[reference.registry].manifest(reference, credentials)
            self.results["fetched"] += 1
            if self._files is not None:
                await in_thread(partial(self._files.write, digest_of(body), body))
        digest = digest_of(body)
        try:
            self._manifests.put(digest, parse_manifest(body))
        except ManifestError as error:
            raise RegistryError("invalid", error.why) from None
        return digest

    async def _from_file(self, reference: ImageReference) -> bytes | None:
        if self._files is None or not reference.digest:
            return None
        body = await in_thread(partial(self._files.read, reference.digest))
        self.results["file"] += body is not None
        return body

    async def _credentials(self, job: FetchJob) -> RegistryCredentials | None:
        reference, scope = job.reference, job.scope
        if not self._keyrings or not scope.secrets:
            return None
        keyring = await self._keyrings.keyring(scope.namespace, scope.secrets)
        return keyring.find(reference.registry, reference.repository)


def _pin(reference: ImageReference, digest: str) -> ImageReference:
    return ImageReference(reference.registry, reference.repository, "", digest)
