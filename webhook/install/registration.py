"""The webhook configurations, from the settings and the endpoint table.

The order in which the API server calls mutating webhooks is that of their configurations' names, so there are two:
`names.FIRST_CONFIGURATION` writes into VMs before KubeVirt's own mutator, `names.LAST_CONFIGURATION` sees pods after
every other scheduler's webhook had its say. None carries a caBundle: who serves the certificate writes it.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from webhook import names
from webhook.errors import InputError
from webhook.errors import quote as quote_text
from webhook.install.conditions import fails_closed, match_conditions
from webhook.install.denials import advise
from webhook.k8s.client.api import ApiConnectionError, Requests
from webhook.k8s.client.status import decode_status
from webhook.names import Mode, Policy
from webhook.policies.common.migration_targets import JOB_UID as MIGRATION_POLICY_UID
from webhook.review.endpoints import ENDPOINTS, Endpoint
from webhook.settings.address import is_host
from webhook.settings.snapshot import Settings

Manifest = dict[str, Any]

# The time limit of each call that deletes a configuration, which delays the end of the process.
_DELETE_SECONDS: Final = 5.0

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


def check_url(url: str) -> None:
    """Check that the API server can call a server by a URL.

    Args:
        url: the URL of a server outside the cluster.

    Raises:
        InputError: the URL does not have the form ``https://HOST[:PORT]``.
    """
    fix = "use https://HOST:PORT"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise InputError(f"{quote_text(url)} is not a valid URL ({error})", "--url", fix) from None
    if parts.scheme != "https":
        raise InputError(f"{quote_text(url)} is not an https URL, which the API server requires", "--url", fix)
    if not host or port == 0 or not is_host(host):
        raise InputError(f"{quote_text(url)} has no valid host name or IP address", "--url", fix)
    if parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None:
        raise InputError(f"{quote_text(url)} has more than a host and a port", "--url", fix)


def configurations(settings: Settings, target: RegistrationTarget = RegistrationTarget()) -> list[Manifest]:  # noqa: B008 - frozen
    """The three configurations: two mutating, one validating."""
    mutating = [e for e in ENDPOINTS if e.verb == "mutate" and _is_wanted(e, settings)]
    last = [e for e in mutating if e.group == ""]
    first = [e for e in mutating if e.group != ""]
    validating = [e for e in ENDPOINTS if e.verb == "validate" and _is_wanted(e, settings)]
    plan = (
        ("MutatingWebhookConfiguration", names.FIRST_CONFIGURATION, first),
        ("MutatingWebhookConfiguration", names.LAST_CONFIGURATION, last),
        ("ValidatingWebhookConfiguration", names.FIRST_CONFIGURATION, validating),
    )
    return [
        _configuration(kind, name + target.suffix, [_entry(endpoint, settings, target) for endpoint in endpoints])
        for kind, name, endpoints in plan
    ]


def entry_name(endpoint: Endpoint) -> str:
    """The name of an endpoint's entry, which users see in denials and admins in the API server's metrics."""
    return f"{endpoint.resource}.{endpoint.policy}.{endpoint.stage}.{names.DOMAIN}"


def _configuration(kind: str, name: str, entries: list[Manifest]) -> Manifest:
    """A configuration; without entries, applying it removes those that it had."""
    metadata = {"name": name, "labels": {"app.kubernetes.io/name": "kubevirt-webhook"}}
    manifest: Manifest = {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata}
    if entries:
        # The API server drops an empty list, so with one, every apply would be a change.
        manifest["webhooks"] = entries
    return manifest


def _is_wanted(endpoint: Endpoint, settings: Settings) -> bool:
    switches = {
        (names.SCHEDULING, "virtualmachines"): settings.scheduling.looks_at_virtual_machines,
        (names.SCHEDULING, "virtualmachineinstances"): settings.scheduling.looks_at_virtual_machine_instances,
        (names.INSTANCETYPES, "virtualmachines"): settings.instancetypes.virtual_machines,
        (names.INSTANCETYPES, "virtualmachineinstances"): settings.instancetypes.virtual_machine_instances,
    }
    return switches.get((endpoint.policy, endpoint.resource), True)


def _entry(endpoint: Endpoint, settings: Settings, target: RegistrationTarget) -> Manifest:
    fail = fails_closed(endpoint, settings) and not target.only_ignore
    entry: Manifest = {
        "name": entry_name(endpoint),
        "clientConfig": _client_config(endpoint, settings, target),
        "rules": [
            {
                "apiGroups": [endpoint.group],
                "apiVersions": [endpoint.version],
                "operations": list(endpoint.operations),
                "resources": [_resource(endpoint)],
                "scope": "Namespaced",
            }
        ],
        "namespaceSelector": {"matchExpressions": namespace_selector(endpoint.policy, settings, _modes(endpoint))},
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


def _resource(endpoint: Endpoint) -> str:
    return f"{endpoint.resource}/{endpoint.sub_resource}" if endpoint.sub_resource else endpoint.resource


def _client_config(endpoint: Endpoint, settings: Settings, target: RegistrationTarget) -> Manifest:
    if target.url:
        config: Manifest = {"url": target.url.rstrip("/") + endpoint.path}
    else:
        webhooks = settings.webhooks
        config = {
            "service": {
                "namespace": webhooks.service_namespace,
                "name": webhooks.service_name,
                "port": webhooks.service_port,
                "path": endpoint.path,
            }
        }
    if target.ca_bundle:
        config["caBundle"] = b64encode(target.ca_bundle).decode("ascii")
    return config


def _modes(endpoint: Endpoint) -> list[Mode]:
    return [names.WARN, names.AUDIT] if endpoint.stage == names.OBSERVE else [names.ENFORCE]


def namespace_selector(policy: Policy, settings: Settings, modes: Iterable[Mode]) -> list[Manifest]:
    """The namespaces in some modes of a policy, as a selector's ``matchExpressions``.

    Args:
        policy: the policy, whose label counts.
        settings: of which some count in every namespace.
        modes: ``enforce`` alone, or others without it.
    """
    label = names.policy_label(policy)
    wanted = list(modes)
    if settings.policy(policy).cluster_wide and wanted == [names.ENFORCE]:
        opted: Manifest = {"key": label, "operator": "NotIn", "values": [names.OFF, names.WARN, names.AUDIT]}
    else:
        opted = {"key": label, "operator": "In", "values": wanted}
    excluded = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": sorted(settings.excluded_namespaces),
    }
    return [opted, excluded, *(dict(expression) for expression in settings.webhooks.namespace_selector)]


class _Created(msgspec.Struct):
    class Meta(msgspec.Struct):
        uid: str

    metadata: Meta


class Registration:
    """Configurations that exist as long as this process: for a server outside the cluster.

    It creates and deletes, and never overwrites the configurations of others.

    Args:
        api: the connection to the API server.
    """

    def __init__(self, api: Requests) -> None:
        self._api: Final = api
        # Path, and uid if it is known: a POST without an answer may have been executed.
        self._created: list[tuple[str, str | None]] = []
        self._entries: dict[str, Manifest] = {}

    async def register(self, manifests: Iterable[Manifest]) -> None:
        """Create all configurations, or none.

        Raises:
            InputError: one exists already, or the API server denies it or does not answer.
        """
        try:
            for manifest in manifests:
                await self._create(manifest)
        except InputError as error:
            left = await self.unregister()
            raise InputError("; ".join([error.what, *left]), error.where, error.fix) from None
        except BaseException:
            await self.unregister()
            raise

    async def unregister(self) -> list[str]:
        """Delete what `register` created.

        Returns:
            A clause for each configuration that could not be deleted.
        """
        created, self._created = self._created, []
        problems = await asyncio.gather(*(self._delete(path, uid) for path, uid in created))
        return [problem for problem in problems if problem]

    async def _delete(self, path: str, uid: str | None) -> str:
        """Delete one configuration, and return the failure as a clause; empty on success."""
        try:
            if uid is None:
                uid = await self._own_uid(path)
                if uid is None:
                    return ""
            status, body = await self._api.request(
                "DELETE", path, body={"preconditions": {"uid": uid}}, seconds=_DELETE_SECONDS
            )
        except ApiConnectionError as error:
            return f"{path} was not deleted: {error.why}; delete it manually"
        # 404 and 409: another program has deleted or replaced it, so nothing is left to delete.
        if status in (200, 202, 404, 409):
            return ""
        return f"{path} was not deleted: status {status}: {decode_status(body).text}; delete it manually"

    async def _own_uid(self, path: str) -> str | None:
        """The uid of a configuration whose creation had no answer, if it exists with the content that was sent."""
        status, body = await self._api.request("GET", path, seconds=_DELETE_SECONDS)
        if status != 200:
            return None
        found = msgspec.json.decode(body)
        sent = [entry["clientConfig"] for entry in self._entries[path].get("webhooks", ())]
        if [entry.get("clientConfig") for entry in found.get("webhooks") or ()] != sent:
            return None
        return str(found["metadata"]["uid"])

    async def _create(self, manifest: Manifest) -> None:
        name = manifest["metadata"]["name"]
        collection = f"/apis/{API_VERSION}/{manifest['kind'].lower()}s"
        path = f"{collection}/{quote(name)}"
        try:
            status, body = await self._api.request("POST", collection, body=manifest)
        except ApiConnectionError as error:
            self._entries[path] = manifest
            self._created.append((path, None))
            fix = "start the server again once the API server answers"
            raise InputError(f"cannot be created: {error.why}", f"{manifest['kind']} {name}", fix) from None
        if status == 409:
            fix = "stop the server that registered it, delete it, or use another name with --register-as"
            raise InputError("already exists", f"{manifest['kind']} {name}", fix)
        if status != 201:
            answer = decode_status(body)
            fix = advise(status, answer, "create webhook configurations")
            what = f"the API server answered status {status}: {answer.text}"
            raise InputError(what, f"{manifest['kind']} {name}", fix)
        self._created.append((path, msgspec.json.decode(body, type=_Created).metadata.uid))
