"""Webhooks of other projects: one that makes the API server call kubevirt-webhook again, and virt-api's own."""

from __future__ import annotations

import base64
import json
import secrets
from http.server import BaseHTTPRequestHandler
from typing import ClassVar, Self

from .access import Access
from .kube import Json, Kube, denial, eventually
from .loopback import LoopbackServer, reply
from .objects import launcher_pod, obj
from .webhook_server import CONFIGURATIONS
from .workloads import PODS, VMIS

PATCH = [{"op": "add", "path": "/metadata/labels/example.com~1seen", "value": "yes"}]
MARKED = "Eviction triggered evacuation of VMI"
DESCHEDULER = "sigs.k8s.io/descheduler"


class ForeignWebhook:
    """A webhook for the CREATEs, or other operations, on one resource in one namespace.

    A context manager: entered, the API server calls it; left, it is gone. ``asked`` has the objects' names, and
    of objects whose names the API server makes their beginnings.
    """

    kind = "MutatingWebhookConfiguration"
    resource = "pods"
    operation = "CREATE"
    fields: ClassVar[Json] = {}

    def __init__(self, access: Access, namespace: str) -> None:
        self._access = access
        self.namespace = namespace
        self._name = f"zzz-{secrets.token_hex(4)}"
        self._path = CONFIGURATIONS[0 if self.kind.startswith("Mutating") else 1]
        self._called = False
        self.asked: list[str] = []
        self.heads: list[str] = []
        self._server = LoopbackServer(self._answer, access.pki.serving(self._name))

    def answer(self, request: Json) -> Json:
        """The response to a request, without its uid."""
        raise NotImplementedError

    def probe(self) -> None:
        """Sends a request that matches this webhook, and does not match kubevirt-webhook."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._server.__enter__()
        self._access.admin.create(self._path, self._configuration())
        eventually(self._is_called, what="the API server to call the other webhook")
        return self

    def __exit__(self, *_: object) -> None:
        self._access.admin.delete(self._path, self._name)
        self._server.__exit__()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        self._called = True
        self.heads.append(f"{handler.requestline}\n{handler.headers}")
        review = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        response = {"uid": review["request"]["uid"], **self.answer(review["request"])}
        answer = {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}
        reply(handler, json.dumps(answer).encode(), headers={"Content-Type": "application/json"})

    def _is_called(self) -> bool:
        self.probe()
        return self._called

    def _configuration(self) -> Json:
        authority = base64.b64encode(self._access.pki.ca.read_bytes()).decode()
        what = {"operations": [self.operation], "resources": [self.resource]}
        rule = {"apiGroups": [""], "apiVersions": ["v1"], **what}
        entry = {
            "name": f"{self._name}.example.com",
            "clientConfig": {"url": f"https://localhost:{self._server.port}/", "caBundle": authority},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
            "sideEffects": "NoneOnDryRun",
            "admissionReviewVersions": ["v1"],
            **self.fields,
        }
        return obj(self.kind, self._name, webhooks=[entry])


class Labeller(ForeignWebhook):
    """A webhook that labels every new pod after kubevirt-webhook has seen it."""

    def answer(self, request: Json) -> Json:
        self.asked.append(request["object"]["metadata"].get("generateName", ""))
        patch = base64.b64encode(json.dumps(PATCH).encode()).decode()
        return {"allowed": True, "patchType": "JSONPatch", "patch": patch}

    def probe(self) -> None:
        """A pod that is not a launcher pod."""
        probe = launcher_pod("probe")
        probe["metadata"]["labels"] = {"app": "probe"}
        self._access.admin.create(PODS, probe, self.namespace, dryRun="All")


class EvictionAdmitter(ForeignWebhook):
    """Answers evictions of VMs' pods as virt-api does: lets the VM go down, or marks it for evacuation and denies."""

    kind = "ValidatingWebhookConfiguration"
    resource = "pods/eviction"

    def answer(self, request: Json) -> Json:
        if request["name"] == "probe":
            return {"allowed": True}
        self.asked.append(request["name"])
        admin, namespace = self._access.admin, request["namespace"]
        pod = admin.get(PODS, request["name"], namespace)
        vmi = pod["metadata"]["annotations"]["kubevirt.io/domain"]
        if admin.get(VMIS, vmi, namespace)["spec"]["evictionStrategy"] == "None":
            return {"allowed": True}
        options = request["object"].get("deleteOptions") or {}
        dry: Json = {"dryRun": "All"} if request["dryRun"] or options.get("dryRun") == ["All"] else {}
        admin.patch(VMIS, vmi, {"status": {"evacuationNodeName": pod["spec"]["nodeName"]}}, namespace, **dry)
        return {"allowed": False, "status": {"code": 429, "message": f'{MARKED} "{namespace}/{vmi}"'}}

    def probe(self) -> None:
        """The eviction of a pod that is not there: the webhook gets it before the API server looks for the pod."""
        error = denial(lambda: evict(self._access.admin, "probe", self.namespace))
        assert error is None or error.status == 404, error


def evict(
    kube: Kube, pod: str, namespace: str, by: str | None = None, options: Json | None = None, **query: str
) -> None:
    """Evicts a pod as a drain does; ``by`` is the requester in the annotation, as the descheduler sets it."""
    more: Json = {"annotations": {"requested-by": by, "reason": "triggered by a profile"}} if by else {}
    written = obj("Eviction", pod, **more, **({"deleteOptions": options} if options else {}))
    kube.create(PODS, written, namespace, name=pod, subresource="eviction", **query)
