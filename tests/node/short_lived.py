"""A replica beside the installation whose token lives as shortly as can be, and is asked all the time.

It runs the image with the rights of the manifests. No API server calls it: the tests send it reviews themselves, so
that installing and removing everything else does not concern it.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from contextlib import closing
from pathlib import Path
from typing import Final, Self

from hack.node.cluster import AUDIT_LOG, AUDITED
from tests.builders import review
from tests.e2e.support.kube import Json, eventually
from tests.e2e.support.manifests import rbac
from tests.e2e.support.objects import obj
from tests.e2e.support.rbac import account, grant
from tests.e2e.support.repeated import Repeated
from tests.e2e.support.workloads import VMIS, launcher_of, vm, vmi_of

from .support import IMAGE, LABEL, NAMESPACE, SELF_SIGNED, SETTINGS, NodeInstallation, servers

# The shortest that an API server issues; a kubelet replaces a token after four fifths of it.
LIFETIME_SECONDS: Final = 600
# For so long an API server accepts a token that has expired: clocks may differ.
LEEWAY_SECONDS: Final = 60
DIRECTORY: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"
POD: Final = "replica"
# One VMI for every two seconds until the first token has expired, and some that are read with its successor.
RESERVED: Final = 20
NUMBER: Final = 340 + RESERVED + 1
NAMESPACE_FIELD: Final = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
SOURCES: Final[list[Json]] = [
    {"serviceAccountToken": {"path": "token", "expirationSeconds": LIFETIME_SECONDS}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": NAMESPACE_FIELD}]}},
]


class ShortLived(Repeated):
    """Runs the replica, and asks it for launcher pods of VMIs which only the cluster's API server can show it.

    Attributes:
        answered: how many launcher pods were given the scheduler.
        failed: the answers that gave none.
    """

    PAUSE_SECONDS = 2.0

    def __init__(self, node: NodeInstallation) -> None:
        super().__init__()
        self._node: Final = node
        self.first = ""
        self.process = 0
        self.answered = 0
        self.failed: list[Json] = []
        self._address = ""
        self._vmis: list[Json] = []
        self._probe: Json = {}

    def __enter__(self) -> Self:
        admin = self._node.admin
        admin.create("v1/namespaces", {"metadata": {"name": AUDITED}})
        # From before the namespace opted in: only who reads a VMI can say that its launcher pod may be changed, and
        # what was read once is remembered.
        self._vmis = [admin.create(VMIS, vmi_of(vm(f"vm-{number}")), AUDITED) for number in range(NUMBER)]
        self._probe = self._vmis.pop()
        admin.patch("v1/namespaces", AUDITED, {"metadata": {"labels": {LABEL: "enforce"}}})
        settings = obj("ConfigMap", POD, namespace=AUDITED, data={"settings.yaml": json.dumps(SETTINGS)})
        # The rights that the manifests give to replicas for evaluating, for an account of another namespace.
        (role,) = (one for one in rbac() if (one["kind"], one["metadata"]["name"]) == ("ClusterRole", NAMESPACE))
        grant(admin, AUDITED, role["rules"], subject=account(AUDITED, AUDITED))
        for each in (obj("ServiceAccount", AUDITED, namespace=AUDITED), settings, _pod()):
            admin.apply(each)
        eventually(self._is_ready, what="the replica with a short-lived token", timeout=120)
        (self.process,) = servers(SELF_SIGNED)
        self.first = self.token()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__(*_)
        self._node.admin.delete("v1/namespaces", AUDITED)

    def step(self) -> None:
        """Ask for the launcher pod of a VMI that is new to the replica, as long as there are some."""
        if len(self._vmis) > RESERVED:
            self._take()

    def read_more(self) -> None:
        while self._vmis:
            self._take()

    def _take(self) -> None:
        answer = self._ask(self._vmis.pop())
        if _is_changed(answer):
            self.answered += 1
        else:
            self.failed.append(answer)

    def token(self) -> str:
        return Path(f"/proc/{self.process}/root{DIRECTORY}/token").read_text()

    def is_accepted(self, token: str) -> bool:
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        answer = self._node.admin.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", asked)
        return bool(answer["status"].get("authenticated"))

    def read_vmis(self) -> tuple[int, int]:
        """How many VMIs it has read with its first token, and with others."""
        first = f"JTI={claims(self.first)['jti']}"
        credentials = [
            event["user"]["extra"][CREDENTIAL]
            for event in self._events()
            if event["objectRef"]["resource"] == "virtualmachineinstances" and event["responseStatus"]["code"] == 200
        ]
        return credentials.count([first]), len(credentials) - credentials.count([first])

    def denied(self) -> list[Json]:
        """What the API server has recorded of requests whose sender it did not know, or who may not do that."""
        own = [event for event in self._events() if self._address in event["sourceIPs"]]
        return [event for event in own if event["responseStatus"]["code"] in (401, 403)]

    def _events(self) -> list[Json]:
        lines = (self._node.directory / AUDIT_LOG).read_text().splitlines(keepends=True)
        # The last one may still be being written.
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def _is_ready(self) -> bool:
        status = self._node.admin.get("v1/pods", POD, AUDITED)["status"]
        if not all(one["ready"] for one in status.get("containerStatuses", [{"ready": False}])):
            return False
        self._address = status["podIP"]
        return _is_changed(self._ask(self._probe))

    def _ask(self, vmi: Json) -> Json:
        asked = json.dumps(review({**launcher_of(vmi), "kind": "Pod"}, namespace=AUDITED))
        unverified = ssl._create_unverified_context()
        with closing(http.client.HTTPSConnection(self._address, 8443, timeout=30, context=unverified)) as connection:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/mutate/scheduling/pods/enforce", asked, headers)
            answer: Json = json.load(connection.getresponse())
            return answer


def claims(token: str) -> Json:
    payload = token.split(".")[1]
    found: Json = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return found


def _is_changed(answer: Json) -> bool:
    patch = answer["response"].get("patch")
    return bool(patch) and b"/spec/schedulerName" in base64.b64decode(patch)


def _pod() -> Json:
    mounts = {"account": DIRECTORY, "settings": "/etc/kubevirt-webhook"}
    container: Json = {
        "name": "webhook",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": ["serve", "--config=/etc/kubevirt-webhook/settings.yaml", SELF_SIGNED],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 2},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }
    # The other node is drained.
    spec: Json = {"nodeName": "node-1", "serviceAccountName": AUDITED, "automountServiceAccountToken": False}
    spec["securityContext"] = {"runAsUser": 65532, "runAsGroup": 65532, "runAsNonRoot": True}
    volumes: Json = {"account": {"projected": {"sources": SOURCES}}, "settings": {"configMap": {"name": POD}}}
    spec |= {"containers": [container], "volumes": [{"name": name, **source} for name, source in volumes.items()]}
    return obj("Pod", POD, namespace=AUDITED, spec=spec)
