"""The fidelity check: samples of the running VMs, compared with what KubeVirt's rules, as implemented, make of them.

It runs beside admission and must never disturb it: it has its own connection, sends one request after the other with
pauses between, and any error ends the round with a line in the log. The next round starts afresh.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

from webhook.admission.audit import SCHEMA, AuditedObject, DifferingField, FidelityRecord, timestamp
from webhook.admission.step_budget import StepBudget, TooComplex
from webhook.errors import InputError, Unavailable
from webhook.k8s.client.api import READ_ERRORS, Transport, fetch, list_failure
from webhook.k8s.client.clock import REAL_TIME, Clock
from webhook.k8s.client.list_pages import pages
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import StoredObject, Unstructured
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.resources import STARTED_VMS, STORED_VMIS, STORED_VMS, UNSTRUCTURED
from webhook.kubevirt.vm import fidelity
from webhook.kubevirt.vm.fidelity import Incomparable
from webhook.policies.instancetypes.settings import FidelitySettings

RESULTS: Final = ("same", "different", "skipped")

# Pause between two looks whether a round is due, and whether the check is switched on.
_TICK_SECONDS: Final = 30.0
# Between two pages of a list and between two VMs: a slow check takes nothing from reviews.
_PAUSE_SECONDS: Final = 0.25
_PAGE_LIMIT: Final = 100
_GET_SECONDS: Final = 10.0
_LIST_SECONDS: Final = 60.0
_FIELDS_SHOWN: Final = 50

_REVISIONS: Final = UNSTRUCTURED["ControllerRevision"]

logger = logging.getLogger(__name__)


class _RoundGivenUp(Exception):  # noqa: N818 - ends a round
    pass


@dataclass(eq=False, repr=False)
class FidelityCheck:
    """Compares samples of the running VMs with KubeVirt's rules, round by round.

    Args:
        transport: the connection to the API server; the caller closes it.
        configuration: returns KubeVirt's present configuration; None: there is no KubeVirt.
        settings: returns the present section, once a round.
        audit: gets a record of every VM that differs.
        clock: the source of time, and of sleep.
        chance: picks the sample, and the time of the first round.

    Attributes:
        checked: VMs by result, one of `RESULTS`.
        differing: fields that differed, of all VMs.
        failed: rounds that did not complete.
    """

    transport: Transport
    configuration: Callable[[], ClusterConfig | Unavailable | None]
    settings: Callable[[], FidelitySettings]
    audit: Callable[[FidelityRecord], None]
    _: KW_ONLY
    clock: Clock = REAL_TIME
    # Replicas must not choose the same VMs at the same time; nothing here is a secret.
    chance: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self.checked = Counter(dict.fromkeys(RESULTS, 0))
        self.differing = self.failed = 0

    async def run(self) -> None:
        """Compare VMs indefinitely; ends when it is cancelled."""
        began = self.clock.now() - self.chance.random() * 60.0 * self.settings().every_minutes
        while True:
            await self.clock.sleep(_TICK_SECONDS)
            settings = self.settings()
            if settings.sample and self.clock.now() - began >= 60.0 * settings.every_minutes:
                began = self.clock.now()
                await self._round(settings.sample)

    async def _round(self, size: int) -> None:
        try:
            await self.compare(size)
        except _RoundGivenUp as error:
            self._skip(str(error))
        except READ_ERRORS as error:
            self._skip(list_failure(error, STARTED_VMS, "", _LIST_SECONDS).why)
        except Exception:
            self.failed += 1
            logger.exception("fidelity check: internal error")

    def _skip(self, why: str) -> None:
        self.failed += 1
        logger.warning("fidelity check: round skipped: %s", why)

    async def compare(self, size: int) -> None:
        """One round over a sample of so many VMs; it raises whatever ends it early."""
        configuration = self.configuration()
        if configuration is None:
            return
        if isinstance(configuration, Unavailable):
            raise _RoundGivenUp(configuration.why)
        for namespace, name in await self._sample(size):
            await self.clock.sleep(_PAUSE_SECONDS)
            try:
                result = await self._compare(namespace, name, configuration)
            except (Incomparable, InputError, TooComplex):
                # A VM that was changed, is on its way out, or that KubeVirt would deny now: nothing to compare.
                result = "skipped"
            self.checked[result] += 1

    async def _sample(self, size: int) -> list[tuple[str, str]]:
        """Namespaces and names of so many started VMs, each as likely as any other, whatever their number."""
        chosen: list[tuple[str, str]] = []
        seen = 0
        async with aclosing(pages(self.transport, STARTED_VMS, limit=_PAGE_LIMIT, seconds=_LIST_SECONDS)) as listed:
            async for page in listed:
                for vm in page.items or ():
                    if not vm.has_started:
                        continue
                    seen += 1
                    vm_key = (vm.meta.namespace or "", vm.meta.name or "")
                    if len(chosen) < size:
                        chosen.append(vm_key)
                    elif (place := self.chance.randrange(seen)) < size:
                        chosen[place] = vm_key
                await self.clock.sleep(_PAUSE_SECONDS)
        return chosen

    async def _compare(self, namespace: str, name: str, configuration: ClusterConfig) -> str:
        vmi = await self._get(STORED_VMIS, namespace, name)
        vm = await self._get(STORED_VMS, namespace, name)
        if not isinstance(vmi, StoredObject) or not isinstance(vm, StoredObject):
            return "skipped"
        plain = vm.plain()
        captured = {}
        for revision in fidelity.revisions(plain):
            stored = await self._get(_REVISIONS, namespace, revision)
            captured[revision] = stored.plain() if stored else None

        def get(kind: str, _: str, object_name: str) -> dict[str, Any] | None:
            # What was captured counts; what is live now says nothing about the day of the start.
            return captured.get(object_name) if kind == "ControllerRevision" else None

        # What is too complex to be compared within a review's steps would hold up reviews just as well.
        differences = StepBudget().run(lambda: fidelity.differences(plain, vmi.plain(), get, configuration))
        if not differences:
            return "same"
        self.differing += len(differences)
        fields = [DifferingField(path, origin and origin.value) for path, origin in differences.items()]
        about, when = AuditedObject("VirtualMachine", namespace, name), timestamp(self.clock.wall())
        record = FidelityRecord(SCHEMA, when, vmi.meta.uid or "", about, fields[:_FIELDS_SHOWN], len(fields))
        self.audit(record)
        return "different"

    async def _get(self, resource: Resource[Any], namespace: str, name: str) -> Unstructured | None:
        answer = await fetch(self.transport, resource, namespace, name, _GET_SECONDS)
        if isinstance(answer, Unavailable):
            raise _RoundGivenUp(answer.why)
        return answer
