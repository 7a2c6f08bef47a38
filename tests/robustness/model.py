"""What the policies say in each state that a request may have met: the oracle of the checker.

Of the server it takes the policies alone, which are coroutines that await facts, and `webhook.review.driver.confirmed`,
which evaluates them again before a denial; no informer, no cache, no batches, no scope and no answer. For each fact
that a policy awaits, the history names all that it may have been within the staleness that is promised
(docs/reliability.md, webhook/cluster/live.py). The model follows each possibility: it evaluates the policy again with
what led there and one more answer.
"""

from __future__ import annotations

import base64
import copy
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import jsonpatch
import msgspec

from webhook import facts as keys
from webhook import names
from webhook.admission import patch
from webhook.admission.reasons.catalog import is_failure
from webhook.admission.step_budget import TooComplex
from webhook.admission.wire import Received
from webhook.cluster.files import FilesCluster
from webhook.errors import Unavailable
from webhook.facts import NOT_READ, Facts, Key, NotInMemory, from_memory
from webhook.k8s.documents import Document
from webhook.k8s.resources import NAMESPACES, Resource
from webhook.k8s.types.core import NodeWithoutImages
from webhook.k8s.types.meta import Namespace
from webhook.kubevirt.config import InstallReader, KubeVirtInstall
from webhook.kubevirt.types.views import KubeVirt
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import Node
from webhook.policies.registry import BY_PATH
from webhook.policies.scheduling.settings import SchedulingSettings
from webhook.policy import Endpoint
from webhook.review.driver import confirmed
from webhook.settings.model import Settings
from webhook.settings_file import parse

from .history import Call, Fault, History, Json, ObjectId, Request, Timelines

T = TypeVar("T")

# Answers of GETs are shared by the reviews that ask within a second, and processes wait for their turn.
SHARED_SECONDS = 2.0
# A GET takes so long at most; while something is slow, another review may have sent it long ago.
SLOW_SECONDS = 12.0
# Faults that make no GET slow.
OF_WATCHES = frozenset({"late watch", "cut watches", "failing pages", "compacted etcd", "rotated CA", "killed replica"})
# Faults by which nothing may fail: a clock that is off by less than a certificate's grace.
HARMLESS = frozenset({"clock off"})
# Faults by which a review may end with an internal error: there is no memory to go on.
OF_MEMORY = frozenset({"failing allocations"})
# The clocks of this machine's processes are one, but a store's age is counted from when an answer came.
SLACK_SECONDS = 10.0
# After a fault, what it broke is broken for so long: connections are opened again, informers wait before they try.
RECOVERY_SECONDS = 40.0
# Two polls of the file, 2 s apart, a thread that reads it, and a replica that was stopped meanwhile.
SETTINGS_SECONDS = 30.0
# Kinds that informers keep; of others each review reads what it decides by.
WATCHED = frozenset(
    {
        "VirtualMachineInstancetype",
        "VirtualMachineClusterInstancetype",
        "VirtualMachinePreference",
        "VirtualMachineClusterPreference",
        "VirtualMachineInstancePreset",
    }
)
# States that are tried for one decision; beyond that it is counted as not checked.
MOST_STATES = 3_000
NOT_TO_BE_HAD = Unavailable("it could not be read")


@dataclass(frozen=True)
class Verdict:
    """A decision, as audit annotations show it."""

    mode: str
    decision: str
    reason: str
    patch: str = ""  # the JSON patch, normalized

    @classmethod
    def of(cls, call: Call) -> Verdict:
        return cls(call.mode, call.decision, call.reason, _normal(call.patch))

    def __str__(self) -> str:
        return f"{self.decision} {self.reason} in mode {self.mode}" + (f", patch {self.patch}" if self.patch else "")


class TooManyStatesError(Exception):
    """A decision has more possible states than are tried."""


@dataclass(frozen=True)
class _Question:
    """A call as it is evaluated in one state after the other.

    Attributes:
        mode: the one that was answered; states with another one explain nothing.
        now: what the replica's clock said.
        age: of what informers keep, in seconds at most.
    """

    endpoint: Endpoint
    request: Request
    received: Received[Any]
    settings: Settings
    mode: str
    now: float
    age: float


class _LazyFacts(Facts):
    """Facts of one state. What a policy has read beforehand, it is asked for when it is looked at: most is not."""

    __slots__ = ()

    @classmethod
    def knowing(cls, known: Mapping[Key[Any], object], now: float) -> _LazyFacts:
        """Facts as a review comes to know them, in this order.

        What a store may have answered is read again before a denial, what was read is not: policies see which. What a
        store has said stays beside what was read after it, and what was read serves whoever asks for it later.
        """
        stored = {key: value for key, value in known.items() if _is_stored(key)}
        facts = cls(now, lambda key: stored.get(key, NOT_READ))
        for key, value in known.items():
            if key in stored:
                facts._known(key)
            else:
                facts._learn([(key, value)])
        return facts

    async def prefetch(self, *keys: Key[Any]) -> None:
        """Nothing."""


