"""The webhook as tutorials write it in Python: aiohttp, json, pydantic models of everything, deepcopy and make_patch.

Correct, readable, and what kubevirt-webhook is measured against, because most of what a review costs is decided by this
choice and not by the language.
"""

from __future__ import annotations

import argparse
import base64
import copy
import json
import re
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final

import jsonpatch
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

_SCHEDULER: Final = "kubevirt"
_DEFAULT_SCHEDULER: Final = "default-scheduler"
_INJECTED_ANNOTATION: Final = "kubevirt-webhook.github.io/injected-scheduler"
_MAX_BODY: Final = 7 * 1024 * 1024

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_DNS_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


class NaiveModel(BaseModel):
    """What all models share: Kubernetes' spelling in JSON, and that fields without a name here are kept."""

    model_config = ConfigDict(extra="allow", alias_generator=to_camel)


class NaiveOwnerReference(NaiveModel):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False


class NaiveObjectMeta(NaiveModel):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    owner_references: list[NaiveOwnerReference] = Field(default_factory=list)


class EnvVar(NaiveModel):
    name: str
    value: str | None = None


class VolumeMount(NaiveModel):
    name: str
    mount_path: str
    read_only: bool = False


class NaiveResources(NaiveModel):
    limits: dict[str, str] = Field(default_factory=dict)
    requests: dict[str, str] = Field(default_factory=dict)


class NaiveContainer(NaiveModel):
    name: str
    image: str | None = None
    command: list[str] = Field(default_factory=list)
    args: list[str] = Field(default_factory=list)
    env: list[EnvVar] = Field(default_factory=list)
    resources: NaiveResources = Field(default_factory=NaiveResources)
    volume_mounts: list[VolumeMount] = Field(default_factory=list)


class NaiveNamed(NaiveModel):
    name: str


class NaiveToleration(NaiveModel):
    key: str | None = None
    operator: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class NaivePodSpec(NaiveModel):
    containers: list[NaiveContainer]
    init_containers: list[NaiveContainer] = Field(default_factory=list)
    volumes: list[NaiveNamed] = Field(default_factory=list)
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: list[NaiveToleration] = Field(default_factory=list)
    scheduler_name: str | None = None


class NaivePod(NaiveModel):
    metadata: NaiveObjectMeta
    spec: NaivePodSpec


class NaiveMatcher(NaiveModel):
    name: str | None = None
    kind: str | None = None


class NaiveDomain(NaiveModel):
    cpu: dict[str, Any] | None = None
    memory: dict[str, Any] | None = None
    machine: dict[str, str] | None = None
    firmware: dict[str, str] | None = None
    devices: dict[str, Any] = Field(default_factory=dict)
    resources: dict[str, Any] = Field(default_factory=dict)


class NaiveTemplateSpec(NaiveModel):
    domain: NaiveDomain
    volumes: list[NaiveNamed] = Field(default_factory=list)
    scheduler_name: str | None = None


class NaiveTemplate(NaiveModel):
    metadata: NaiveObjectMeta = Field(default_factory=NaiveObjectMeta)
    spec: NaiveTemplateSpec


class NaiveVirtualMachineSpec(NaiveModel):
    run_strategy: str | None = None
    instancetype: NaiveMatcher | None = None
    preference: NaiveMatcher | None = None
    template: NaiveTemplate


class NaiveVirtualMachine(NaiveModel):
    metadata: NaiveObjectMeta
    spec: NaiveVirtualMachineSpec


class NaiveMigrationSpec(NaiveModel):
    vmi_name: str
    added_node_selector: dict[str, str] = Field(default_factory=dict)


class NaiveMigration(NaiveModel):
    metadata: NaiveObjectMeta
    spec: NaiveMigrationSpec


class NaiveUserInfo(NaiveModel):
    username: str
    groups: list[str] = Field(default_factory=list)


