"""The webhook configurations, from the settings and the endpoint table.

The order in which the API server calls mutating webhooks is that of their configurations' names, so there are two:
`names.FIRST_CONFIGURATION` writes into VMs before KubeVirt's own mutator, `names.LAST_CONFIGURATION` sees pods after
every other scheduler's webhook had its say. None carries a caBundle: who serves the certificate writes it.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from webhook import names
from webhook.errors import InputError, quote
from webhook.k8s.client.api import UNDECODABLE, ApiConnectionError, Requests
from webhook.k8s.paths import object_path
from webhook.k8s.types.meta import ApiStatus, decode_status
from webhook.kubevirt.launcher import controller_account
from webhook.names import Mode, Policy
from webhook.placement.machines import JOB_NAME
from webhook.placement.machines import JOB_UID as MIGRATION_POLICY_UID
from webhook.policies.eviction.pods import REQUESTED_BY
from webhook.review.endpoints import ENDPOINTS, Endpoint
from webhook.settings.model import SchedulingSettings, Settings, is_host

AGAIN: Final = "run the command again to continue"
_INJECTED_ANNOTATION: Final = f'"{names.INJECTED_SCHEDULER_ANNOTATION}"'
_SPREAD_ANNOTATION: Final = f'"{names.INJECTED_SPREAD_ANNOTATION}"'


def unset(parent: str, field: str) -> str:
    """A field is absent, null or empty."""
    # A schema that preserves unknown fields keeps null.
    return f'!has({parent}.{field}) || {parent}.{field} == null || {parent}.{field} == ""'


def has_annotation(root: str, key: str = _INJECTED_ANNOTATION) -> str:
    """CEL: an object carries one of the server's annotations."""
    return f"has({root}.metadata.annotations) && {key} in {root}.metadata.annotations"


def unspread(parent: str) -> str:
    """An object has no topology spread constraints."""
    field = f"{parent}.topologySpreadConstraints"
    return f"!has({field}) || {field} == null || size({field}) == 0"


def only_by_webhook(field: str, scheduling: SchedulingSettings) -> str:
    """An alternative: a field names a scheduler that only kubevirt-webhook sets; empty if there is none."""
    schedulers = sorted(scheduling.schedulers.items())
    listed = ", ".join(f'"{name}"' for name, declared in schedulers if declared.only_by_webhook)
    return f" || {field} in [{listed}]" if listed else ""


def of_vms(scheduling: SchedulingSettings) -> dict[str, str]:
    """The conditions on VMs, by name: those without a scheduler, and those that have or had an injected one."""
    spec = "object.spec.template.spec"
    template = "has(object.spec) && has(object.spec.template) && has(object.spec.template.spec)"
    free = unset(spec, "schedulerName")
    annotated, was_annotated = _has_annotation_anywhere("object"), _has_annotation_anywhere("oldObject")
    # Copies may contain an injected scheduler without all or any of its annotations.
    named = only_by_webhook(f"{spec}.schedulerName", scheduling)
    unset_spread = f" || ({unspread(spec)})" if scheduling.spread_virtual_machines else ""
    created = f"({free}) || ({annotated}){named}{unset_spread}"
    named_or_not = f"({free}) ? ({was_annotated}) && !({annotated}) : ({was_annotated}) || ({annotated}){named}"
    # Injected constraints are replaced by the owner's, independent of the present settings.
    spread = " || ".join(f"({_has_annotation_anywhere(root, _SPREAD_ANNOTATION)})" for root in ("object", "oldObject"))
    updated = f"({named_or_not}) || {spread}"
    return {
        "unset-or-injected-scheduler": f'{template} && (request.operation == "CREATE" ? ({created}) : ({updated}))',
        "created-or-changed": 'request.operation == "CREATE" || object.spec != oldObject.spec',
    }


def of_vmis(scheduling: SchedulingSettings) -> dict[str, str]:
    """The conditions on VMIs, by name: the owner has set none."""
    choices = []
    if scheduling.virtual_machine_instances:
        choices.append(unset("object.spec", "schedulerName"))
    if scheduling.spread_virtual_machine_instances:
        choices.append(unspread("object.spec"))
    return {"scheduler-not-set": f"has(object.spec) && ({' || '.join(choices) or 'false'})"}