class Model:
    """Says of each call of a webhook which verdicts some state within the bounds allows."""

    def __init__(self, history: History) -> None:
        documents = [Document(each, "history", 1) for each in history.run.definitions]
        self._definitions = FilesCluster.of(documents, parse(b"{}", "settings")).definitions
        self._take(history)

    def of_part(self, history: History) -> Model:
        """The same of a part of its history; kinds, which all parts have, are not read again."""
        model = copy.copy(self)
        model._take(history)
        return model

    def _take(self, history: History) -> None:
        self._run = history.run
        self._timelines = Timelines(history.changes)
        self._settings = [(each.after, each.by, _settings(each.text)) for each in history.settings]
        self._faults = history.faults
        self._paths = {(entry.type, entry.name): entry.path for entry in history.webhooks}

    @property
    def timelines(self) -> Timelines:
        return self._timelines

    def settings_of(self, request: Request) -> list[Settings]:
        """The settings that may count for a request, the newest first."""
        begin, found = request.received - SETTINGS_SECONDS, []
        for after, by, settings in reversed(self._settings):
            if after <= request.completed:
                found.append(settings)
                if by < begin:
                    break
        return found

    def namespaces_of(self, request: Request) -> list[Json | None]:
        """What a request's namespace may have been."""
        begin = request.received - self._run.current_seconds - SLACK_SECONDS
        return self._timelines.during(ObjectId("Namespace", "", request.namespace), begin, request.completed)

    def disturbed(self, begin: float, end: float) -> bool:
        """Whether a fault was in force at a moment by which something may fail."""
        return any(fault.what not in HARMLESS for fault in self._during(begin, end))

    def lacked_memory(self, begin: float, end: float) -> bool:
        """Whether a replica's allocations may have failed at a moment."""
        return any(fault.what in OF_MEMORY for fault in self._during(begin, end))

    def _during(self, begin: float, end: float) -> Iterator[Fault]:
        return (fault for fault in self._faults if fault.began <= end and fault.ended >= begin)

    def explains(self, request: Request, call: Call, number: int) -> list[Verdict] | None:
        """None where some state leads to what a call answered; else the verdicts that states within the bounds have.

        Raises:
            TooManyStatesError: there are more states than are tried.
        """
        endpoint, wanted = BY_PATH[self._paths[call.type, call.webhook]], Verdict.of(call)
        received = self._received(endpoint, request, number)
        # Replicas follow settings seconds later; those that say the same of a policy are one.
        settings = {
            json.dumps(msgspec.to_builtins(each.policy(endpoint.policy), enc_hook=repr)): each
            for each in self.settings_of(request)
        }
        found: dict[Verdict, None] = {}
        tried = 0
        # Nearly always a store is as new as can be, so that is looked at first.
        wrong = {fault.clock for fault in self._during(request.received, request.completed)}
        nows = [request.received + seconds for seconds in sorted({0.0} | wrong, key=abs)]
        ages = (0.0, self._run.current_seconds + SLACK_SECONDS)
        for now, age in itertools.product(nows, ages):
            for one in settings.values():
                question = _Question(endpoint, request, received, one, wanted.mode, now, age)
                for verdict in self._explore(question, {}):
                    if verdict == wanted:
                        return None
                    found[verdict] = None
                    tried += 1
                    if tried >= MOST_STATES:
                        raise TooManyStatesError
        return list(found)

    def shared(self, request: Request) -> float:
        """How old, in seconds, an answer of the API server may be that a review shares with another one."""
        begin, end = request.received - SLOW_SECONDS, request.completed
        slow = any(fault.what not in OF_WATCHES | HARMLESS for fault in self._during(begin, end))
        return SLOW_SECONDS if slow else SHARED_SECONDS

    def _received(self, endpoint: Endpoint, request: Request, number: int) -> Received[Any]:
        """The review as the API server sends it to the ``number``-th call of a request."""
        sent: Any = copy.deepcopy(request.object)
        if endpoint.verb == "validate" and request.result is not None:
            sent = copy.deepcopy(request.result)
        else:
            for earlier in request.calls if endpoint.verb == "validate" else request.calls[:number]:
                if earlier.patch:
                    sent = jsonpatch.apply_patch(sent, earlier.patch)
        group, version = endpoint.group, endpoint.version
        kind = {"group": "policy" if endpoint.kind == "Eviction" else group, "version": version, "kind": endpoint.kind}
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": request.id,
                "kind": kind,
                "resource": {"group": group, "version": version, "resource": endpoint.resource},
                "subResource": request.subresource or None,
                "namespace": request.namespace,
                "name": "" if _is_unnamed(request) else request.name,
                "operation": request.operation,
                "userInfo": request.user,
                "object": sent,
                "oldObject": request.old,
                "dryRun": False,
            },
        }
        received: Received[Any] = endpoint.codec.decode(json.dumps(review).encode())
        return received

    def _explore(self, question: _Question, known: Mapping[Key[Any], object]) -> Iterator[Verdict]:
        facts = _LazyFacts.knowing(known, question.now)
        try:
            if verdict := facts.budget.run(from_memory, _decide(question, facts)):
                yield verdict
        except NotInMemory as missing:
            (key,) = missing.batch
            for value in self._candidates(key, question):
                yield from self._explore(question, {**known, key: value})
        except TooComplex:
            yield Verdict(question.mode, "error", "too-complex")

    # -- what a fact may have been -------------------------------------------------------------------------------------

    def _candidates(self, key: Key[Any], question: _Question) -> Iterable[object]:
        request, settings = question.request, question.settings
        begin = request.received - max(self.shared(request), question.age if _is_stored(key) else 0.0)
        found: list[object] = []
        for value in self._values(key, settings, begin, request.completed):
            # Clients relabel and annotate without a pause: of a namespace counts what the policy sees of it.
            seen = _seen(value, question.endpoint, settings) if isinstance(value, Namespace) else value
            if all(seen is not each and seen != each for each in found):
                found.append(seen)
                yield value
        # A GET that was sent again and again, and a store that was put aside: a fault's traces. Nodes have to be listed
        # again, since no GET stands in for their store.
        since = RECOVERY_SECONDS if isinstance(key, keys.NodesKey) else SLACK_SECONDS
        if not isinstance(key, keys.SchedulerKey) and self.disturbed(request.received - since, request.completed):
            yield NOT_TO_BE_HAD

    def _values(self, key: Key[Any], settings: Settings, begin: float, end: float) -> Iterator[object]:
        during = self._timelines.during
        match key:
            case keys.NamespaceKey():
                for value in during(ObjectId("Namespace", "", key.name), begin, end):
                    yield _view(NAMESPACES, value)
            case keys.ObjectKey():
                namespace = key.namespace if key.resource.namespaced else ""
                for value in during(ObjectId(key.resource.kind, namespace, key.name), begin, end):
                    yield _view(key.resource, value)
            case keys.VmiKey():
                yield from self._vmis(key, begin, end)
            case keys.ListKey():
                for objects in self._timelines.lists_during(key.resource.kind, begin, end):
                    yield _selected(key, objects)
            case keys.NodesKey():
                for objects in self._timelines.lists_during("Node", begin, end):
                    yield _index(json.dumps(objects))
            case keys.KubeVirtKey():
                for objects in self._timelines.lists_during("KubeVirt", begin, end):
                    yield self._install(json.dumps(objects), settings.kubevirt.version)
            case _:
                yield from _timeless(key, settings)

    def _vmis(self, key: keys.VmiKey, begin: float, end: float) -> Iterator[object]:
        """A VMI is remembered by its UID, with what cannot change, also when it has long gone."""
        from webhook.kubevirt.resources import VMIS

        wanted = ObjectId("VirtualMachineInstance", key.namespace, key.name)
        for change in reversed(self._timelines.changes(wanted)):
            if change.value and change.value["metadata"].get("uid") == key.uid and change.after <= end:
                yield _view(VMIS, change.value)
                break
        for value in self._timelines.during(wanted, begin, end):
            yield _view(VMIS, value)

    @lru_cache(maxsize=256)  # noqa: B019 - a model lives as long as the check of one history
    def _install(self, kubevirts: str, version: str) -> KubeVirtInstall | None:
        views = [msgspec.convert(each, KubeVirt) for each in json.loads(kubevirts)]
        return InstallReader(version, self._definitions).read(views)


