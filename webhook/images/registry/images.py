"""The layers of images, from memory at once or from registries in the background.

No request waits for a registry: what is not in memory is unknown, and is fetched for the next time. Failures are
remembered.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from cachetools import LRUCache, TLRUCache

from webhook.images import manifests
from webhook.images.manifests import ImageReference, Layer
from webhook.images.registry.addresses import in_thread
from webhook.images.registry.client import RETRY_SECONDS, RegistryClient, RegistryError
from webhook.images.registry.credentials import PullSecrets, RegistryCredentials, find_credentials
from webhook.images.registry.fetch_queue import NO_SCOPE, FetchJob, FetchQueue, PullScope
from webhook.images.registry.manifest_files import ManifestFiles

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

logger = logging.getLogger(__name__)


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
        clients: Mapping[str, RegistryClient],
        *,
        files: ManifestFiles | None = None,
        keyrings: PullSecrets | None = None,
        on_manifest: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clients: Final = clients
        self._files: Final = files
        self._keyrings: Final = keyrings
        self._on_manifest: Final = on_manifest
        self._clock: Final = clock
        # The weight of a manifest is what it takes, in layers.
        self._manifests: Final = LRUCache[str, manifests.Manifest | manifests.Index](
            MAX_LAYERS, lambda each: _MANIFEST_ITSELF + len(each)
        )
        self._tags: Final = LRUCache[FetchJob, tuple[str, float]](MAX_TAGS)
        self._retries: Final = TLRUCache[FetchJob, float](MAX_FAILURES, lambda _, until, _now: until, clock)
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
        """The layers of an image on a platform, ``OS/ARCHITECTURE``.

        None: they are not known, and are fetched unless that failed lately.
        """
        if not self.is_listed(reference):
            return None
        digest = reference.digest
        if not digest:
            job = FetchJob(reference, scope.credentials)
            digest, until = self._tags.get(job) or ("", 0.0)
            if self._clock() >= until:
                self._want(job, scope)
            if not digest:
                return None
        manifest = self._manifest(_pin(reference, digest), scope)
        if isinstance(manifest, dict):
            inner = manifest.get(platform)
            if inner is None:
                return ()
            manifest = self._manifest(_pin(reference, inner), scope)
        # An index in an index would be one hop more for its author to choose.
        return manifest if isinstance(manifest, tuple) else None

    def lacking(self, digest: str, platform: str) -> str:
        """The digest of the manifest that is missing, where `layers` returned None for a reference with a digest."""
        manifest = self._manifests.get(digest)
        return manifest.get(platform, digest) if isinstance(manifest, dict) else digest

    async def run(self) -> None:
        """Fetch what is queued until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for queue in self.queues.values():
                for _ in range(WORKERS):
                    workers.create_task(self._work(queue))

    def _manifest(self, reference: ImageReference, scope: PullScope) -> manifests.Manifest | manifests.Index | None:
        manifest = self._manifests.get(reference.digest)
        if manifest is None:
            self._want(FetchJob(reference, scope.credentials), scope)
        return manifest

    def _want(self, job: FetchJob, scope: PullScope) -> None:
        if job not in self._retries:
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
        self._retries[job] = self._clock() + RETRY_SECONDS[error.cause]
        # Neither the repository nor the tag: tenants write them.
        logger.info("manifest of an image at %s not fetched: %s", job.reference.registry, error.why)

    async def _fetch(self, job: FetchJob) -> None:
        reference, registry = job.reference, self._clients[job.reference.registry]
        if reference.digest and self._manifests.get(reference.digest) is not None:
            # Another scope has brought it meanwhile.
            return
        credentials = None
        if self._keyrings and job.scope.secrets:
            keyring = await self._keyrings.keyring(job.scope.namespace, job.scope.secrets)
            credentials = find_credentials(keyring, reference.registry, reference.repository)
        digest = "" if reference.digest else await registry.digest(reference, credentials)
        if digest:
            # A job of its own, so that each digest is fetched once.
            self._manifest(_pin(reference, digest), job.scope)
        else:
            digest = await self._read(reference, credentials)
            self._on_manifest(digest)
        if not reference.digest:
            self._tags[job] = digest, self._clock() + TAG_SECONDS

    async def _read(self, reference: ImageReference, credentials: RegistryCredentials | None) -> str:
        """Read a manifest from its file or the registry; returns its digest."""
        body = None
        if self._files is not None and reference.digest:
            body = await in_thread(partial(self._files.read, reference.digest))
        self.results["file"] += body is not None
        if body is None:
            body = await self._clients[reference.registry].manifest(reference, credentials)
            self.results["fetched"] += 1
            if self._files is not None:
                await in_thread(partial(self._files.write, manifests.digest_of(body), body))
        digest = manifests.digest_of(body)
        try:
            manifest = manifests.parse_manifest(body)
        except manifests.ManifestError as error:
            raise RegistryError("invalid", str(error)) from None
        with suppress(ValueError):  # It is larger than all may be.
            self._manifests[digest] = manifest
        return digest


def _pin(reference: ImageReference, digest: str) -> ImageReference:
    return ImageReference(reference.registry, reference.repository, "", digest)