def _has_annotation_anywhere(root: str, key: str = _INJECTED_ANNOTATION) -> str:
    """A VM or its template has the annotation."""
    template = f"{root}.spec.template"
    within = f"has({template}.metadata) && {template}.metadata != null && has({template}.metadata.annotations)"
    annotations = f"{template}.metadata.annotations"
    inner = f"{within} && {annotations} != null && {key} in {annotations}"
    return f"({has_annotation(root, key)}) || ({inner})"


def fails_closed(endpoint: Endpoint, settings: Settings) -> bool:
    """Whether requests are denied while no replica answers."""
    return endpoint.fails_closed(settings) and endpoint.stage == "enforce"


def match_conditions(endpoint: Endpoint, settings: Settings) -> list[dict[str, Any]]:
    """CEL that keeps requests away which the policy would allow without changes anyway."""
    scheduling = settings.scheduling
    annotations, requester = "object.metadata.annotations", f'"{REQUESTED_BY}"'
    value, listed = f"{annotations}[{requester}]", ", ".join(f'"{each}"' for each in settings.eviction.requesters)
    by_place = {
        ("mutate", names.SCHEDULING, "pods"): _pod_conditions(scheduling),
        ("mutate", names.SCHEDULING, "virtualmachines"): {**_NOT_DELETED, **of_vms(scheduling)},
        ("mutate", names.SCHEDULING, "virtualmachineinstances"): of_vmis(scheduling),
        ("mutate", names.INSTANCETYPES, "virtualmachines"): {
            **_NOT_DELETED,
            "created-or-changed": 'request.operation == "CREATE" || object.spec != oldObject.spec',
        },
        ("mutate", names.INSTANCETYPES, "virtualmachineinstances"): {"no-vm-behind": f"!({_OF_A_VM})"},
        ("validate", names.INSTANCETYPES, "virtualmachines"): {
            **_NOT_DELETED,
            "has-a-matcher": "has(object.spec.instancetype) || has(object.spec.preference)",
            # The API server counts the changes of the spec before it validates.
            "created-or-changed": 'request.operation == "CREATE" || '
            "object.metadata.generation != oldObject.metadata.generation",
            **(_kubevirts_updates(settings) if fails_closed(endpoint, settings) else {}),
        },
        ("validate", names.MIGRATION, "virtualmachineinstancemigrations"): {"adds-a-selector": _ADDS},
        # KubeVirt's own migrations, for example evacuations, must not wait for kubevirt-webhook.
        ("mutate", names.MIGRATION, "virtualmachineinstancemigrations"): {
            "adds-no-selector": f"!({_ADDS})",
            "made-by-a-user": _BY_A_USER,
        },
        ("mutate", names.MIGRATION, "pods"): {
            "made-by-kubevirt": _pod_conditions(scheduling)["made-by-kubevirt"],
            "unbound": unset("object.spec", "nodeName"),
            # Drains must not wait for kubevirt-webhook; other migrations with such a name and a selector are denied.
            "not-of-a-drain": f"!({_OF_A_DRAIN})",
        },
        # Drains must not wait for kubevirt-webhook. An Eviction lacks its pod's labels, so its name is tested.
        ("mutate", names.EVICTION, "pods"): {
            # Pods that copy disks have names of many kinds.
            **({} if settings.eviction.protect_transfers_seconds else {"of-a-launcher-pod": _LAUNCHER_NAME}),
            "requested-by": f"has({annotations}) && {requester} in {annotations} && {value} in [{listed}]",
            "not-by-kubevirt": _BY_A_USER,
        },
    }
    conditions = by_place[endpoint.verb, endpoint.policy, endpoint.resource]
    return [{"name": name, "expression": cel} for name, cel in conditions.items()]