def _timeless(key: Key[Any], settings: Settings) -> Iterator[object]:
    """What no object says: a scheduler without a health check is available, and a user may have any permission."""
    if isinstance(key, keys.AccessKey):
        yield from (True, False)
        return
    assert isinstance(key, keys.SchedulerKey), f"the model does not know {key!r}"
    declared = settings.of(SchedulingSettings).schedulers.get(key.name)
    assert declared is None or declared.watched.kind == "off", "the model has no Leases"
    yield declared and keys.SchedulerHealth("available", "its health is not checked")


def _seen(namespace: Namespace, endpoint: Endpoint, settings: Settings) -> object:
    """What a policy sees of a namespace: its mode, its settings there, and what others than we have annotated."""
    annotations = namespace.meta.annotations or {}
    others = {key: value for key, value in annotations.items() if not key.startswith(f"{names.DOMAIN}/")}
    return (
        _of_label(namespace, endpoint, settings),
        settings.policy(endpoint.policy).with_annotations(annotations),
        others,
    )


def _is_stored(key: Key[Any]) -> bool:
    """Whether a fact may come from an informer's store."""
    if isinstance(key, keys.NamespaceKey):
        return not key.uncached
    if isinstance(key, keys.ObjectKey | keys.ListKey):
        return not key.uncached and key.resource.kind in WATCHED
    return isinstance(key, keys.NodesKey | keys.KubeVirtKey)


