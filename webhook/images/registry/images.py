"""The layers of images, from memory at once or from registries in the background.

No request waits for a registry: what is not in memory is unknown, and is fetched for the next time. Tenants choose what
is fetched by the images of their pods, so the queue is bounded, for each namespace too, failures are remembered, and a
digest is fetched once. What has been fetched is kept over restarts in a directory, each manifest in a file that is
named after its digest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from cachetools import LRUCache

from webhook.images import manifests
from webhook.images.manifests import ImageReference, Layer
from webhook.images.registry.addresses import in_thread
from webhook.images.registry.client import RETRY_SECONDS, RegistryClient, RegistryError
from webhook.images.registry.credentials import PullSecrets, RegistryCredentials, find_credentials
from webhook.lru import SizedCache

MAX_JOBS: Final = 2000
MAX_JOBS_OF_A_NAMESPACE: Final = 100


class PullScope(msgspec.Struct, frozen=True):
    """On whose behalf an image is read: a namespace, and the names of a pod's pull secrets; for nodes, neither."""

    namespace: str = ""
    secrets: tuple[str, ...] = ()

    @property
    def credentials(self) -> PullScope:
        """What distinguishes answers: without secrets all namespaces get the same."""
        return self if self.secrets else NO_SCOPE


NO_SCOPE: Final = PullScope()


class FetchJob(msgspec.Struct, frozen=True):
    """One fetch of an image, with the credentials of a scope (see `PullScope.credentials`)."""

    reference: ImageReference
    scope: PullScope


class FetchQueue:
    """Jobs that wait, each once; make it inside the running loop.

    Attributes:
        dropped: jobs that were not taken because there were too many.
    """

    def __init__(self) -> None:
        self._waiting: Final[OrderedDict[FetchJob, str]] = OrderedDict()
        self._counts: Final[dict[str, int]] = {}
        self._running: Final[set[str]] = set()
        self._changed: Final = asyncio.Event()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, job: FetchJob, namespace: str) -> None:
        """Queue a job on behalf of a namespace, unless it waits already.

        Without a namespace it is the nodes', whose images are bounded by what they can store.
        """
        if job in self._waiting:
            return
        count = self._counts.get(namespace, 0)
        if len(self._waiting) >= MAX_JOBS or (namespace and count >= MAX_JOBS_OF_A_NAMESPACE):
            self.dropped += 1
            return
        self._waiting[job] = namespace
        self._counts[namespace] = count + 1
        self._changed.set()

    async def take(self) -> FetchJob:
        """The next job; no other with the same digest, or the same tag, is given out before `done`."""
        while True:
            for job in self._waiting:
                if _target(job) not in self._running:
                    namespace = self._waiting.pop(job)
                    self._counts[namespace] -= 1
                    if not self._counts[namespace]:
                        del self._counts[namespace]
                    self._running.add(_target(job))
                    return job
            self._changed.clear()
            await self._changed.wait()

    def done(self, job: FetchJob) -> None:
        """A job has ended."""
        self._running.discard(_target(job))
        self._changed.set()


def _target(job: FetchJob) -> str:
    return job.reference.digest or str(job.reference)


# A file takes a block at least.
_BLOCK_BYTES: Final = 4096

logger = logging.getLogger(__name__)


class ManifestFiles:
    """A directory of manifests; its methods block, and may be called from several threads.

    Args:
        directory: an existing directory of the server's own.
        limit: bytes of all files at most; the oldest make room.

    Attributes:
        size: bytes of all files.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self._directory: Final = directory
        self._limit: Final = limit
        self._sizes: Final[OrderedDict[str, int]] = OrderedDict()
        self.size = 0
        self._is_broken = False
        self._lock: Final = threading.Lock()
        with contextlib.suppress(OSError):
            self._scan()

    def read(self, digest: str) -> bytes | None:
        """A manifest; None where there is none, or where the file does not have this digest any more."""
        with self._lock:
            if digest not in self._sizes:
                return None
            try:
                with self._path(digest).open("rb") as file:
                    body = file.read(manifests.MAX_BYTES + 1)
            except OSError:
                body = b""
            if manifests.digest_of(body) == digest:
                return body
            self._drop(digest)
            return None

    def write(self, digest: str, body: bytes) -> None:
        """Keep a manifest; a directory that is full or cannot be written to is logged once, and does without it."""
        size = _blocks(len(body))
        with self._lock:
            if digest in self._sizes or size > self._limit:
                return
            while self.size + size > self._limit:
                self._drop(next(iter(self._sizes)))
            try:
                with tempfile.NamedTemporaryFile(dir=self._directory, prefix=".new-", delete=False) as file:
                    file.write(body)
                # Whole or not at all, whatever ends this process.
                Path(file.name).replace(self._path(digest))
            except OSError as error:
                if not self._is_broken:
                    logger.warning("manifests cannot be kept in %s: %s", self._directory, error.strerror)
                self._is_broken = True
                return
            self._sizes[digest] = size
            self.size += size

    def _scan(self) -> None:
        files = []
        for entry in os.scandir(self._directory):
            if entry.name.startswith(".new-"):
                with contextlib.suppress(OSError):
                    Path(entry.path).unlink()
                continue
            digest = entry.name.replace("-", ":", 1)
            if manifests.is_digest(digest) and entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                files.append((status.st_mtime, digest, _blocks(status.st_size)))
        for _, digest, size in sorted(files):
            self._sizes[digest] = size
            self.size += size

    def _path(self, digest: str) -> Path:
        return self._directory / digest.replace(":", "-")

    def _drop(self, digest: str) -> None:
        self.size -= self._sizes.pop(digest)
        with contextlib.suppress(OSError):
            self._path(digest).unlink(missing_ok=True)


def _blocks(size: int) -> int:
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES


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
        self._manifests: Final = SizedCache[str, manifests.Manifest | manifests.Index](
            MAX_LAYERS, lambda each: _MANIFEST_ITSELF + len(each)
        )
        self._tags: Final = LRUCache[FetchJob, tuple[str, float]](MAX_TAGS)
        self._retries: Final = LRUCache[FetchJob, float](MAX_FAILURES)
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
            self._manifests[digest] = manifests.parse_manifest(body)
        except manifests.ManifestError as error:
            raise RegistryError("invalid", str(error)) from None
        return digest


def _pin(reference: ImageReference, digest: str) -> ImageReference:
    return ImageReference(reference.registry, reference.repository, "", digest)