class NaiveAdmissionRequest(NaiveModel):
    uid: str
    operation: str
    namespace: str | None = None
    user_info: NaiveUserInfo
    object: dict[str, Any]


class NaiveAdmissionReview(NaiveModel):
    api_version: str
    kind: str
    request: NaiveAdmissionRequest


# An object, changed in place; the text denies it.
Policy = Callable[[dict[str, Any]], str | None]


def mutate_pod(document: dict[str, Any]) -> str | None:
    """A launcher pod of a VMI goes to the scheduler, where it is on the default one."""
    pod = NaivePod.model_validate(document)
    owned = any(owner.controller and owner.kind == "VirtualMachineInstance" for owner in pod.metadata.owner_references)
    launcher = owned and pod.metadata.labels.get("kubevirt.io") == "virt-launcher"
    if launcher and pod.spec.scheduler_name in (None, _DEFAULT_SCHEDULER):
        document["spec"]["schedulerName"] = _SCHEDULER
        _mark(document)
    return None


def mutate_vm(document: dict[str, Any]) -> str | None:
    """A VM without a scheduler gets one."""
    vm = NaiveVirtualMachine.model_validate(document)
    if vm.spec.template.spec.scheduler_name is None:
        template = document["spec"]["template"]
        template["spec"]["schedulerName"] = _SCHEDULER
        _mark(document)
        _mark(template)
    return None


def validate_migration(document: dict[str, Any]) -> str | None:
    """The added selector must be labels."""
    for key, value in NaiveMigration.model_validate(document).spec.added_node_selector.items():
        prefix, slash, name = key.rpartition("/")
        if (slash and not _is_domain(prefix)) or not _NAME.fullmatch(name):
            return f"spec.addedNodeSelector: {key!r} is no label key"
        if value and not _NAME.fullmatch(value):
            return f"spec.addedNodeSelector[{key}]: {value!r} is no label value"
    return None


def _is_domain(prefix: str) -> bool:
    return len(prefix) <= 253 and bool(_DNS_SUBDOMAIN.fullmatch(prefix))


def _mark(document: dict[str, Any]) -> None:
    document.setdefault("metadata", {}).setdefault("annotations", {})[_INJECTED_ANNOTATION] = _SCHEDULER


def handler(policy: Policy) -> Callable[[web.Request], Awaitable[web.Response]]:
    """An endpoint that evaluates with ``policy``."""

    async def handle(request: web.Request) -> web.Response:
        review = NaiveAdmissionReview.model_validate(await request.json())
        changed = copy.deepcopy(review.request.object)
        rejection = policy(changed)
        response: dict[str, Any] = {"uid": review.request.uid, "allowed": rejection is None}
        if rejection:
            response["status"] = {"code": 422, "message": rejection}
        else:
            patch = jsonpatch.make_patch(review.request.object, changed).patch
            if patch:
                response["patchType"] = "JSONPatch"
                response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
        return web.json_response({"apiVersion": review.api_version, "kind": review.kind, "response": response})

    return handle


async def ready(_: web.Request) -> web.Response:
    """It takes reviews."""
    return web.Response()


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", required=True, help="HOST:PORT of the webhooks")
    parser.add_argument("--tls-cert", required=True, help="PEM file of the certificate")
    parser.add_argument("--tls-key", required=True, help="PEM file of its key")
    options = parser.parse_args()
    host, _, port = options.listen.rpartition(":")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(options.tls_cert, options.tls_key)
    app = web.Application(client_max_size=_MAX_BODY)
    app.add_routes(
        [
            web.get("/readyz", ready),
            web.post("/mutate/pods", handler(mutate_pod)),
            web.post("/mutate/virtualmachines", handler(mutate_vm)),
            web.post("/validate/migrations", handler(validate_migration)),
        ]
    )
    web.run_app(app, host=host, port=int(port), ssl_context=tls, access_log=None, print=None)


if __name__ == "__main__":
    main()
