"""The objects of an installation: the manifests of an overlay, with the admin's settings and image."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from webhook import names
from webhook.errors import InputError
from webhook.install.components import COMPONENTS
from webhook.install.registration import Manifest, configurations
from webhook.k8s.paths import object_path
from webhook.k8s.yaml_documents import plain, read_documents
from webhook.settings.fields import is_loopback
from webhook.settings.model import LayersSettings, Settings
from webhook.settings_file import parse

Overlay = Literal["kubernetes", "openshift"]
DIGEST_ANNOTATION: Final = f"{names.DOMAIN}/settings-digest"
SETTINGS_KEY: Final = "settings.yaml"
# The namespace of the manifests; `in_namespace` moves them to another one.
NAMESPACE: Final = "kubevirt-webhook"
CONFIGURATIONS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
# Creation order: for example an account before its pods, a priority level before its FlowSchema.
_ORDER: Final = (
    *("Namespace", "PriorityClass", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    *("PriorityLevelConfiguration", "FlowSchema", "ConfigMap", "Service", "PodDisruptionBudget", "NetworkPolicy"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    *("Deployment", *CONFIGURATIONS),
)
# Seconds between SIGTERM and SIGKILL: the settings' time to shut down, that for requests in flight, and a reserve.
_GRACE_SECONDS: Final = 30
_AFTER_SHUTDOWN_SECONDS: Final = 20


class Plan(msgspec.Struct, frozen=True):
    """Objects in the order in which they are created.

    Attributes:
        before: all that is created before the Deployment.
        scheduler: the second scheduler, its Deployment last; empty: none is installed.
        unwanted: the objects that an earlier installation with other settings may have left.
    """

    before: tuple[Manifest, ...]
    deployment: Manifest
    configurations: tuple[Manifest, ...]
    scheduler: tuple[Manifest, ...] = ()
    unwanted: tuple[Manifest, ...] = ()

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        """All objects in the order in which they are created."""
        return (*self.before, *self.scheduler, self.deployment, *self.configurations)

    @property
    def scheduler_deployments(self) -> tuple[Manifest, ...]:
        """The Deployment of the second scheduler; empty: none is installed."""
        return self.scheduler[-1:]


def path(manifest: Manifest, *, collection: bool = False) -> str:
    """The URL path of an object, or of its collection."""
    version, metadata = manifest["apiVersion"], manifest["metadata"]
    word = manifest["kind"].lower()
    word = f"{word[:-1]}ies" if word.endswith("y") else f"{word}es" if word.endswith("s") else f"{word}s"
    return object_path(version, word, metadata.get("namespace", ""), "" if collection else metadata["name"])


def title(manifest: Manifest) -> str:
    """``KIND NAME`` or ``KIND NAMESPACE/NAME``."""
    metadata = manifest["metadata"]
    return f"{manifest['kind']} " + "/".join(metadata[key] for key in ("namespace", "name") if key in metadata)


def config_map(directory: Path, overlay: Overlay, namespace: str = NAMESPACE) -> Manifest:
    """The ConfigMap with an overlay's settings."""
    (manifest,) = (one for one in _render(directory, overlay, namespace) if one["kind"] == "ConfigMap")
    return manifest


def network_policy(directory: Path, overlay: Overlay, namespace: str = NAMESPACE) -> Manifest:
    """The NetworkPolicy as an overlay has it."""
    (manifest,) = (one for one in _render(directory, overlay, namespace) if one["kind"] == "NetworkPolicy")
    return manifest


def in_namespace(value: Any, namespace: str) -> Any:
    """A manifest, or a part of one, of an installation in another namespace.

    Everything that names the namespace follows: the objects themselves, the subjects of bindings and of the FlowSchema,
    the Service that the API server calls, its DNS names, and the commands of alerts.
    """
    if isinstance(value, list):
        return [in_namespace(each, namespace) for each in value]
    if isinstance(value, str):
        if value == f"{NAMESPACE}/{NAMESPACE}":
            return f"{namespace}/{NAMESPACE}"
        moved = value.replace(f"{NAMESPACE}.{NAMESPACE}.svc", f"{NAMESPACE}.{namespace}.svc")
        moved = moved.replace(f"kubectl -n {NAMESPACE} ", f"kubectl -n {namespace} ")
        return moved.replace(f"system:serviceaccount:{NAMESPACE}:", f"system:serviceaccount:{namespace}:")
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {
        key: namespace if key == "namespace" and each == NAMESPACE else in_namespace(each, namespace)
        for key, each in value.items()
    }
    if result.get("kind") == "Namespace" and result["metadata"]["name"] == NAMESPACE:
        result["metadata"]["name"] = namespace
    return result