def _kubevirts_updates(settings: Settings) -> dict[str, str]:
    """CEL without which KubeVirt could not work on VMs while no replica answers, where that denies requests.

    What KubeVirt creates follows a user's template (of a pool, a clone, a snapshot) and is matched, as is another
    instancetype. Where KubeVirt runs is not always known, and then a tenant may name an account like KubeVirt's: all
    that this gains is an update that leaves the instancetype as it is.
    """
    user, place = "request.userInfo.username", settings.scheduling.kubevirt_namespace
    accounts = (names.CONTROLLER_ACCOUNT, names.API_ACCOUNT)
    if place:
        maker = f"{user} in [" + ", ".join(f'"system:serviceaccount:{place}:{account}"' for account in accounts) + "]"
    else:
        ends = " || ".join(f'{user}.endsWith(":{account}")' for account in accounts)
        maker = f'{user}.startsWith("system:serviceaccount:") && ({ends})'
    field = "spec.instancetype"
    both = f"has(object.{field}) == has(oldObject.{field})"
    same = f"{both} && (!has(object.{field}) || object.{field} == oldObject.{field})"
    return {"no-update-by-kubevirt": f'request.operation == "CREATE" || !({maker}) || !({same})'}


_LAUNCHER_NAME: Final = f'request.name.startsWith("{names.LAUNCHER_APP}-")'
_BY_A_USER: Final = f'!request.userInfo.username.endsWith(":{names.CONTROLLER_ACCOUNT}")'
_ADDS: Final = "has(object.spec.addedNodeSelector) && size(object.spec.addedNodeSelector) > 0"
_POLICY: Final = f'object.metadata.annotations["{JOB_NAME}"]'
_OF_A_DRAIN: Final = (
    f'has(object.metadata.annotations) && "{JOB_NAME}" in object.metadata.annotations && ('
    + " || ".join(f'{_POLICY}.startsWith("{prefix}")' for prefix in names.OWN_MIGRATIONS)
    + ")"
)
_NOT_DELETED: Final = {"not-being-deleted": "!has(object.metadata.deletionTimestamp)"}
_OF_A_VM: Final = (
    "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(owner, "
    "has(owner.controller) && owner.controller == true && "
    f'owner.kind == "VirtualMachine" && owner.apiVersion.startsWith("{names.KUBEVIRT_GROUP}/"))'
)


def _pod_conditions(scheduling: SchedulingSettings) -> dict[str, str]:
    user = "request.userInfo.username"
    if scheduling.kubevirt_namespace:
        maker = f'{user} == "{controller_account(scheduling.kubevirt_namespace)}"'
    else:
        maker = f'{user}.startsWith("system:serviceaccount:") && {user}.endsWith(":{names.CONTROLLER_ACCOUNT}")'
    # Constraints do not depend on the scheduler, so a namespace can enable them alone.
    spread = "" if scheduling.spread == names.OFF else f" || {unspread('object.spec')}"
    return {
        "made-by-kubevirt": maker,
        "unbound": unset("object.spec", "nodeName"),
        # Pods with the injected scheduler too: while it is unavailable, they fall back to the default scheduler.
        "default-or-injected-scheduler": (
            f'{unset("object.spec", "schedulerName")} || object.spec.schedulerName == "{names.DEFAULT_SCHEDULER}"'
            f" || {has_annotation('object')}{only_by_webhook('object.spec.schedulerName', scheduling)}"
            f"{spread}"
        ),
    }


async def answered(answer: Awaitable[tuple[int, bytes]], where: str, fix: str = AGAIN) -> tuple[int, bytes]:
    """The status and the body of an answer of the API server.

    Raises:
        InputError: there is none; ``where`` and ``fix`` are those of the error.
    """
    try:
        return await answer
    except ApiConnectionError as error:
        raise InputError(error.why, where, fix) from None


def object_in(body: bytes, where: str) -> Manifest:
    """The object in the body of an answer.

    Raises:
        InputError: there is none, as in a proxy's page; ``where`` is that of the error.
    """
    with suppress(*UNDECODABLE):
        obj: Manifest = msgspec.json.decode(body)
        if isinstance(obj, dict) and isinstance(obj.get("metadata"), dict):
            return obj
    fix = "check the server in the kubeconfig, and what stands before it"
    raise InputError("the answer holds no object of an API server", where, fix)


def advise(status: int, error: ApiStatus, action: str) -> str:
    """What would help against a denial of ``action``, such as ``get and patch it``; empty: it does not show that."""
    if error.is_of_admission:
        return "change what denies it so that it allows the request, and run the command again"
    return f"use an account that is permitted to {action}" if status in (401, 403) else ""


