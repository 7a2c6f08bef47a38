"""Installs and uninstalls by server-side apply, in an order in which no webhook is called before it is served."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from typing import Final, TypeAlias

import msgspec

from webhook import names
from webhook.errors import InputError, quote
from webhook.install import shortage
from webhook.install.plan import CONFIGURATIONS, Plan, path, title
from webhook.install.registration import API_VERSION, Manifest, advise, answered, during_rollout, object_in
from webhook.install.shortage import Shortage
from webhook.k8s.client.api import Requests
from webhook.k8s.client.clock import REAL_TIME, Clock
from webhook.k8s.paths import group_path
from webhook.k8s.types.meta import decode_status

FIELD_MANAGER: Final = "kubevirt-webhook-install"
# Of the replicas' account, and of the binding that grants it their permissions.
_ACCOUNT: Final = "kubevirt-webhook"
_RBAC: Final = "rbac.authorization.k8s.io/v1"
# The field manager of the admissions enforcer of AKS, which adds to namespaceSelectors what it excludes itself.
_AKS: Final = '"admissionsenforcer"'
KEEP_AKS: Final = (
    "set the same in the settings: webhooks: {namespaceSelector: {matchExpressions: [{key: control-plane, operator: "
    'NotIn, values: ["true"]}, {key: kubernetes.azure.com/managedby, operator: NotIn, values: [aks]}]}}, and run '
    '"kubevirt-webhook install --force-conflicts" once'
)
# As the API server says who owns fields that another manager applies.
_CONFLICTING: Final = re.compile(r'conflicts? with "(?P<manager>[^"]+)"')
_SECONDS: Final = 30.0
_MOST_NAMESPACES: Final = 500
_POLL_SECONDS: Final = 1.0
_Lack: TypeAlias = Callable[[Manifest], Awaitable[Shortage | None]]


class PlannedChange(msgspec.Struct, frozen=True):
    """One object that differs from the plan; None: it does not exist before, or will be deleted after."""

    title: str
    before: Manifest | None
    after: Manifest | None


def in_order_of_deletion(manifests: Iterable[Manifest]) -> list[Manifest]:
    """First the webhook configurations, then the others, the last created first."""
    objects = list(manifests)
    calling = [one for one in objects if one["kind"] in CONFIGURATIONS]
    return [*calling, *(one for one in reversed(objects) if one["kind"] not in CONFIGURATIONS)]


@dataclass(frozen=True)
class Installer:
    """Creates, updates and deletes the objects of an installation.

    Every method raises `InputError` where the API server gives no answer, or denies a request.

    Attributes:
        api: the connection to the API server.
        report: receives a line for each change.
        force: take over fields that another field manager set to something else.
        seconds: how long to wait at most for a roll-out, for caBundles, or for objects to be deleted.
        clock: the source of monotonic time, and of sleep.
    """

    api: Requests
    report: Callable[[str], None]
    _: KW_ONLY
    force: bool = False
    seconds: float = 180.0
    clock: Clock = REAL_TIME

    async def get(self, manifest: Manifest) -> Manifest | None:
        """The live object; None if it does not exist."""
        status, body = await answered(self.api.request("GET", path(manifest), seconds=_SECONDS), title(manifest))
        return None if status == 404 else _object(manifest, "get", status, body)

    async def namespace(self) -> str:
        """The namespace of the replicas; empty where nothing is installed.

        It is that of the Service that the API server calls. Without webhook configurations, which an installation
        creates last and a removal deletes first, it is that of the account with the replicas' permissions.
        """
        metadata = {"name": names.FIRST_CONFIGURATION}
        configuration = await self.get({"apiVersion": API_VERSION, "kind": CONFIGURATIONS[0], "metadata": metadata})
        services = [entry["clientConfig"].get("service") or {} for entry in (configuration or {}).get("webhooks") or ()]
        if place := next((service["namespace"] for service in services if "namespace" in service), ""):
            return str(place)
        binding = await self.get({"apiVersion": _RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": _ACCOUNT}})
        subjects = (binding or {}).get("subjects") or ()
        places = (one["namespace"] for one in subjects if one.get("name") == _ACCOUNT and "namespace" in one)
        return str(next(places, ""))

    async def ending_namespace(self) -> str:
        """The namespace of an installation of which nothing else is left, while it is being deleted; empty: none is."""
        query = {"labelSelector": f"app.kubernetes.io/name={_ACCOUNT}", "limit": f"{_MOST_NAMESPACES}"}
        asked = self.api.request("GET", "/api/v1/namespaces", query, seconds=_SECONDS)
        status, body = await answered(asked, "the cluster", shortage.CHECK_SERVER)
        found = object_in(body, "namespaces").get("items") or () if status == 200 else ()
        ending = (one["metadata"]["name"] for one in found if one["metadata"].get("deletionTimestamp"))
        return str(next(ending, ""))

    async def serves(self, group: str) -> bool:
        """Whether the API server serves an API group."""
        discovery = self.api.request("GET", group_path(group), seconds=_SECONDS)
        return (await answered(discovery, "the cluster", shortage.CHECK_SERVER))[0] == 200

    async def changes(self, plan: Plan) -> list[PlannedChange]:
        """The changes that `install` would make, by a dry run in the API server.

        Raises:
            InputError: also where the namespace is being deleted.
        """
        result = []
        for manifest in (one for one in (*plan.before, *plan.scheduler) if one["kind"] == "Namespace"):
            if (live := await self.get(manifest)) and live["metadata"].get("deletionTimestamp"):
                what, fix = shortage.describe_termination(manifest)
                raise InputError(what, title(manifest), fix)
        for manifest in plan.manifests:
            before = _comparable(await self.get(manifest))
            after = _comparable(await self._apply(manifest, dry_run=True))
            if before != after:
                result.append(PlannedChange(title(manifest), before, after))
        unwanted = [(title(one), _comparable(await self.get(one))) for one in plan.unwanted]
        return [*result, *(PlannedChange(name, live, None) for name, live in unwanted if live)]

    async def install(self, plan: Plan, *, wait: bool = True) -> None:
        """Create or change everything as planned, and wait for the replicas before the API server calls them for more.

        Raises:
            InputError: also where replicas do not become ready in time. What was done is kept; the next run continues.
        """
        for manifest in plan.before:
            await self._apply_and_report(manifest)
        is_scheduler_new = any([await self._apply_and_report(manifest) for manifest in plan.scheduler])
        for manifest in plan.configurations if wait else ():
            live = await self.get(manifest)
            between = during_rollout(manifest, live)
            has, wants = ([each["name"] for each in (one or {}).get("webhooks") or ()] for one in (live, between))
            if live is None or has != wants:
                await self._apply(between)
                self.report(f"{title(manifest)}: prepared (not called yet)")
        is_new = await self._apply_and_report(plan.deployment)
        if wait:
            await self._until(self._lack, plan.deployment, *plan.configurations, is_changed=is_new)
        for manifest in plan.configurations:
            await self._apply_and_report(manifest)
        for manifest in plan.unwanted:
            await self._delete(manifest)
        if wait:
            # Last, since no webhook depends on it: while it does not run, VMs are given to the default scheduler.
            await self._until(self._lack, *plan.scheduler_deployments, is_changed=is_scheduler_new)

    async def wait(self, plan: Plan) -> None:
        """Wait until all replicas are new and ready, the API server can verify them, and the second scheduler runs.

        Raises:
            InputError: the replicas do not become ready, or are given no caBundle, in time.
        """
        manifests = (plan.deployment, *plan.configurations, *plan.scheduler_deployments)
        await self._until(self._lack, *manifests, is_changed=False)

    async def shortage(self, plan: Plan) -> str:
        """What the roll-out of an installation that exists lacks at this moment; empty: it is complete."""
        for manifest in (plan.deployment, *plan.scheduler_deployments):
            if lack := await self._lack(manifest):
                return f"{lack.what}; {lack.fix}"
        return ""

    async def present(self, manifests: Iterable[Manifest]) -> list[Manifest]:
        """The objects that exist in the cluster, in the given order."""
        return [manifest for manifest in manifests if await self.get(manifest) is not None]

    async def uninstall(self, manifests: Iterable[Manifest]) -> None:
        """Delete objects that exist, as `in_order_of_deletion` has them.

        Raises:
            InputError: also where an object still exists after the timeout.
        """
        objects = in_order_of_deletion(manifests)
        for manifest in objects:
            await self._delete(manifest)

        self.report(f"waiting until they are gone, at most {self.seconds:.0f}s for each")

        async def remnant(manifest: Manifest) -> Shortage | None:
            return shortage.deletion_shortage(manifest, await self.get(manifest))

        await self._until(remnant, *objects)

    async def _apply_and_report(self, manifest: Manifest) -> bool:
        """Create or change an object; returns whether it differs from before."""
        live = await self.get(manifest)
        after = await self._apply(manifest)
        if is_changed := _comparable(live) != _comparable(after):
            self.report(f"{title(manifest)}: {'created' if live is None else 'changed'}")
        return is_changed

    async def _delete(self, manifest: Manifest) -> None:
        live = await self.get(manifest)
        if live is None:
            return
        # The precondition protects an object that was recreated in the meantime.
        options = {"preconditions": {"uid": live["metadata"]["uid"]}, "propagationPolicy": "Background"}
        deletion = self.api.request("DELETE", path(manifest), body=options, seconds=_SECONDS)
        status, body = await answered(deletion, title(manifest))
        if status not in (200, 202, 404):
            raise _denial(manifest, "delete", status, body)
        self.report(f"{title(manifest)}: deleted")

    async def _apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        if manifest["kind"] == "Deployment" and not self.force:
            manifest = _with_chosen_scale(manifest, await self.get(manifest))
        query = {"fieldManager": FIELD_MANAGER, "force": "true" if self.force else "false", "fieldValidation": "Strict"}
        query |= {"dryRun": "All"} if dry_run else {}
        kind = "application/apply-patch+yaml"
        patch = self.api.request("PATCH", path(manifest), query, manifest, kind, seconds=_SECONDS)
        status, body = await answered(patch, title(manifest))
        if dry_run and status == 404:
            # Its namespace does not exist yet.
            return manifest
        return _object(manifest, "patch", status, body)

    async def _lack(self, manifest: Manifest) -> Shortage | None:
        """What a Deployment or a webhook configuration lacks."""
        live = await self.get(manifest)
        if manifest["kind"] in CONFIGURATIONS:
            return shortage.caller_shortage(manifest, live)
        lack = shortage.replica_shortage(manifest, live, None)
        return lack and shortage.replica_shortage(manifest, live, await shortage.start_problem(self.api, manifest))

    async def _until(self, lack: _Lack, *manifests: Manifest, is_changed: bool = True) -> None:
        """Poll until no object lacks anything. A roll-out that this run has not begun may be late by what was repaired.

        Each object has the whole time.
        """
        for manifest in manifests:
            deadline, reported = self.clock.now() + self.seconds, set[str]()
            while lacking := await lack(manifest):
                if lacking.failed or (lacking.late and is_changed):
                    raise InputError(f"the rollout failed: {lacking.what}", fix=lacking.fix)
                if self.clock.now() >= deadline:
                    raise InputError(f"timed out after {self.seconds:.0f}s: {lacking.what}", fix=lacking.fix)
                if lacking.what not in reported:
                    self.report(f"waiting: {lacking.what}")
                    reported.add(lacking.what)
                await self.clock.sleep(_POLL_SECONDS)


def _with_chosen_scale(manifest: Manifest, live: Manifest | None) -> Manifest:
    """The Deployment without a number of replicas where another manager chose it: a person or an autoscaler.

    Source: Kubernetes' server-side apply, "Transferring ownership".

    Raises:
        InputError: that number is 0, with which an installation would end well and evaluate nothing.
    """
    for entry in (live or {}).get("metadata", {}).get("managedFields") or ():
        fields = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        if live and "f:replicas" in fields and entry.get("manager") != FIELD_MANAGER:
            if not live.get("spec", {}).get("replicas"):
                meta, what = live["metadata"], f"was scaled to 0 replicas by {quote(str(entry.get('manager')))}"
                scale = f"kubectl -n {meta['namespace']} scale deployment {meta['name']} --replicas 2"
                raise InputError(what, title(manifest), f"scale it first: {scale}; or give --force-conflicts")
            return {**manifest, "spec": {key: value for key, value in manifest["spec"].items() if key != "replicas"}}
    return manifest


def _object(manifest: Manifest, verb: str, status: int, body: bytes) -> Manifest:
    if status not in (200, 201):
        raise _denial(manifest, verb, status, body)
    return object_in(body, title(manifest))


def _denial(manifest: Manifest, verb: str, status: int, body: bytes) -> InputError:
    error = decode_status(body)
    what, fix = f"the API server answered status {status}: {error.text}", advise(status, error, f"{verb} it")
    if error.is_of_terminating_namespace:
        metadata = {"name": manifest["metadata"]["namespace"]}
        what, fix = shortage.describe_termination({"kind": "Namespace", "metadata": metadata})
    elif status == 409 and verb == "patch":
        other = _CONFLICTING.search(error.text)
        manager = other["manager"] if other else "MANAGER"
        pass_on = f"kubevirt-webhook hand-over --from-manager {manager} --to-manager {FIELD_MANAGER}"
        fix = f"if that tool installed it, go on with it, or first run {pass_on}; else overwrite with --force-conflicts"
        if _AKS in error.text:
            fix = f"AKS has changed it: {KEEP_AKS}"
    return InputError(what, title(manifest), fix)


def _comparable(manifest: Manifest | None) -> Manifest | None:
    """A manifest without the fields that others write."""
    if manifest is None:
        return None
    result = deepcopy(manifest)
    result.pop("status", None)
    metadata = result["metadata"]
    # Fields that the API server writes into every object.
    for key in ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink"):
        metadata.pop(key, None)
    annotations = metadata.get("annotations", {})
    annotations.pop("deployment.kubernetes.io/revision", None)
    if not annotations:
        metadata.pop("annotations", None)
    if result["kind"] in CONFIGURATIONS:
        for entry in result.get("webhooks") or ():
            entry["clientConfig"].pop("caBundle", None)
    return result