def settings_in(text: str, where: str, namespace: str) -> str:
    """The content of a settings file, called ``where``, with a line that says in which namespace the replicas run.

    Raises:
        InputError: the settings are invalid, or name another namespace.
    """
    if parse(text.encode(), where).webhooks.service.namespace == namespace:
        return text
    # A namespace may be called 123 or true.
    name = namespace if plain(namespace) == namespace else f'"{namespace}"'
    line = f"webhooks: {{service: {{namespace: {name}}}}}"
    longer = f"{text.rstrip()}\n{line}\n" if text.strip() != "{}" else f"{line}\n"
    try:
        if parse(longer.encode(), where).webhooks.service.namespace == namespace:
            return longer
    except InputError:
        pass  # There is a section of this name already, or the file is one flow mapping.
    what = f"webhooks.service.namespace is not {namespace}, where the replicas are to run"
    raise InputError(what, where, f"set webhooks.service.namespace to {namespace}, or change --namespace")


def of(directory: Path, overlay: Overlay, text: str, where: str, image: str) -> Plan:
    """The plan for a settings file, which messages call ``where``, with the manifests of a directory's overlay.

    Raises:
        InputError: the settings are invalid, or do not match the manifests.
    """
    settings = parse(text.encode(), where)
    namespace = settings.webhooks.service.namespace
    manifests = [one for one in _render(directory, overlay, namespace) if one["kind"] not in CONFIGURATIONS]
    (deployment,) = (one for one in manifests if one["kind"] == "Deployment")
    own = config_map(directory, overlay)["data"][SETTINGS_KEY]
    _check(settings, parse(own.encode(), overlay), where)
    optional, unwanted = rights(settings)
    ports, data = _ports(settings), {"data": {SETTINGS_KEY: text}}
    before = in_order(one for one in (*manifests, *optional) if one is not deployment)
    template = deployment["spec"]["template"]
    # Replicas follow their file some day; a roll-out is known to have ended.
    template["metadata"]["annotations"][DIGEST_ANNOTATION] = hashlib.sha256(text.encode()).hexdigest()[:16]
    grace = max(_GRACE_SECONDS, settings.server.shutdown_seconds + _AFTER_SHUTDOWN_SECONDS)
    template["spec"]["terminationGracePeriodSeconds"] = grace
    template["spec"]["containers"][0]["image"] = image
    return Plan(
        tuple({**one, **data} if one["kind"] == "ConfigMap" else with_ports(one, ports) for one in before),
        with_layers(deployment, settings.layers),
        tuple(configurations(settings)),
        unwanted=unwanted,
    )


def in_order(objects: Iterable[Manifest]) -> list[Manifest]:
    """Objects in the order in which they are created."""
    return sorted(objects, key=lambda one: _ORDER.index(one["kind"]))


def rights(settings: Settings) -> tuple[tuple[Manifest, ...], tuple[Manifest, ...]]:
    """Roles and bindings of optional components: those that the settings enable, and the others."""
    both: dict[bool, list[Manifest]] = {True: [], False: []}
    for component in COMPONENTS:
        objects = in_namespace([*component.role.manifests], settings.webhooks.service.namespace)
        both[component.is_needed(settings)] += objects
    return tuple(both[True]), tuple(both[False])


def everything(directory: Path, namespace: str = NAMESPACE) -> tuple[Manifest, ...]:
    """All objects that an installation can have, in creation order, with the overlay's settings and image.

    Those of the second scheduler are not among them.
    """
    text = settings_in(config_map(directory, "kubernetes")["data"][SETTINGS_KEY], SETTINGS_KEY, namespace)
    plan = of(directory, "kubernetes", text, SETTINGS_KEY, "")
    own, *rest = plan.before
    metadata = {"namespace": namespace, "name": parse(text.encode(), "").tls.secret_name}
    secret: Manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    plugin = shipped(directory / "components" / "kubevirt-plugin" / "plugin.yaml")
    return (own, secret, *plan.unwanted, *plugin, *rest, plan.deployment, *plan.configurations)


