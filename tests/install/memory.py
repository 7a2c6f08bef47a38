"""What is installed, as it is planned, and an API server in memory, as far as installing and cleaning need one."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonpatch

from webhook import names
from webhook.install import plan
from webhook.install.plan import Overlay, Plan
from webhook.k8s.client.api import NO_QUERY, ApiConnectionError, Transport

Json = dict[str, Any]
VMS = "/apis/kubevirt.io/v1/namespaces/{}/virtualmachines/{}"
S, SIZE = names.INJECTED_SCHEDULER_ANNOTATION, names.INJECTED_INSTANCETYPE_ANNOTATION
TASTE = names.INJECTED_PREFERENCE_ANNOTATION
MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
HEALTH_CHECK = "schedulers: {kubevirt: {healthCheck: pods}}\n"


def planned(text: str = HEALTH_CHECK, overlay: Overlay = "kubernetes", image: str = "here") -> Plan:
    """Which a test may change: it is a copy of the one that was made of the same settings."""
    made: Plan = pickle.loads(_pickled(text, overlay, image))
    return made


@cache
def _pickled(text: str, overlay: Overlay, image: str) -> bytes:
    return pickle.dumps(plan.of(MANIFESTS, overlay, text, "settings.yaml", image))


class InstallMemory(Transport):
    """Objects by path.

    Attributes:
        wrote: method and path of every request that changed something, in their order.
        answers: what a request is answered instead, by method and the end of its object's path; None: not at all.
        then: called after every write.
        cluster: how the command line names it.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.wrote: list[str] = []
        self.bodies: list[Any] = []
        self.answers: dict[tuple[str, str], tuple[int, Any] | None] = {}
        self.then: Callable[[str], None] = lambda _: None
        self.closed = False
        self.cluster = ""
        self._version = 0

    async def get(self, path: str, query: Mapping[str, str] = NO_QUERY, *, most: int = 0) -> tuple[int, bytes]:
        return await self.request("GET", path, query)

    async def date(self) -> float:
        raise NotImplementedError

    async def close(self) -> None:
        self.closed = True

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        raise NotImplementedError
        yield b""

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] = NO_QUERY,
        body: Any = None,
        content_type: str = "application/json",
        *,
        seconds: float = 0,
        warnings: list[str] | None = None,
    ) -> tuple[int, bytes]:
        if method == "POST" and "metadata" in (body or {}):
            path = f"{path}/{body['metadata']['name']}"
        for (verb, end), answer in self.answers.items():
            if verb == method and path.endswith(end):
                if answer is None:
                    raise ApiConnectionError("no answer")
                return answer[0], answer[1] if isinstance(answer[1], bytes) else json.dumps(answer[1]).encode()
        status, found = self._answer(method, path, query, copy.deepcopy(body), content_type)
        if method != "GET" and "dryRun" not in query and status < 300:
            self.wrote.append(f"{method} {path}")
            self.bodies.append(body)
            self.then(path)
        return status, json.dumps(found).encode()

    def put(self, path: str, thing: Json) -> None:
        self._version += 1
        metadata = {"uid": f"uid-{path}", **thing.get("metadata", {}), "resourceVersion": str(self._version)}
        self.objects[path] = {**thing, "metadata": metadata}

    def _answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any, content_type: str
    ) -> tuple[int, Json]:
        if method == "GET" and ("limit" in query or path.endswith("webhookconfigurations")):
            kind = path.rpartition("/")[2]
            wanted = dict(part.split("=") for part in query.get("labelSelector", "").split(",") if part)
            items = [
                each
                for key, each in self.objects.items()
                # One that a test gives no labels is as selectors want it.
                if key.split("/")[-2] == kind and wanted.items() <= each["metadata"].get("labels", wanted).items()
            ]
            return 200, {"metadata": {}, "items": items}
        found = self.objects.get(path)
        if method == "POST" and "metadata" in body:
            if found is None:
                self.put(path, body)
            return (409, {}) if found else (201, self.objects[path])
        if "apply" in content_type:
            namespace = path.partition("/namespaces/")[2].partition("/")
            if namespace[2] and f"/api/v1/namespaces/{namespace[0]}" not in self.objects:
                return 404, {"message": "no such namespace"}
            applied = self._applied(found, body)
            if "dryRun" not in query:
                self.put(path, applied)
                applied = self.objects[path]
            return 200, applied
        if found is None:
            return 404, {"message": "not found"}
        if method == "DELETE":
            if body["preconditions"]["uid"] != found["metadata"]["uid"]:
                return 409, {"message": "the object is another one"}
            del self.objects[path]
        elif method == "PATCH":
            try:
                self.put(path, jsonpatch.apply_patch(found, body))
            except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
                return 422, {"message": "the server rejected our request"}
        return 200, self.objects.get(path, {})

    @staticmethod
    def _applied(found: Json | None, body: Json) -> Json:
        """Fields of other writers stay: a status, the caBundles, and what the API server adds."""
        if found is None:
            return body
        bundles = {one["name"]: one["clientConfig"].get("caBundle") for one in found.get("webhooks", ())}
        for entry in body.get("webhooks", ()):
            if bundles.get(entry["name"]):
                entry["clientConfig"]["caBundle"] = bundles[entry["name"]]
        metadata = found["metadata"]
        kept = {key: metadata[key] for key in ("uid", "resourceVersion", "managedFields") if key in metadata}
        status = {"status": found["status"]} if "status" in found else {}
        return {**body, **status, "metadata": {**body["metadata"], **kept}}


class Replicas:
    """Stands for what a cluster does: Deployments roll out, and a replica writes the caBundles."""

    def __init__(self, memory: InstallMemory) -> None:
        self._memory = memory
        self.serve = True
        memory.then = self._after

    def _after(self, path: str) -> None:
        thing = self._memory.objects.get(path)
        if not self.serve or thing is None:
            return
        if thing.get("kind") == "Deployment":
            number = thing["spec"]["replicas"]
            thing["status"] = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas"), number)
        for configuration in self._memory.objects.values():
            for entry in configuration.get("webhooks", ()):
                entry["clientConfig"].setdefault("caBundle", "UEVN")


def vm(
    outer: Json | None = None, inner: Json | None = None, scheduler: Any = None, *, spread: Any = ..., **status: Any
) -> Json:
    """A VM that holds what was injected: annotations of the VM and of its template, and a scheduler."""
    template: Json = {"metadata": {"annotations": {**inner}} if inner is not None else {}, "spec": {"domain": {}}}
    if scheduler is not None:
        template["spec"]["schedulerName"] = scheduler
    if spread is not ...:
        template["spec"]["topologySpreadConstraints"] = spread
    metadata: Json = {"name": "web", "namespace": "shop"} | ({"annotations": {**outer}} if outer is not None else {})
    return {"metadata": metadata, "spec": {"template": template}, "status": status}