NOT_YET: Final = {"name": "not-yet-served", "expression": "false"}


def stage(desired: Manifest, live: Manifest | None) -> Manifest:
    """The configuration during the rollout: entries that the live one, if any, lacks are called for nothing yet."""
    present = {entry["name"]: entry for entry in (live or {}).get("webhooks") or ()}
    entries = []
    for entry in desired.get("webhooks", ()):
        if live_entry := present.get(entry["name"]):
            # caBundles belong to another field manager.
            config = {key: value for key, value in live_entry["clientConfig"].items() if key != "caBundle"}
            entries.append({**live_entry, "clientConfig": config})
        else:
            entries.append({**entry, "matchConditions": [NOT_YET]})
    return {**desired, "webhooks": entries} if entries else desired


def uncallable(desired: Manifest, live: Manifest | None) -> list[str]:
    """The entries that do not exist yet, or have no caBundle by which the API server could verify the replicas."""
    bundles = {entry["name"]: entry["clientConfig"].get("caBundle") for entry in (live or {}).get("webhooks") or ()}
    return [entry["name"] for entry in desired.get("webhooks", ()) if not bundles.get(entry["name"])]


def deletion_command(configurations: Iterable[tuple[str, str]]) -> str:
    """The command that deletes configurations, each given by its kind and its name."""
    return " ".join(["kubectl delete", *(f"{kind.lower()}/{name}" for kind, name in configurations)])


Manifest = dict[str, Any]
# The time limit of each call that deletes a configuration, which delays the end of the process.
_DELETE_SECONDS: Final = 5.0
# Seconds before a creation is tried again after an error of the API server, such as a timeout of etcd.
_CREATE_PAUSES: Final = (1, 2, 4, 8, 0)
API_VERSION: Final = "admissionregistration.k8s.io/v1"


class RegistrationTarget(msgspec.Struct, frozen=True):
    """How the API server is to call one server, and under which names.

    Attributes:
        url: ``https://HOST:PORT`` for a server outside the cluster; empty: the settings' Service.
        ca_bundle: PEM that the API server is to trust; empty: none is written.
        suffix: appended to the configurations' names.
        only_ignore: every failurePolicy is Ignore.
    """

    url: str = ""
    ca_bundle: bytes = b""
    suffix: str = ""
    only_ignore: bool = False


def check_url(url: str, option: str = "--url") -> None:
    """Check that the API server can call a server by a URL, which an option names.

    Raises:
        InputError: the URL does not have the form ``https://HOST[:PORT]``.
    """
    # Not HOST:PORT, which looks like a user and a password.
    fix = "use for example https://192.0.2.1:8443"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise InputError(f"{quote(url)} is not a valid URL ({error})", option, fix) from None
    if parts.scheme != "https":
        raise InputError(f"{quote(url)} is not an https URL, which the API server requires", option, fix)
    if not host or port == 0 or not is_host(host):
        raise InputError(f"{quote(url)} has no valid host name or IP address", option, fix)
    if parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None:
        raise InputError(f"{quote(url)} has more than a host and a port", option, fix)


def configurations(settings: Settings, target: RegistrationTarget = RegistrationTarget()) -> list[Manifest]:  # noqa: B008 - frozen
    """The three configurations: two mutating, one validating."""
    on = [endpoint for endpoint in ENDPOINTS if endpoint.is_on(settings)]
    mutating = [each for each in on if each.verb == "mutate"]
    manifests: list[Manifest] = []
    for kind, name, endpoints in (
        ("MutatingWebhookConfiguration", names.FIRST_CONFIGURATION, [each for each in mutating if each.group]),
        ("MutatingWebhookConfiguration", names.LAST_CONFIGURATION, [each for each in mutating if not each.group]),
        ("ValidatingWebhookConfiguration", names.FIRST_CONFIGURATION, [each for each in on if each.verb != "mutate"]),
    ):
        metadata = {"name": name + target.suffix, "labels": {"app.kubernetes.io/name": "kubevirt-webhook"}}
        # The API server drops an empty list, so with one, every apply would be a change. Without, it removes entries.
        webhooks = {"webhooks": [_entry(each, settings, target) for each in endpoints]} if endpoints else {}
        manifests.append({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, **webhooks})
    return manifests


