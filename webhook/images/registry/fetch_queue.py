"""What is to be fetched from one registry, in the order of requests: bounded, and for each namespace too."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

import msgspec

from webhook.images.references import ImageReference

MAX_JOBS: Final = 2000
MAX_JOBS_OF_A_NAMESPACE: Final = 100


class PullScope(msgspec.Struct, frozen=True):
    """On whose behalf an image is read.

    Attributes:
        namespace: the namespace of the pod; empty for images that nodes list, which are read without credentials.
        secrets: the names of the pod's pull secrets.
    """

    namespace: str = ""
    secrets: tuple[str, ...] = ()

    @property
    def credentials(self) -> PullScope:
        """What distinguishes answers: without secrets all namespaces get the same."""
        return self if self.secrets else NO_SCOPE


NO_SCOPE: Final = PullScope()


class FetchJob(msgspec.Struct, frozen=True):
    """One fetch.

    Attributes:
        reference: the image.
        scope: whose credentials are used; see `PullScope.credentials`.
    """

    reference: ImageReference
    scope: PullScope


class FetchQueue:
    """Jobs that wait, each once; make it inside the running loop.

    Args:
        most: jobs that may wait.
        most_of_a_namespace: jobs that may wait on behalf of one namespace.

    Attributes:
        dropped: jobs that were not taken because there were too many.
    """

    def __init__(self, most: int = MAX_JOBS, most_of_a_namespace: int = MAX_JOBS_OF_A_NAMESPACE) -> None:
        self._most: Final = most
        self._most_of_a_namespace: Final = most_of_a_namespace
        self._waiting: Final[OrderedDict[FetchJob, str]] = OrderedDict()
        self._counts: Final[dict[str, int]] = {}
        self._running: Final[set[str]] = set()
        self._changed: Final = asyncio.Event()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, job: FetchJob, namespace: str) -> None:
        """Queue a job, unless it waits already.

        Args:
            job: the job.
            namespace: on whose behalf; empty: the nodes', whose images are bounded by what they can store.
        """
        if job in self._waiting:
            return
        count = self._counts.get(namespace, 0)
        if len(self._waiting) >= self._most or (namespace and count >= self._most_of_a_namespace):
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
                    self._leave(job)
                    self._running.add(_target(job))
                    return job
            self._changed.clear()
            await self._changed.wait()

    def done(self, job: FetchJob) -> None:
        """A job has ended."""
        self._running.discard(_target(job))
        self._changed.set()

    def _leave(self, job: FetchJob) -> None:
        namespace = self._waiting.pop(job)
        self._counts[namespace] -= 1
        if not self._counts[namespace]:
            del self._counts[namespace]


def _target(job: FetchJob) -> str:
    return job.reference.digest or str(job.reference)
