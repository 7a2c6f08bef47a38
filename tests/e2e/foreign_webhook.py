"""A mutating webhook of somebody else, which runs after ours: what makes the API server ask us a second time."""

from __future__ import annotations

import base64
import http.server
import json
import secrets
import ssl
import threading
from types import TracebackType
from typing import Any, Self

from .access import Access
from .commands import LOOPBACK
from .kube import Json, eventually
from .objects import launcher_pod
from .webhook_server import CONFIGURATIONS

LABEL = "example.com/seen"
PATCH = [{"op": "add", "path": f"/metadata/labels/{LABEL.replace('/', '~1')}", "value": "yes"}]
NODE_AFFINITY = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms"


class ForeignWebhook:
    """Labels every pod that is created in one namespace.

    A context manager: entered, the API server calls it; left, it is gone.

    Args:
        term: is added to the required node affinity of pods that have one.
    """

    def __init__(self, access: Access, namespace: str, term: Json | None = None) -> None:
        self._access = access
        self._namespace = namespace
        self._term = term
        self._name = f"zzz-{secrets.token_hex(4)}"
        self.pods: list[str] = []

    def __enter__(self) -> Self:
        webhook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = json.dumps(webhook.review(json.loads(body))).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args: Any) -> None: ...

        self._server = http.server.ThreadingHTTPServer((LOOPBACK, 0), Handler)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self._access.pki.serving(self._name))
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self._access.admin.create(CONFIGURATIONS[0], self._configuration())
        eventually(self._called, what="the API server to call the other webhook")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._access.admin.delete(CONFIGURATIONS[0], self._name)
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def review(self, review: Json) -> Json:
        request = review["request"]
        self.pods.append(request["object"]["metadata"].get("generateName", ""))
        more = []
        if self._term and "nodeAffinity" in request["object"]["spec"].get("affinity", {}):
            more = [{"op": "add", "path": f"{NODE_AFFINITY}/-", "value": self._term}]
        patch = base64.b64encode(json.dumps([*PATCH, *more]).encode()).decode()
        response = {"uid": request["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch}
        return {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}

    def _called(self) -> bool:
        """A pod that is no launcher's: ours is not asked about it."""
        probe = launcher_pod("probe")
        probe["metadata"]["labels"] = {"app": "probe"}
        self._access.admin.create("v1/pods", probe, self._namespace, dryRun="All")
        return bool(self.pods)

    def _configuration(self) -> Json:
        authority = base64.b64encode(self._access.pki.ca.read_bytes()).decode()
        entry = {
            "name": f"{self._name}.example.com",
            "clientConfig": {"url": f"https://localhost:{self._server.server_port}/", "caBundle": authority},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self._namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": self._name},
            "webhooks": [entry],
        }