def _entry(endpoint: Endpoint, settings: Settings, target: RegistrationTarget) -> Manifest:
    fail = fails_closed(endpoint, settings) and not target.only_ignore
    config: Manifest = {"url": target.url.rstrip("/") + endpoint.path}
    if not target.url:
        service = settings.webhooks.service
        place = {"namespace": service.namespace, "name": service.name, "port": service.port, "path": endpoint.path}
        config = {"service": place}
    if target.ca_bundle:
        config["caBundle"] = b64encode(target.ca_bundle).decode("ascii")
    modes: list[Mode] = [names.WARN, names.AUDIT] if endpoint.stage == names.OBSERVE else [names.ENFORCE]
    resource = "/".join(filter(None, (endpoint.resource, endpoint.sub_resource)))
    operations = list(endpoint.operations)
    matched = {"apiGroups": [endpoint.group], "apiVersions": [endpoint.version], "operations": operations}
    entry: Manifest = {
        # Users see it in denials, and admins in the API server's metrics.
        "name": f"{endpoint.resource}.{endpoint.policy}.{endpoint.stage}.{names.DOMAIN}",
        "clientConfig": config,
        "rules": [{**matched, "resources": [resource], "scope": "Namespaced"}],
        "namespaceSelector": {"matchExpressions": namespace_selector(endpoint.policy, settings, modes)},
        "matchConditions": match_conditions(endpoint, settings),
        # The API server converts objects of other versions, so that one rule matches them all.
        "matchPolicy": "Equivalent",
        "failurePolicy": "Fail" if fail else "Ignore",
        # Events are a side effect; kubevirt-webhook writes none for a dry run.
        "sideEffects": "NoneOnDryRun" if settings.events else "None",
        "timeoutSeconds": settings.webhooks.timeout_seconds,
        "admissionReviewVersions": ["v1"],
    }
    if endpoint.kind == "Pod":
        selector: Manifest = {"matchLabels": {names.APP_LABEL: names.LAUNCHER_APP}}
        if endpoint.policy == names.MIGRATION:
            selector["matchExpressions"] = [{"key": MIGRATION_POLICY_UID, "operator": "Exists"}]
        entry["objectSelector"] = selector
    if endpoint.verb == "mutate":
        # A later webhook may change a pod again. VMs are excluded: after KubeVirt's mutator, one whose inference failed
        # looks as if it never had an instancetype.
        entry["reinvocationPolicy"] = "IfNeeded" if endpoint.kind == "Pod" else "Never"
    return entry


def namespace_selector(policy: Policy, settings: Settings, modes: Iterable[Mode]) -> list[Manifest]:
    """The namespaces in some modes of a policy, ``enforce`` alone or others, as a selector's ``matchExpressions``."""
    label = names.policy_label(policy)
    values = list(modes)
    if settings.policy(policy).cluster_wide and values == [names.ENFORCE]:
        opted: Manifest = {"key": label, "operator": "NotIn", "values": [names.OFF, names.WARN, names.AUDIT]}
    else:
        opted = {"key": label, "operator": "In", "values": values}
    excluded_names = sorted(settings.every_excluded_namespace)
    excluded = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": excluded_names}
    return [
        opted,
        excluded,
        *(expression.manifest() for expression in settings.webhooks.namespace_selector.match_expressions),
    ]