def _render(directory: Path, overlay: Overlay, namespace: str) -> list[Manifest]:
    moved: list[Manifest] = in_namespace(shipped(directory / "rendered" / f"{overlay}.yaml"), namespace)
    return moved


def _check(settings: Settings, own: Settings, where: str) -> None:
    """Check that the settings match what is fixed in the manifests."""
    fixed: Iterable[tuple[str, Any, Any]] = (
        ("webhooks.service.name", settings.webhooks.service.name, own.webhooks.service.name),
        ("webhooks.service.port", settings.webhooks.service.port, own.webhooks.service.port),
        ("tls.secretName", settings.tls.secret_name, own.tls.secret_name),
        ("server.listen", _port(settings.server.listen), _port(own.server.listen)),
        ("server.opsListen", _port(settings.server.ops_listen), _port(own.server.ops_listen)),
    )
    for key, has, needs in fixed:
        if has != needs:
            fix = f"use {needs}, or apply your own overlay with kubectl apply -k"
            raise InputError(f"{key} is {has}, but the manifests have {needs}", where, fix)
    if own.kubevirt.namespace and not settings.kubevirt.namespace:
        fix = f"add kubevirt: {{namespace: {own.kubevirt.namespace}}}, or another namespace"
        raise InputError("kubevirt.namespace is missing; no webhook must match that namespace", where, fix)


def _port(address: str) -> str:
    return address.rpartition(":")[2]


def _ports(settings: Settings) -> dict[str, int]:
    """The ports of further listeners that others than this host may reach, by their purpose."""
    places = {
        "admin": settings.admin.listen,
        "layers": settings.layers.listen,
    }
    return {name: int(_port(address)) for name, address in places.items() if address and not is_loopback(address)}


def with_ports(manifest: Manifest, ports: Mapping[str, int]) -> Manifest:
    """A Service with the ports of the named components, or a NetworkPolicy that opens them; others are unchanged."""
    if not ports or manifest["kind"] not in ("Service", "NetworkPolicy"):
        return manifest
    spec = manifest["spec"]
    if manifest["kind"] == "Service":
        own = [{"name": name, "port": port, "targetPort": port, "protocol": "TCP"} for name, port in ports.items()]
        return {**manifest, "spec": {**spec, "ports": [*spec["ports"], *own]}}
    rules = [{"ports": [{"port": port, "protocol": "TCP"}]} for port in ports.values()]
    return {**manifest, "spec": {**spec, "ingress": [*spec["ingress"], *rules]}}


def shipped(file: Path) -> list[dict[str, Any]]:
    """The objects of a file; new ones each time, since callers change them. An `InputError` where it cannot be read."""
    try:
        about = file.stat()
        state = (about.st_ino, about.st_mtime_ns, about.st_size)
    except OSError:
        state = None  # reading it says why
    objects: list[dict[str, Any]] = msgspec.json.decode(_read(file, state))
    return objects


# A plan takes parts of the same files up to ten times, and a report on permissions all of them for each installation.
@lru_cache(maxsize=32)
def _read(file: Path, _state: tuple[int, int, int] | None) -> bytes:
    """The objects of a file in a state, as JSON, which is decoded in no time."""
    return msgspec.json.encode([document.value for document in read_documents(file)])


def with_layers(deployment: Manifest, settings: LayersSettings) -> Manifest:
    """The Deployment with the client CA and the cache, if others than the own pod may ask for scores."""
    if not settings.listen or is_loopback(settings.listen):
        return deployment
    result = deepcopy(deployment)
    spec = result["spec"]["template"]["spec"]
    spec["volumes"] += [
        {"name": "layers-clients", "secret": {"secretName": "kubevirt-webhook-layers"}},
        {"name": "layers-cache", "emptyDir": {"sizeLimit": "128Mi"}},
    ]
    spec["containers"][0]["volumeMounts"] += [
        {"name": "layers-clients", "mountPath": "/etc/kubevirt-webhook-layers", "readOnly": True},
        {"name": "layers-cache", "mountPath": "/var/cache/kubevirt-webhook"},
    ]
    return result
