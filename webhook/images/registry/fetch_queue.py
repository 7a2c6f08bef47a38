"""Fetches of images that wait.

Tenants choose what is fetched by the images of their pods, so the queue is bounded, for each namespace too, and a
digest is fetched once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

import msgspec

from webhook.images.manifests import ImageReference

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
