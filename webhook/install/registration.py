"""The webhook configurations, from the settings and the policies' endpoints.

The order in which the API server calls mutating webhooks is that of their configurations' names, so there are two:
`names.FIRST_CONFIGURATION` writes into VMs before KubeVirt's own mutator, `names.LAST_CONFIGURATION` sees pods after
every other scheduler's webhook had its say. None carries a caBundle: who serves the certificate writes it.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from webhook import names
from webhook.errors import InputError, quote
from webhook.k8s.client.api import UNDECODABLE, ApiConnectionError, Requests
from webhook.k8s.paths import object_path
from webhook.k8s.types.meta import ApiStatus, decode_status
from webhook.names import Mode, PolicyName
from webhook.policies.registry import ENDPOINTS
from webhook.policy import Endpoint
from webhook.settings.fields import is_host
from webhook.settings.model import Settings

AGAIN: Final = "run the command again to continue"


def fails_closed(endpoint: Endpoint, settings: Settings) -> bool:
    """Whether requests are denied while no replica answers."""
    return endpoint.fails_closed(settings) and endpoint.stage == "enforce"


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


def during_rollout(desired: Manifest, live: Manifest | None) -> Manifest:
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
    on = [endpoint for endpoint in ENDPOINTS if endpoint.is_on(settings.policy(endpoint.policy))]
    mutating = [each for each in on if each.verb == "mutate"]
    manifests: list[Manifest] = []
    for kind, name, endpoints in (
        ("MutatingWebhookConfiguration", names.FIRST_CONFIGURATION, [each for each in mutating if goes_first(each)]),
        ("MutatingWebhookConfiguration", names.LAST_CONFIGURATION, [each for each in mutating if not goes_first(each)]),
        ("ValidatingWebhookConfiguration", names.FIRST_CONFIGURATION, [each for each in on if each.verb != "mutate"]),
    ):
        metadata = {"name": name + target.suffix, "labels": {"app.kubernetes.io/name": "kubevirt-webhook"}}
        # The API server drops an empty list, so with one, every apply would be a change. Without, it removes entries.
        webhooks = {"webhooks": [_entry(each, settings, target) for each in endpoints]} if endpoints else {}
        manifests.append({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, **webhooks})
    return manifests


def goes_first(endpoint: Endpoint) -> bool:
    """Whether a mutating endpoint is called before KubeVirt's own mutator, and not after all others.

    KubeVirt's objects are: virt-api-mutator then treats a matcher that was injected as the owner's, and has not filled
    in machine type and architecture yet. Pods and their evictions come last, after every other scheduler's webhook.
    """
    return endpoint.group == names.KUBEVIRT_GROUP


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
    conditions = _match_conditions(endpoint, settings)
    matched = {"apiGroups": [endpoint.group], "apiVersions": [endpoint.version], "operations": operations}
    entry: Manifest = {
        # Users see it in denials, and admins in the API server's metrics.
        "name": f"{endpoint.segment}.{endpoint.policy}.{endpoint.stage}.{names.DOMAIN}",
        "clientConfig": config,
        "rules": [{**matched, "resources": [resource], "scope": "Namespaced" if endpoint.namespaced else "Cluster"}],
        "namespaceSelector": {"matchExpressions": namespace_selector(endpoint.policy, settings, modes)},
        # The API server stores no empty list, so that kubectl would find a difference.
        **({"matchConditions": conditions} if conditions else {}),
        # The API server converts objects of other versions, so that one rule matches them all.
        "matchPolicy": "Equivalent",
        "failurePolicy": "Fail" if fail else "Ignore",
        # Events are a side effect; kubevirt-webhook writes none for a dry run.
        "sideEffects": "NoneOnDryRun" if settings.events else "None",
        "timeoutSeconds": settings.webhooks.timeout_seconds,
        "admissionReviewVersions": ["v1"],
    }
    if endpoint.object_selector:
        entry["objectSelector"] = deepcopy(endpoint.object_selector)
    if endpoint.verb == "mutate":
        # A later webhook may change a pod again. VMs are excluded: after KubeVirt's mutator, one whose inference failed
        # looks as if it never had an instancetype.
        entry["reinvocationPolicy"] = "IfNeeded" if endpoint.kind == "Pod" else "Never"
    return entry


def _match_conditions(endpoint: Endpoint, settings: Settings) -> list[dict[str, str]]:
    section = settings.policy(endpoint.policy)
    further = endpoint.match_conditions_if_closed(section) if fails_closed(endpoint, settings) else {}
    conditions = {**endpoint.match_conditions(section), **further}
    return [{"name": name, "expression": cel} for name, cel in conditions.items()]


def namespace_selector(policy: PolicyName, settings: Settings, modes: Iterable[Mode]) -> list[Manifest]:
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
