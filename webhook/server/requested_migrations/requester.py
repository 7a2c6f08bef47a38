"""Requests the migrations for whose VMs the preemption policy has put a deletion off.

No review waits for it, and nothing is tried again here: the scheduler or the taint controller asks again, and as long
as the migration is not there, the policy says the same. Of several replicas that request the same migration one makes
it, since it is named after the pod, and virt-api allows one of a VM at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from webhook import names
from webhook.admission import wire
from webhook.k8s.client.api import ApiConnectionError, Requests, explain
from webhook.k8s.types.meta import OwnerReference
from webhook.kubevirt.launcher import vmi_owner
from webhook.placement.machines import MIGRATIONS
from webhook.placement.migrations import IN_FLIGHT
from webhook.policies.preemption import reasons
from webhook.policies.preemption.pods import name_of
from webhook.policies.preemption.settings import PREEMPTION
from webhook.policies.preemption.views import DisruptedPod
from webhook.policy import Endpoint
from webhook.review.reviewer import Evaluation, Observer

RESULTS: Final = ("created", "present", "dropped", "failed")

_SECONDS: Final = 5.0
_CREATED: Final = 201
_CONFLICT: Final = 409
# virt-api is asked before the API server sees that there is one of the same name.
_IN_FLIGHT: Final = IN_FLIGHT.encode()
# A pod's UID, as the API server makes it.
_MOST_UID: Final = 36

logger = logging.getLogger(__name__)


class RequestedMigration(NamedTuple):
    """A migration of one VM, away from the pod with this UID."""

    namespace: str
    vm: str
    pod_uid: str

    @property
    def manifest(self) -> dict[str, Any]:
        """The migration. Only KubeVirt's own controller may give it a priority."""
        metadata = {
            "name": name_of(self.pod_uid),
            "namespace": self.namespace,
            # KubeVirt writes it, too. Until then, the policy would not find the migration by it.
            "labels": {names.VMI_NAME_LABEL: self.vm},
        }
        head = {"apiVersion": MIGRATIONS.api_version, "kind": MIGRATIONS.kind}
        return {**head, "metadata": metadata, "spec": {"vmiName": self.vm}}


class MigrationRequester(Observer):
    """Creates migrations, one by one.

    Args:
        api: the connection to the API server; the caller closes it.
        most: returns how many may wait. A taint has all VMs of a node deleted at once: while they are reviewed, none of
            their migrations is there yet that `max_per_cluster` could count.

    Attributes:
        results: migrations by what became of them, one of `RESULTS`.
    """

    def __init__(self, api: Requests, most: Callable[[], int]) -> None:
        self._api: Final = api
        self._most: Final = most
        self._waiting: Final[dict[RequestedMigration, None]] = {}
        self._is_there: Final = asyncio.Event()
        self.results: Final = Counter(dict.fromkeys(RESULTS, 0))

    def on_evaluated(self, endpoint: Endpoint, evaluation: Evaluation, seconds: float) -> None:
        """Request the migration for which a deletion was put off: in mode ``enforce``, and not by a dry run."""
        wanted = requested_by(endpoint, evaluation)
        if wanted is None or wanted in self._waiting:
            return
        if len(self._waiting) >= self._most():
            self.results["dropped"] += 1
            return
        self._waiting[wanted] = None
        self._is_there.set()

    async def run(self) -> None:
        """Create migrations indefinitely; ends when it is cancelled."""
        while True:
            # First, since this begins again after a bug, and of what waits nothing else tells.
            await self.create_all()
            await self._is_there.wait()
            self._is_there.clear()

    async def create_all(self) -> None:
        """Create all that are waiting."""
        while self._waiting:
            wanted = next(iter(self._waiting))
            try:
                self.results[await self._create(wanted)] += 1
            finally:
                # What cannot be created must not hold up the others.
                del self._waiting[wanted]

    async def _create(self, wanted: RequestedMigration) -> str:
        path = MIGRATIONS.path(wanted.namespace)
        try:
            status, body = await self._api.request(
                "POST", path, {}, wanted.manifest, "application/json", seconds=_SECONDS
            )
        except ApiConnectionError as error:
            return _log_failure(wanted, error.why)
        if status == _CREATED:
            logger.info("migration %s/%s requested for VM %s", wanted.namespace, name_of(wanted.pod_uid), wanted.vm)
            return "created"
        if status == _CONFLICT or _IN_FLIGHT in body:
            return "present"
        return _log_failure(wanted, explain("create", MIGRATIONS, wanted.namespace, status, body).why)


def requested_by(endpoint: Endpoint, evaluation: Evaluation) -> RequestedMigration | None:
    """The migration that a decision of the preemption policy requests; None: none."""
    decision, request = evaluation.decision, evaluation.request
    is_put_off = endpoint.policy == PREEMPTION and evaluation.label == "denied"
    if not is_put_off or decision.code != reasons.MIGRATION_REQUESTED or wire.is_dry_run(request):
        return None
    pod = request.old_object
    owner = vmi_owner(pod) if isinstance(pod, DisruptedPod) else None
    if not isinstance(owner, OwnerReference) or not request.namespace:
        return None
    uid = (pod.meta.uid if pod else None) or ""
    return RequestedMigration(request.namespace, owner.name or "", uid) if 0 < len(uid) <= _MOST_UID else None


def _log_failure(wanted: RequestedMigration, why: str) -> str:
    logger.warning("the migration of VM %s/%s cannot be requested: %s", wanted.namespace, wanted.vm, why)
    return "failed"