def _is_unnamed(request: Request) -> bool:
    """Whether an object gets its name only after admission."""
    metadata = request.object.get("metadata", {})
    return request.operation == "CREATE" and not metadata.get("name") and "generateName" in metadata


@lru_cache(maxsize=256)
def _settings(text: str) -> Settings:
    return parse(text.encode(), "settings")


@lru_cache(maxsize=64)
def _index(nodes: str) -> NodeIndex:
    return NodeIndex(Node.of(msgspec.convert(each, NodeWithoutImages)) for each in json.loads(nodes))


def _view(resource: Resource[Any], value: Json | None) -> object:
    return None if value is None else msgspec.convert(value, resource.view)


def _selected(key: keys.ListKey[Any], objects: list[Json]) -> tuple[object, ...]:
    label, _, wanted = key.label.partition("=")
    views = []
    for each in objects:
        metadata = each["metadata"]
        inside = key.namespace in ("", metadata.get("namespace", ""))
        if inside and (not label or (metadata.get("labels") or {}).get(label) == wanted):
            view = msgspec.convert(each, key.resource.view)
            views.append(key.resource.keep(view) if key.resource.keep else view)
    return tuple(view for view in views if view is not None)


async def _decide(question: _Question, facts: Facts) -> Verdict | None:
    """What the documentation says of modes, and the policy of the rest; None: another mode than was answered."""
    endpoint, request, received = question.endpoint, question.request, question.received
    settings = question.settings
    mode, reason, parameters = await _mode(endpoint, request, facts, settings)
    if mode and mode != question.mode:
        return None
    if not mode:
        return Verdict("", "error", reason)
    if mode == names.OFF:
        return Verdict(mode, "skipped", reason)
    view = received.request.object
    assert view is not None, received.malformed
    section = settings.policy(endpoint.policy).with_annotations(parameters)
    decision = await confirmed(lambda facts: endpoint.handler(view, received.request, facts, section), facts)
    outcome = decision.under(mode, endpoint.policy)  # type: ignore[arg-type]
    rendered = json.loads(patch.render(view, outcome.changes) or "null") if outcome.changes else None
    would = "" if mode == names.ENFORCE else "would-"
    word = "deny" if would else "denied"
    changed = "patch" if would else "patched"
    label = would + word if decision.denial else would + changed if decision.changes else "allowed"
    if is_failure(decision.code) and not decision.changes and decision.code != "invalid-object":
        label = "error"
    return Verdict(mode, label, decision.reasons[0].code, _normal(rendered))


async def _mode(
    endpoint: Endpoint, request: Request, facts: Facts, settings: Settings
) -> tuple[str, str, Mapping[str, str]]:
    """A namespace's mode and parameters, or why there is none: docs/configuration.md. No mode: it is not known."""
    if request.namespace in settings.every_excluded_namespace:
        return names.OFF, "excluded-namespace", {}
    install = await facts.get(keys.KubeVirtKey())
    if isinstance(install, KubeVirtInstall) and request.namespace in install.namespaces:
        return names.OFF, "excluded-namespace", {}
    for uncached in (False, True):
        # That a policy is off is never decided by what a store remembers.
        namespace = await facts.get(keys.NamespaceKey(request.namespace, uncached=uncached))
        if not isinstance(namespace, Namespace):
            return "", "namespace-unreadable", {}
        mode, reason = _of_label(namespace, endpoint, settings)
        if mode != names.OFF:
            return mode, "", namespace.meta.annotations or {}
    return mode, reason, {}


def _of_label(namespace: Namespace, endpoint: Endpoint, settings: Settings) -> tuple[str, str]:
    label = (namespace.meta.labels or {}).get(names.policy_label(endpoint.policy))
    if label is None and settings.policy(endpoint.policy).cluster_wide:
        label = names.ENFORCE
    match label:
        case None:
            return names.OFF, "out-of-scope"
        case names.ENFORCE:
            return (names.ENFORCE if endpoint.stage == "enforce" else names.AUDIT), ""
        case names.WARN | names.AUDIT:
            return str(label), ""
        case names.OFF:
            return names.OFF, "out-of-scope"
        case _:
            return names.OFF, "unknown-mode"


def _normal(operations: Any) -> str:
    if isinstance(operations, str):
        operations = json.loads(base64.b64decode(operations))
    return json.dumps(operations, sort_keys=True) if operations else ""
