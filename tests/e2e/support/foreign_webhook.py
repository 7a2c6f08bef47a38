"""Webhooks of other projects: one that makes the API server call kubevirt-webhook again, and virt-api's own."""

from __future__ import annotations

import base64
import http.server
import json
import secrets
import ssl
import threading
from typing import Any, Self

from .access import Access
from .commands import LOOPBACK
from .kube import Json, KubeError, eventually
from .objects import launcher_pod
from .webhook_server import CONFIGURATIONS
from .workloads import PODS, VMIS

LABEL = "example.com/seen"
PATCH = [{"op": "add", "path": f"/metadata/labels/{LABEL.replace('/', '~1')}", "value": "yes"}]
NODE_AFFINITY = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms"
MARKED = "Eviction triggered evacuation of VMI"


class ForeignWebhook:
    """A webhook for the CREATEs of one resource in one namespace.

    A context manager: entered, the API server calls it; left, it is gone.
    """

    kind = "MutatingWebhookConfiguration"
    resource = "pods"

    def __init__(self, access: Access, namespace: str) -> None:
        self._access = access
        self.namespace = namespace
        self._name = f"zzz-{secrets.token_hex(4)}"
        self._path = CONFIGURATIONS[0 if self.kind.startswith("Mutating") else 1]
        self._called = False
        self.heads: list[str] = []

    def answer(self, request: Json) -> Json:
        """The response to a request, without its uid."""
        raise NotImplementedError

    def probe(self) -> None:
        """Sends a request that matches this webhook, and does not match kubevirt-webhook."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        webhook = self

        class ForeignHandler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                webhook.heads.append(f"{self.requestline}\n{self.headers}")
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = json.dumps(webhook._review(json.loads(body))).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args: Any) -> None: ...

        self._server = http.server.ThreadingHTTPServer((LOOPBACK, 0), ForeignHandler)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self._access.pki.serving(self._name))
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self._access.admin.create(self._path, self._configuration())
        eventually(self._is_called, what="the API server to call the other webhook")
        return self

    def __exit__(self, *_: object) -> None:
        self._access.admin.delete(self._path, self._name)
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _review(self, review: Json) -> Json:
        self._called = True
        response = {"uid": review["request"]["uid"], **self.answer(review["request"])}
        return {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}

    def _is_called(self) -> bool:
        self.probe()
        return self._called

    def _configuration(self) -> Json:
        authority = base64.b64encode(self._access.pki.ca.read_bytes()).decode()
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [self.resource]}
        entry = {
            "name": f"{self._name}.example.com",
            "clientConfig": {"url": f"https://localhost:{self._server.server_port}/", "caBundle": authority},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
            "sideEffects": "NoneOnDryRun",
            "admissionReviewVersions": ["v1"],
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": self.kind,
            "metadata": {"name": self._name},
            "webhooks": [entry],
        }


class Labeller(ForeignWebhook):
    """A webhook that labels every new pod after kubevirt-webhook has seen it.

    Args:
        term: is added to the required node affinity of pods that have one.
    """

    def __init__(self, access: Access, namespace: str, term: Json | None = None) -> None:
        super().__init__(access, namespace)
        self.pods: list[str] = []
        self._term = term

    def answer(self, request: Json) -> Json:
        self.pods.append(request["object"]["metadata"].get("generateName", ""))
        more = []
        if self._term and "nodeAffinity" in request["object"]["spec"].get("affinity", {}):
            more = [{"op": "add", "path": f"{NODE_AFFINITY}/-", "value": self._term}]
        patch = base64.b64encode(json.dumps([*PATCH, *more]).encode()).decode()
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

    def __init__(self, access: Access, namespace: str) -> None:
        super().__init__(access, namespace)
        self.asked: list[str] = []

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
        try:
            self._access.admin.create(PODS, eviction("probe"), self.namespace, name="probe", subresource="eviction")
        except KubeError as error:
            assert error.status == 404, error


def eviction(pod: str, by: str | None = None) -> Json:
    """The Eviction that a drain posts; ``by`` is the requester in the annotation, as the descheduler sets it."""
    metadata: Json = {"name": pod}
    if by is not None:
        metadata["annotations"] = {"requested-by": by, "reason": "triggered by a profile"}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
