"""Reads what the cluster's CustomResourceDefinitions say of KubeVirt's kinds, again whenever KubeVirt is updated."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from webhook.errors import Unavailable
from webhook.k8s.client.api import Transport, fetch
from webhook.k8s.client.clock import Clock
from webhook.kubevirt.definitions import DEFINITIONS, NAMES, Definition, fields_of
from webhook.kubevirt.releases.fields import Definitions

logger = logging.getLogger(__name__)

# Of all definitions together, and between two attempts where they could not be read.
READ_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 60.0

# What KubeVirt's operator writes into the KubeVirt object; its definitions change with it.
Versions = tuple[str, str, str]


async def read_definitions(transport: Transport, seconds: float) -> Definitions | Unavailable | None:
    """What the cluster's definitions say, read in so many seconds; None where they are not there or list no fields."""
    reads = await asyncio.gather(*(fetch(transport, DEFINITIONS, "", name, seconds) for name in NAMES.values()))
    unavailable = next((read for read in reads if isinstance(read, Unavailable)), None)
    return unavailable or fields_of(read for read in reads if isinstance(read, Definition))


class DefinitionReader:
    """Keeps what the definitions say in step with the version of KubeVirt, by GETs and without a watch.

    Args:
        transport: the connection to the API server.
        versions: the versions that the KubeVirt object names now; None: there is none.
        learn: gets what has been read, with the versions at which it was; None in place of it: the tables count.
        clock: the source of time, and of sleep.
    """

    def __init__(
        self,
        transport: Transport,
        versions: Callable[[], Versions | None],
        learn: Callable[[Versions, Definitions | None], None],
        clock: Clock,
    ) -> None:
        self._transport: Final = transport
        self._versions: Final = versions
        self._learn: Final = learn
        self._clock: Final = clock
        self._changed: Final = asyncio.Event()
        self._read_at: Versions | None = None
        self._problem = ""

    def notice(self) -> None:
        """The KubeVirt object may name other versions now."""
        self._changed.set()

    def start_over(self) -> None:
        """Read the definitions again, whatever the KubeVirt object names: etcd has been restored from an older copy."""
        self._read_at = None
        self._changed.set()

    @property
    def is_current(self) -> bool:
        """Whether an attempt has been made, successful or not, since the KubeVirt object named other versions."""
        return self._read_at == self._versions()

    async def run(self) -> None:
        """Read whenever it is needed, without an end."""
        while True:
            if not self.is_current or self._problem:
                await self._read()
            waits = [self._changed.wait(), *([self._clock.sleep(RETRY_SECONDS)] if self._problem else ())]
            tasks = [asyncio.ensure_future(wait) for wait in waits]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
            self._changed.clear()

    async def _read(self) -> None:
        versions = self._versions()
        if versions is None:
            self._read_at, self._problem = None, ""
            return
        answer = await read_definitions(self._transport, READ_SECONDS)
        problem = answer.why if isinstance(answer, Unavailable) else ""
        if problem and problem != self._problem:
            logger.warning("KubeVirt's fields are taken from tables by version: %s", problem)
        self._read_at, self._problem = versions, problem
        self._learn(versions, None if isinstance(answer, Unavailable) else answer)
