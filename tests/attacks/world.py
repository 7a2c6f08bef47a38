"""A small world for a way of a policy: the objects that it reads, each of which a test can make long."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tests import builders
from tests.attacks import schema
from tests.attacks.schema import Node, Path
from tests.builders import Json
from tests.review.memory import MemoryCluster
from webhook import names
from webhook.admission.audit import NoAudit, Record, Sink
from webhook.admission.lines import line
from webhook.admission.patch import operations
from webhook.admission.wire import UserInfo
from webhook.facts import (
    Facts,
    Key,
    ListKey,
    NamespaceKey,
    ObjectKey,
    uncached_key,
)
from webhook.k8s.types.core import TargetPod
from webhook.k8s.types.meta import Object
from webhook.policies.common.required_facts import access
from webhook.review.endpoints import Endpoint
from webhook.review.reviewer import NullObserver, Reviewer
from webhook.settings.model import Settings

# Subjects that are in every world.
OBJECT: Final = "object"
OLD: Final = "old object"
USER: Final = "user"
NAMESPACE: Final = "namespace"
NO_AUDIT: Final = NoAudit()


@dataclass(frozen=True)
class AttackedServer:
    """An object that a policy reads.

    Attributes:
        base: as it usually is.
        node: what it may hold.
        key: the fact that it is; None: it is part of the request.
        view: what it is decoded into, of a list of objects each of them.
    """

    base: Any
    node: Node
    key: Key[Any] | None = None
    view: Any = None


@dataclass(frozen=True)
class AttackWorld:
    """A review that takes a certain way through a policy.

    Attributes:
        name: for tests and tables.
        endpoint: that receives the review.
        subjects: the objects that are read, by name.
        facts: the others, which tenants don't write.
        request: more of the request.
        settings: of the endpoint's policy.
    """

    name: str
    endpoint: Endpoint
    subjects: Mapping[str, AttackedServer]
    facts: Mapping[Key[Any], object] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def places(self) -> Iterator[tuple[str, Path]]:
        """Every list and map in every subject."""
        for name, subject in self.subjects.items():
            for path, _ in schema.places(subject.node):
                yield name, path

    def everything(self) -> list[tuple[str, Path]]:
        """Those that can be long at the same time without making another kind of request of it."""
        left_out = {"sendTo", "receive"}
        if view(self.endpoint) is TargetPod:
            # Each term holds each key that is added: what comes of that is bounded, but it is a product.
            left_out.add("addedNodeSelector")
        return [place for place in self.places() if not left_out & set(place[1])]

    def objects(self, places: Iterable[tuple[str, Path]] = (), count: int = 0, *, alike: bool = False) -> Json:
        """The subjects' JSON by name, with so many more items at some places."""
        made = {name: subject.base for name, subject in self.subjects.items()}
        for name, path in places:
            made[name] = schema.grown(made[name], self.subjects[name].node, path, count, alike=alike)
        return made

    def body(self, objects: Json) -> bytes:
        """The review's bytes."""
        endpoint = self.endpoint
        request: Json = {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": endpoint.codec.group, "version": endpoint.version, "kind": endpoint.codec.kind},
            "resource": {"group": endpoint.group, "version": endpoint.version, "resource": endpoint.resource},
            "namespace": "demo",
            "operation": "UPDATE" if OLD in objects else "CREATE",
            "userInfo": objects[USER],
            "object": objects[OBJECT],
            "oldObject": objects.get(OLD),
            **self.request,
        }
        if endpoint.sub_resource:
            request["subResource"] = endpoint.sub_resource
        return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})

    def known(self, objects: Json) -> dict[Key[Any], object]:
        """The facts."""
        known = dict(self.facts)
        for name, subject in self.subjects.items():
            if subject.key is not None:
                known[subject.key] = decoded(subject.view, objects[name])
        fresh = {
            uncached_key(key): fact
            for key, fact in known.items()
            if isinstance(key, NamespaceKey | ObjectKey | ListKey)
        }
        known.update(fresh)
        user = msgspec.convert(objects[USER], UserInfo)
        known[access(user, "list", "", "nodes")] = True
        return known

    def review(self, objects: Json, *, audit: Sink = NO_AUDIT) -> Callable[[], bytes]:
        """The whole review of these objects, from bytes to bytes, to be called any number of times."""
        body, known, settings = self.body(objects), self.known(objects), self._settings()
        reviewer = Reviewer(MemoryCluster(known), lambda: settings, audit, NullObserver())
        return lambda: ended(reviewer.review(self.endpoint, body, 1e9))

    def policy(self, objects: Json, watch: Callable[[Any], Any]) -> Callable[[], object]:
        """The policy alone, and the patch's operations, where every object is what ``watch`` makes of it."""
        request = watch(self.endpoint.codec.decode(self.body(objects)).request)
        known = self.known(objects)
        namespace = watch(known[NamespaceKey("demo")])
        facts = {key: watch(fact) if isinstance(fact, Object | tuple) else fact for key, fact in known.items()}
        settings = self._settings().policy(self.endpoint.policy).under(namespace.meta.annotations or {})

        def call() -> object:
            decision = self.endpoint.handler(request.object, request, Facts.of(facts), settings)
            outcome = decision.under(names.ENFORCE, self.endpoint.policy)
            return operations(request.object, outcome.changes)

        return call

    def _settings(self) -> Settings:
        settings = builders.settings()
        section: Any = settings.policy(self.endpoint.policy)
        policy = msgspec.structs.replace(section, **self.settings)
        return msgspec.structs.replace(settings, **{self.endpoint.policy: policy})


class AuditLines:
    """Makes audit lines as the server does, and drops them."""

    def write(self, record: Record) -> None:
        line(record)


def ended(reviewing: Coroutine[Any, Any, bytes]) -> bytes:
    """The answer of a review that finds every fact at hand, and so never waits."""
    try:
        reviewing.send(None)
    except StopIteration as end:
        answer: bytes = end.value
        return answer
    raise AssertionError("the review waits for a fact that its world has not got")


def decoded(view: Any, json: Any) -> Any:
    if isinstance(json, list):
        return tuple(msgspec.convert(one, view) for one in json)
    return msgspec.convert(json, view)


def view(endpoint: Endpoint) -> Any:
    """The type into which an endpoint decodes objects."""
    return endpoint.codec._typed.type.__args__[0]  # type: ignore[attr-defined]
