"""Installing and uninstalling: server-side apply in an order that leaves no gap, after showing what would change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, Final

import msgspec

from webhook.errors import InputError
from webhook.install.plan import CONFIGURATIONS, Plan, path, title
from webhook.install.registration import Manifest
from webhook.install.stages import stage, uncallable
from webhook.k8s.client.api import NO_QUERY, ApiConnectionError, Requests
from webhook.k8s.client.clock import REAL_TIME, Clock

FIELD_MANAGER: Final = "kubevirt-webhook-install"

_APPLY: Final = "application/apply-patch+yaml"
_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 1.0
# What the API server writes into every object, and controllers into ours.
_WRITTEN: Final = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink")
_REVISION: Final = "deployment.kubernetes.io/revision"


class PlannedChange(msgspec.Struct, frozen=True):
    """One object that is not as it is to be.

    Attributes:
        before: as it is, without what the API server adds; None: it isn't there.
        after: as it will be; None: it will be gone.
    """

    title: str
    before: Manifest | None
    after: Manifest | None


class _RolloutStatus(msgspec.Struct):
    message: str = ""


class Installer:
    """Brings objects into a cluster, and takes them out.

    Args:
        api: the connection to the API server.
        tell: gets a line for each thing done.
        force: take over fields that another field manager set to something else.
        seconds: how long to wait at most for a roll-out, for caBundles, or for objects to be deleted.
        clock: the source of monotonic time, and of sleep.
    """

    def __init__(
        self,
        api: Requests,
        tell: Callable[[str], None],
        *,
        force: bool = False,
        seconds: float = 180.0,
        clock: Clock = REAL_TIME,
    ) -> None:
        self._api: Final = api
        self._tell: Final = tell
        self._force: Final = force
        self._seconds: Final = seconds
        self._clock: Final = clock

    async def get(self, manifest: Manifest) -> Manifest | None:
        """The object as it is; None if it isn't there.

        Raises:
            InputError: the API server gives no answer, or refuses.
        """
        status, body = await self._call(manifest, "GET")
        return None if status == 404 else self._object(manifest, "get", status, body)

    async def serves(self, group: str) -> bool:
        """Whether the API server has an API group.

        Raises:
            InputError: it gives no answer.
        """
        try:
            status, _ = await self._api.request("GET", f"/apis/{group}", seconds=_SECONDS)
        except ApiConnectionError as error:
            raise InputError(error.why, "the cluster", "begin again once it answers") from None
        return status == 200

    async def changes(self, plan: Plan) -> list[PlannedChange]:
        """The changes that `install` would make, by a dry run in the API server.

        Args:
            plan: the planned installation.

        Raises:
            InputError: the API server gives no answer, or denies a request.
        """
        result = []
        for manifest in plan.manifests:
            before = _comparable(await self.get(manifest))
            after = _comparable(await self._apply(manifest, dry_run=True))
            if before != after:
                result.append(PlannedChange(title(manifest), before, after))
        for manifest in plan.unwanted:
            live = await self.get(manifest)
            if live is not None:
                result.append(PlannedChange(title(manifest), _comparable(live), None))
        return result

    async def install(self, plan: Plan, *, wait: bool = True) -> None:
        """Create or change everything as planned.

        Args:
            plan: the planned installation.
            wait: wait for the replicas before the API server calls them for more than before; False: apply all of it at
                once.

        Raises:
            InputError: the API server denies a request, or the replicas do not become ready in time. What was done is
                kept; the next `install` continues.
        """
        for manifest in plan.before:
            await self._apply_and_report(manifest)
        if not wait:
            for manifest in (plan.deployment, *plan.configurations):
                await self._apply_and_report(manifest)
        else:
            for manifest in plan.configurations:
                live = await self.get(manifest)
                between = stage(manifest, live)
                if live is None or _names(between) != _names(live):
                    await self._apply(between)
                    self._tell(f"{title(manifest)}: prepared")
            await self._apply_and_report(plan.deployment)
            await self._until(partial(self._missing_replicas, plan.deployment))
            for manifest in plan.configurations:
                await self._until(partial(self._callable, manifest))
            for manifest in plan.configurations:
                await self._apply_and_report(manifest)
        for manifest in plan.unwanted:
            await self._delete(manifest)

    async def present(self, manifests: Iterable[Manifest]) -> list[Manifest]:
        """The objects that exist in the cluster, in the given order.

        Args:
            manifests: the objects to look for.

        Raises:
            InputError: the API server gives no answer, or denies a request.
        """
        return [manifest for manifest in manifests if await self.get(manifest) is not None]

    async def uninstall(self, manifests: Iterable[Manifest]) -> None:
        """Delete objects: first the webhook configurations, then the others, the last created first.

        Args:
            manifests: the objects, in the order in which they were created; those that do not exist are skipped.

        Raises:
            InputError: the API server denies a request, or an object still exists after the timeout.
        """
        objects = list(manifests)
        calling = [one for one in objects if one["kind"] in CONFIGURATIONS]
        others = [one for one in reversed(objects) if one["kind"] not in CONFIGURATIONS]
        for manifest in (*calling, *others):
            await self._delete(manifest)
        for manifest in objects:
            await self._until(partial(self._pending_deletion, manifest))

    async def _apply_and_report(self, manifest: Manifest) -> None:
        live = await self.get(manifest)
        after = await self._apply(manifest)
        if live is None or _comparable(live) != _comparable(after):
            self._tell(f"{title(manifest)}: {'created' if live is None else 'changed'}")

    async def _delete(self, manifest: Manifest) -> None:
        live = await self.get(manifest)
        if live is None:
            return
        # Not one that somebody makes anew meanwhile.
        options = {"preconditions": {"uid": live["metadata"]["uid"]}, "propagationPolicy": "Background"}
        status, body = await self._call(manifest, "DELETE", body=options)
        if status not in (200, 202, 404):
            raise self._refusal(manifest, "delete", status, body)
        self._tell(f"{title(manifest)}: deleted")

    async def _apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        query = {
            "fieldManager": FIELD_MANAGER,
            "force": "true" if self._force else "false",
            "fieldValidation": "Strict",
        }
        if dry_run:
            query["dryRun"] = "All"
        status, body = await self._call(manifest, "PATCH", query, manifest, _APPLY)
        if dry_run and status == 404:
            # Its namespace isn't there yet.
            return manifest
        return self._object(manifest, "patch", status, body)

    async def _missing_replicas(self, manifest: Manifest) -> str:
        live = await self.get(manifest) or {}
        status = live.get("status") or {}
        replicas = live.get("spec", {}).get("replicas", 0)
        current = status.get("observedGeneration", 0) >= live.get("metadata", {}).get("generation", 0)
        counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")]
        if current and counts == [replicas] * 3:
            return ""
        for condition in status.get("conditions") or ():
            if current and condition.get("reason") == "ProgressDeadlineExceeded":
                raise InputError(
                    "its replicas don't become ready", title(manifest), "look at its pods; the replicas before serve on"
                )
        if not current:
            return "the roll-out has not begun yet"
        return f"{counts[2]} of {replicas} replicas are ready, {counts[1]} are new, and there are {counts[0]}"

    async def _callable(self, manifest: Manifest) -> str:
        missing = uncallable(manifest, await self.get(manifest))
        return f"{title(manifest)}: {len(missing)} entries have no caBundle, {missing[0]} is one" if missing else ""

    async def _pending_deletion(self, manifest: Manifest) -> str:
        return "" if await self.get(manifest) is None else f"{title(manifest)} is still being deleted"

    async def _until(self, lack: Callable[[], Awaitable[str]]) -> None:
        """Ask again and again, until nothing is lacking."""
        deadline, told = self._clock.now() + self._seconds, ""
        while lacking := await lack():
            if self._clock.now() >= deadline:
                what = f"{lacking}, {self._seconds:.0f} s long"
                raise InputError(what, fix="look at the log of its pods, and begin again: what was done stays")
            if lacking != told:
                self._tell(f"waiting: {lacking}")
                told = lacking
            await self._clock.sleep(_POLL_SECONDS)

    async def _call(
        self,
        manifest: Manifest,
        method: str,
        query: Mapping[str, str] = NO_QUERY,
        body: Any = None,
        content_type: str = "application/json",
    ) -> tuple[int, bytes]:
        try:
            return await self._api.request(method, path(manifest), query, body, content_type, seconds=_SECONDS)
        except ApiConnectionError as error:
            raise InputError(error.why, title(manifest), "begin again: what was done stays") from None

    def _object(self, manifest: Manifest, verb: str, status: int, body: bytes) -> Manifest:
        if status not in (200, 201):
            raise self._refusal(manifest, verb, status, body)
        found: Manifest = msgspec.json.decode(body)
        return found

    def _refusal(self, manifest: Manifest, verb: str, status: int, body: bytes) -> InputError:
        try:
            message = msgspec.json.decode(body, type=_RolloutStatus).message or "no reason given"
        except msgspec.MsgspecError:
            message = "no reason given"
        fix = ""
        if status == 409 and verb == "patch":
            fix = "let one tool install it, or take its fields over with --force-conflicts"
        elif status in (401, 403):
            fix = f"use an account that may {verb} it"
        return InputError(f"the API server refused it ({status}): {' '.join(message.split())}", title(manifest), fix)


def _names(manifest: Manifest) -> list[str]:
    return [entry["name"] for entry in manifest.get("webhooks") or ()]


def _comparable(manifest: Manifest | None) -> Manifest | None:
    """What an installer answers for."""
    if manifest is None:
        return None
    result = deepcopy(manifest)
    result.pop("status", None)
    metadata = result["metadata"]
    for key in _WRITTEN:
        metadata.pop(key, None)
    annotations = metadata.get("annotations", {})
    annotations.pop(_REVISION, None)
    if not annotations:
        metadata.pop("annotations", None)
    if result["kind"] in CONFIGURATIONS:
        for entry in result.get("webhooks") or ():
            entry["clientConfig"].pop("caBundle", None)
    return result