class Registration:
    """Configurations that exist as long as this process: for a server outside the cluster.

    It creates and deletes, and never overwrites the configurations of others. Those that call this server's own URL
    are what it left behind when it was killed, and are replaced.

    Args:
        api: the connection to the API server.

    Attributes:
        replaced: the configurations that a former process left behind, as ``KIND/NAME``.
    """

    def __init__(self, api: Requests) -> None:
        self._api: Final = api
        self.replaced: Final[list[str]] = []
        # Path, and uid; where a POST had no answer or an error, and may have been executed, what was sent.
        self._created: list[tuple[str, str | Manifest]] = []

    async def register(self, manifests: Iterable[Manifest]) -> None:
        """Create all configurations, or none.

        Raises:
            InputError: one exists already, or the API server denies it or does not answer.
        """
        all_of_them = list(manifests)
        try:
            for manifest in all_of_them:
                await self._create(manifest, all_of_them)
        except InputError as error:
            left = await self.unregister()
            raise InputError("; ".join([error.what, *left]), error.where, error.fix) from None
        except BaseException:
            await self.unregister()
            raise

    async def unregister(self) -> list[str]:
        """Delete what `register` created; returns a clause for each configuration that could not be deleted."""
        created, self._created = self._created, []
        problems = await asyncio.gather(*(self._delete(path, made) for path, made in created))
        return [problem for problem in problems if problem]

    async def _delete(self, path: str, made: str | Manifest) -> str:
        """Delete one configuration, and return the failure as a clause; empty on success."""
        try:
            # It may be there, with the content that was sent.
            uid = made if isinstance(made, str) else await self._uid(path, made)
            if not uid:
                return ""
            options = {"preconditions": {"uid": uid}}
            status, body = await self._api.request("DELETE", path, body=options, seconds=_DELETE_SECONDS)
        except ApiConnectionError as error:
            return f"{path} was not deleted: {error.why}; delete it manually"
        # 404 and 409: another program has deleted or replaced it, so nothing is left to delete.
        if status in (200, 202, 404, 409):
            return ""
        return f"{path} was not deleted: status {status}: {decode_status(body).text}; delete it manually"

    async def _create(self, manifest: Manifest, all_of_them: Sequence[Manifest]) -> None:
        name, where = manifest["metadata"]["name"], f"{manifest['kind']} {manifest['metadata']['name']}"
        plural = f"{manifest['kind'].lower()}s"
        collection, path = object_path(API_VERSION, plural), object_path(API_VERSION, plural, name=name)
        for attempt, seconds in enumerate(_CREATE_PAUSES):
            try:
                status, body = await self._api.request("POST", collection, body=manifest)
                if status == 409 and attempt and (uid := await self._uid(path, manifest)):
                    self._created.append((path, uid))
                    return
                if status == 409 and await self._delete_remnant(path, manifest):
                    self.replaced.append(f"{manifest['kind']}/{name}")
                    status, body = await self._api.request("POST", collection, body=manifest)
            except ApiConnectionError as error:
                self._created.append((path, manifest))
                fix = "start the server again once the API server answers"
                raise InputError(f"cannot be created: {error.why}", where, fix) from None
            if status < 500:
                break
            await asyncio.sleep(seconds)
        if status == 409:
            every = deletion_command((one["kind"], one["metadata"]["name"]) for one in all_of_them)
            fix = "stop the server that registered it, use another name with --register-as, or, if that server was "
            raise InputError("already exists", where, f"{fix}killed, delete what it left: {every} --ignore-not-found")
        if status != 201:
            self._created += [(path, manifest)] if status >= 500 else []
            answer = decode_status(body)
            fix = advise(status, answer, "create webhook configurations")
            raise InputError(f"the API server answered status {status}: {answer.text}", where, fix)
        self._created.append((path, msgspec.json.decode(body)["metadata"]["uid"]))

    async def _delete_remnant(self, path: str, manifest: Manifest) -> bool:
        """Delete a configuration all of whose entries call the URL of this server: who registered it was killed."""
        status, body = await self._api.request("GET", path, seconds=_DELETE_SECONDS)
        live = object_in(body, path) if status == 200 else {}
        called, own = (
            {urlsplit(str(entry["clientConfig"].get("url") or ""))[:2] for entry in each.get("webhooks") or ()}
            for each in (live, manifest)
        )
        if not own or called != own or ("", "") in own:
            return False
        return not await self._delete(path, str(live["metadata"]["uid"]))

    async def _uid(self, path: str, manifest: Manifest) -> str:
        """The uid of a configuration with the content of a manifest; empty: there is none."""
        status, body = await self._api.request("GET", path, seconds=_DELETE_SECONDS)
        live = object_in(body, path) if status == 200 else {}
        there, sent = ([one.get("clientConfig") for one in each.get("webhooks") or ()] for each in (live, manifest))
        return str(live["metadata"]["uid"]) if status == 200 and there == sent else ""
