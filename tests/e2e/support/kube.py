"""A small Kubernetes client for tests: JSON objects in and out, and the API server's warnings with every answer.

Resources are named by group version and plural, as in URLs: ``v1/pods``, ``kubevirt.io/v1/virtualmachines``.
Every method passes further keyword arguments on as the query: ``dryRun="All"``, ``fieldValidation="Strict"``.
"""

from __future__ import annotations

import http.client
import json
import re
import select
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from webhook.k8s.json_tree import MAX_LEVELS, flatten

T = TypeVar("T")
# Only a broken test waits to the end.
PATIENCE = 300.0
# Most of what tests wait for comes at once; what takes seconds should not be asked for twenty times in each of them.
FIRST_PAUSE, LAST_PAUSE = 0.02, 0.25
Json: TypeAlias = dict[str, Any]
PatchType = Literal["json", "merge", "strategic", "apply"]

PATCHES: Mapping[str, str] = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",  # JSON is YAML
}
FIELD_MANAGER = "e2e"
# RFC 7234, section 5.5: code, agent, quoted text. The API server writes one warning into each header.
WARNING = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')


class KubeObject(Json):
    """An API object, with the warnings of the answer that brought it."""

    warnings: tuple[str, ...] = ()


Objects: TypeAlias = list[KubeObject]  # Kube.list hides the builtin where annotations could need it


class KubeError(Exception):
    """The API server denied a request: ``status`` and ``message`` are its own, ``body`` is the whole Status object."""

    def __init__(self, request: str, status: int, message: str, body: Json, warnings: tuple[str, ...]) -> None:
        super().__init__(f"{request}: {status}: {message}")
        self.status = status
        self.message = message
        self.body = body
        self.warnings = warnings


class KeptConnection(http.client.HTTPSConnection):
    """A connection for request after request, which ends with the thread or the client that has it."""

    def leave_ended(self) -> None:
        """Closes it if the server has, as one that was restarted: the next request opens it anew.

        Between two answers a server says nothing else.
        """
        if self.sock is not None:
            poll = select.poll()
            poll.register(self.sock, select.POLLIN)
            if poll.poll(0):
                self.close()

    def __del__(self) -> None:
        self.close()


class Kube:
    """One identity's access to one API server; threads can share it, for each has a connection of its own.

    The identity is that of a client certificate, or of a token.
    """

    def __init__(self, server: str, ca: Path, client: Path | None, user: str, *, token: str = "") -> None:
        self.server = server
        self.user = user
        self._host = urllib.parse.urlsplit(server).netloc
        self._tls = ssl.create_default_context(cafile=str(ca))
        if client:
            self._tls.load_cert_chain(client)
        self._identity = {"Authorization": f"Bearer {token}"} if token else {}
        self._plurals: dict[tuple[str, str], str] = {}
        self._kept = threading.local()

    def __repr__(self) -> str:
        return f"Kube({self.server}, user={self.user})"

    # -- verbs ---------------------------------------------------------------------------------------------------------

    def create(
        self,
        resource: str,
        obj: Mapping[str, Any],
        namespace: str | None = None,
        *,
        name: str | None = None,
        subresource: str | None = None,
        **query: str,
    ) -> KubeObject:
        """Creates an object; with ``name`` and ``subresource``, a subresource of one, such as a pod's eviction."""
        namespace = namespace or obj.get("metadata", {}).get("namespace")
        return self.request("POST", path(resource, namespace, name, subresource), obj, query=query)

    def get(
        self, resource: str, name: str, namespace: str | None = None, *, subresource: str | None = None, **query: str
    ) -> KubeObject:
        return self.request("GET", path(resource, namespace, name, subresource), query=query)

    def replace(
        self, resource: str, obj: Mapping[str, Any], *, subresource: str | None = None, **query: str
    ) -> KubeObject:
        metadata = obj["metadata"]
        where = path(resource, metadata.get("namespace"), metadata["name"], subresource)
        return self.request("PUT", where, obj, query=query)

    def patch(
        self,
        resource: str,
        name: str,
        change: Mapping[str, Any] | Objects | list[Json],
        namespace: str | None = None,
        *,
        kind: PatchType = "merge",
        subresource: str | None = None,
        **query: str,
    ) -> KubeObject:
        where = path(resource, namespace, name, subresource)
        return self.request("PATCH", where, change, content_type=PATCHES[kind], query=query)

    def apply(self, obj: Mapping[str, Any], *, subresource: str | None = None, **query: str) -> KubeObject:
        """Server-side apply, the resource looked up by the object's kind; takes conflicting fields over."""
        metadata = obj["metadata"]
        options = {"fieldManager": FIELD_MANAGER, "force": "true", **query}
        resource = self.resource_of(obj)
        return self.patch(
            resource, metadata["name"], obj, metadata.get("namespace"), kind="apply", subresource=subresource, **options
        )

    def delete(self, resource: str, name: str, namespace: str | None = None, **query: str) -> KubeObject:
        return self.request("DELETE", path(resource, namespace, name), query=query)

    def delete_all(self, resource: str, namespace: str | None = None, **query: str) -> KubeObject:
        return self.request("DELETE", path(resource, namespace), query=query)

    def list(self, resource: str, namespace: str | None = None, **query: str) -> Objects:
        """The objects themselves; ``labelSelector`` and ``fieldSelector`` go into the query."""
        answer = self.request("GET", path(resource, namespace), query=query)
        return [KubeObject(item) for item in answer["items"]]

    def watch(self, resource: str, namespace: str, version: str, seconds: int) -> Iterator[Json]:
        """The events since a version of a list, for so many seconds, on a connection of its own."""
        query = urllib.parse.urlencode({"watch": "true", "resourceVersion": version, "timeoutSeconds": seconds})
        with closing(http.client.HTTPSConnection(self._host, context=self._tls, timeout=PATIENCE)) as connection:
            connection.request("GET", f"{path(resource, namespace)}?{query}", headers=self._identity)
            yield from map(json.loads, connection.getresponse())

    # -- helpers for tests ---------------------------------------------------------------------------------------------

    def make(self, obj: Mapping[str, Any], namespace: str | None = None, **query: str) -> KubeObject:
        """Creates an object, the resource looked up by its kind."""
        return self.create(self.resource_of(obj), obj, namespace, **query)

    def make_namespace(
        self, prefix: str, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None
    ) -> str:
        """Creates a namespace; returns its name, which begins so."""
        metadata = {"generateName": prefix, "labels": labels or {}, "annotations": annotations or {}}
        made = self.create("v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        return str(made["metadata"]["name"])

    def wait(
        self,
        resource: str,
        name: str,
        namespace: str | None = None,
        *,
        until: Callable[[KubeObject], object],
        what: str = "",
        timeout: float = PATIENCE,
    ) -> KubeObject:
        """Reads an object until ``until`` is true of it; its absence counts as not yet."""

        def look() -> KubeObject | None:
            found = self.get(resource, name, namespace)
            return found if until(found) else None

        return eventually(look, what=what or f"{resource} {name} to be as expected", timeout=timeout)

    def text(self, url: str) -> str:
        """The answer's text, of paths such as ``/readyz`` and ``/metrics``."""
        status, _, body = self._send("GET", url, None, {})
        if status >= 400:
            raise KubeError(f"GET {url} as {self.user}", status, body.decode(errors="replace"), {}, ())
        return body.decode()

    def resource_of(self, obj: Mapping[str, Any]) -> str:
        """``kubevirt.io/v1/virtualmachines`` for an object of that kind, as the API server's discovery has it."""
        version, kind = obj["apiVersion"], obj["kind"]
        if (version, kind) not in self._plurals:
            for resource in self.request("GET", _root(version))["resources"]:
                if "/" not in resource["name"]:
                    self._plurals[version, resource["kind"]] = resource["name"]
        if (version, kind) not in self._plurals:
            raise LookupError(f"the API server at {self.server} serves no {kind} in {version}; is its CRD installed?")
        return f"{version}/{self._plurals[version, kind]}"

    def request(
        self,
        method: str,
        url: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> KubeObject:
        """Any request with a JSON answer; raises KubeError for every status from 400 on.

        A body of bytes is sent as it is: not everything that the API server takes can be encoded here.
        """
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type
        full = f"{url}?{urllib.parse.urlencode(query)}" if query else url
        status, warnings, content = self._send(method, full, body, headers)
        answer = _decode(content)
        if status >= 400:
            raise KubeError(f"{method} {full} as {self.user}", status, answer.get("message", ""), answer, warnings)
        answer.warnings = warnings
        return answer

    def _send(self, method: str, url: str, body: Any, headers: Mapping[str, str]) -> tuple[int, tuple[str, ...], bytes]:
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = self._connection()
        try:
            connection.request(method, url, body=content, headers={**headers, **self._identity})
            response = connection.getresponse()
            return response.status, parse_warnings(response.headers.get_all("Warning", [])), response.read()
        except BaseException:
            connection.close()  # half of an answer may still come; the next request opens it anew
            raise

    def _connection(self) -> KeptConnection:
        """This thread's connection. It is kept, since to open one costs both sides as much as most requests do."""
        if not hasattr(self._kept, "connection"):
            self._kept.connection = KeptConnection(self._host, context=self._tls, timeout=PATIENCE)
        kept: KeptConnection = self._kept.connection
        kept.leave_ended()
        return kept


def path(resource: str, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
    version, _, plural = resource.rpartition("/")
    parts = [_root(version)]
    if namespace:
        parts += ["namespaces", namespace]
    return "/".join([*parts, plural, *filter(None, (name, subresource))])


def _root(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def parse_warnings(headers: list[str]) -> tuple[str, ...]:
    return tuple(re.sub(r"\\(.)", r"\1", text) for header in headers for text in WARNING.findall(header))


def _decode(content: bytes) -> KubeObject:
    """Some errors, such as those of API priority and fairness, are plain text; some objects are only read in part."""
    try:
        return KubeObject(json.loads(content))
    except RecursionError:
        return KubeObject(json.loads(flatten(content, MAX_LEVELS)))
    except ValueError:
        return KubeObject(message=content.decode(errors="replace").strip())


def eventually(check: Callable[[], T | None], *, what: str, timeout: float = PATIENCE) -> T:
    """What ``check`` returns, once that is true; errors of the API server and failed connections count as not yet."""
    deadline = time.monotonic() + timeout
    last: Exception | None = None
    pause = FIRST_PAUSE
    while time.monotonic() < deadline:
        try:
            if found := check():
                return found
            last = None
        except (KubeError, OSError) as error:
            last = error
        time.sleep(pause)
        pause = min(pause * 1.5, LAST_PAUSE)
    raise AssertionError(f"waited {timeout:.0f} seconds for {what}" + (f"; last error: {last}" if last else ""))


def denial(ask: Callable[[], object]) -> KubeError | None:
    """Why a request is denied; None for an allowed one."""
    try:
        ask()
    except KubeError as error:
        return error
    return None


def denied(ask: Callable[[], object]) -> KubeError:
    """Why a request is denied, which it must be."""
    error = denial(ask)
    assert error, "it was allowed"
    return error
