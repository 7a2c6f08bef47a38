"""The targets of fuzzing: each takes bytes, checks the result against the oracle, and returns its kind in a word."""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import json
import random
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from typing import Any

import msgspec

from tests import builders
from tests.annotations import VALID
from tests.attacks.counting import no_collection
from tests.builders import AVAILABLE, UNAVAILABLE, Json, changed, read_node
from tests.fuzz import oracle
from tests.fuzz.mutation import Mutator
from tests.policies.eviction import world as eviction
from tests.policies.groups import world as groups
from tests.policies.instancetypes import world as of_instancetypes
from tests.policies.migration import world as placement
from tests.review.memory import MemoryCluster
from webhook import facts, names
from webhook import settings_file as file
from webhook.admission.audit import Record
from webhook.errors import InputError, Unavailable
from webhook.k8s import quantity
from webhook.k8s.documents import objects_in
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.k8s.types.selectors import find_malformed, parse_selector
from webhook.k8s.yaml_documents import parse_documents
from webhook.kubevirt.config import KubeVirtInstall
from webhook.kubevirt.instancetype import find
from webhook.kubevirt.instancetype.find import INSTANCETYPE_MATCHER
from webhook.kubevirt.types.views import VirtualMachineInstance, VmiSpec
from webhook.placement.index import NodeIndex
from webhook.policies.eviction.settings import Blackout
from webhook.policies.instancetypes.settings import InstancetypeSettings
from webhook.policies.migration.settings import MigrationSettings
from webhook.policies.registry import BY_NAME, ENDPOINTS
from webhook.policies.sizes.settings import REQUIRE_INSTANCETYPE_ANNOTATION, SIZE_LIMITS_ANNOTATION
from webhook.policy import Endpoint
from webhook.review.reviewer import Observer, Reviewer
from webhook.server.app import timeout_of
from webhook.server.explanations.explainer import parse_question
from webhook.settings.model import Settings

# So many reviews of an endpoint are counted step by step: it takes ten times as long.
COUNTED = 0.05
MODES: Mapping[str, tuple[str, ...]] = {names.ENFORCE: (names.ENFORCE,), names.OBSERVE: (names.WARN, names.AUDIT)}
_NOW = 1_795_262_400.0
POLICIES = tuple(BY_NAME)
_OF_EXPANSION: Mapping[str, str] = {
    names.DEFAULT_INSTANCETYPE_ANNOTATION: "u1.small",
    names.EXPAND_INSTANCETYPES_ANNOTATION: "true",
    names.SCHEDULER_NAME_ANNOTATION: "batch",
    REQUIRE_INSTANCETYPE_ANNOTATION: "true",
}
# With defaults and an allow-list, and whatever the others have not; with expansion; and without anything.
PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "defaults": {
        **{key: values[0] for key, values in VALID.items() if key not in _OF_EXPANSION},
        names.DEFAULT_INSTANCETYPE_ANNOTATION: "u1.small",
        names.DEFAULT_PREFERENCE_ANNOTATION: "fedora",
        names.ALLOWED_INSTANCETYPES_ANNOTATION: "u1.*, VirtualMachineInstancetype/*",
        SIZE_LIMITS_ANNOTATION: '{"cpu": {"max": 4}, "memory": {"step": "512Mi"}, "memoryPerCpu": {"max": "1G"}}',
    },
    "expansion": _OF_EXPANSION,
    "nothing": {},
}
STATES = ("known", "absent", "unreadable", "hostile")
_NODES = NodeIndex(read_node(one) for one in placement.NODES)
_WATCHED = (facts.NamespaceKey, facts.KubeVirtKey, facts.NodesKey, facts.SchedulerKey)


class FuzzWorld(MemoryCluster):
    """Answers like a cluster in which all policies have one mode.

    Args:
        state: of what is read beside the object.
        spoil: makes an object hostile, where the state is so.

    Attributes:
        size: the bytes of all objects that were read, which a review's work may grow with as with its own.
    """

    def __init__(self, mode: str, parameters: str, state: str, spoil: Callable[[Json], Json] = lambda it: it) -> None:
        super().__init__({})
        self._labels = {names.policy_label(policy): mode for policy in POLICIES}
        self._annotations = dict(PARAMETERS[parameters])
        self._state = state
        self._spoil = spoil
        self.size = 0

    def peek(self, key: facts.Key[Any]) -> object:
        return self._answer(key) if isinstance(key, _WATCHED) else facts.NOT_READ

    async def read(self, key: facts.Key[Any], deadline: float) -> Any:
        # Making an object hostile takes far more calls than reviewing it, and is not work of the review.
        counting = sys.getprofile()
        sys.setprofile(None)
        try:
            return self._answer(key)
        finally:
            sys.setprofile(counting)

    def _answer(self, key: facts.Key[Any]) -> Any:
        if isinstance(key, facts.NamespaceKey):
            return Namespace(ObjectMeta(name=key.name, labels=self._labels, annotations=self._annotations))
        if isinstance(key, facts.KubeVirtKey):
            return KubeVirtInstall(frozenset({"kubevirt"}))
        if isinstance(key, facts.NodesKey):
            return _NODES
        if isinstance(key, facts.SchedulerKey):
            return UNAVAILABLE if self._state == "unreadable" else AVAILABLE
        return self._read(key)

    def _read(self, key: facts.Key[Any]) -> Any:
        if self._state == "unreadable":
            return Unavailable("no answer in time")
        if isinstance(key, facts.AccessKey):
            return self._state == "known"
        if self._state == "absent" or isinstance(key, facts.TokenKey):
            return () if isinstance(key, facts.ListKey) else None
        if isinstance(key, facts.VmiKey):
            return VirtualMachineInstance(ObjectMeta(name=key.name, uid=key.uid), VmiSpec(None))
        if isinstance(key, facts.ListKey):
            found = [self._converted(key.resource, key.namespace, f"one-{number}") for number in range(3)]
            return tuple(one for one in found if not isinstance(one, Unavailable))
        if isinstance(key, facts.ObjectKey):
            return self._converted(key.resource, key.namespace, key.name)
        raise AssertionError(f"a kind of key that is not known here: {key}")

    def _converted(self, resource: Any, namespace: str, name: str) -> Any:
        plain = _object(resource.kind, name)
        plain["metadata"] = {**plain.get("metadata", {}), "name": name}
        if namespace:
            plain["metadata"]["namespace"] = namespace
        if self._state == "hostile":
            plain = self._spoil(plain)
        try:
            # As it would come over the wire.
            body = msgspec.json.encode(plain)
            self.size += len(body)
            return msgspec.json.decode(body, type=resource.view)
        except (msgspec.MsgspecError, RecursionError, ValueError, TypeError):
            return Unavailable("it can't be decoded")


def _object(kind: str, name: str) -> Json:
    if kind.endswith("nstancetype"):
        return of_instancetypes.instancetype(name, kind)
    if kind.endswith("Preference"):
        return of_instancetypes.preference(name, kind)
    if kind == "ControllerRevision":
        return of_instancetypes.revision(name, of_instancetypes.instancetype())
    if kind == "VirtualMachineInstance":
        return groups.running(groups.section())
    if kind == "VirtualMachineInstanceMigration":
        return eviction.migration(name=name)
    if kind == "VirtualMachine":
        return of_instancetypes.vm(instancetype=of_instancetypes.SMALL)
    in_group = {"kubevirt.io": "virt-launcher", **groups.IN_GROUP}
    return eviction.pod(labels=in_group) if kind == "Pod" else {}


class _Kept(Observer):
    """Keeps what went wrong, and has every record encoded as the audit log would."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def on_failure(self, endpoint: Endpoint, error: BaseException) -> None:
        self.error = error

    def write(self, record: Record) -> None:
        msgspec.json.encode(record)


class FuzzCase(msgspec.Struct, frozen=True):
    """The world around a review, drawn from its own bytes so that the same bytes meet the same world."""

    parameters: str
    state: str
    failure_policy: str
    seed: int

    @classmethod
    def of(cls, body: bytes) -> FuzzCase:
        digest = hashlib.sha256(body).digest()
        return cls(
            sorted(PARAMETERS)[digest[0] % len(PARAMETERS)],
            STATES[digest[1] % len(STATES)],
            ("Ignore", "Fail")[digest[2] % 2],
            digest[3],
        )

    def settings(self) -> Settings:
        policy: Any = self.failure_policy
        return changed(
            builders.settings(virtual_machine_instances=True),
            instancetypes=InstancetypeSettings(failure_policy=policy, missing="deny" if self.seed % 2 else "warn"),
            groups=groups.section(groups.TOGETHER if self.seed % 2 else groups.APART),
            migration=MigrationSettings(
                failure_policy=policy, require_right=self.seed % 3 == 0, max_unfinished=self.seed % 5
            ),
        )

    def world(self, mode: str) -> FuzzWorld:
        return FuzzWorld(mode, self.parameters, self.state, Mutator(random.Random(self.seed)).value)


# Both stages of a path have the same.
_CODECS = tuple(dict.fromkeys(endpoint.codec for endpoint in ENDPOINTS))


def reviews(body: bytes, *, counted: bool = False) -> str:
    """All endpoints for which the body is a review, in all their modes; the others reject it."""
    taking = {codec: _refused(lambda: codec.decode(body)) for codec in _CODECS}  # noqa: B023 - called here
    signature = {
        review(endpoint, mode, body, counted=counted) if taking[endpoint.codec] == "taken" else "no-review"
        for endpoint in ENDPOINTS
        for mode in MODES[endpoint.stage]
    }
    return " ".join(sorted(signature))


def review(endpoint: Endpoint, mode: str, body: bytes, *, counted: bool = False) -> str:
    """Sends a body twice to one endpoint in one mode."""
    case = FuzzCase.of(body)
    settings = case.settings()
    texts = []
    for _ in range(2):
        kept = _Kept()
        world = case.world(mode)
        reviewer = Reviewer(world, lambda: settings, kept, kept, wall=lambda: _NOW)
        try:
            if counted:
                text, calls = _counted(lambda: _run(reviewer.review(endpoint, body, 1e12)))  # noqa: B023 - called here
                oracle.calls(calls, len(body) + world.size)
            else:
                text = _run(reviewer.review(endpoint, body, 1e12))
        except InputError as error:
            oracle.rejection(error)
            return "no-review"
        if kept.error is not None:
            raise kept.error
        texts.append(text)
    oracle.require(texts[0] == texts[1], "the same question gets the same answer", endpoint.path)
    oracle.answer(endpoint, body, texts[0])
    response = json.loads(texts[0])["response"]
    notes, shape = response["auditAnnotations"], [key for key in ("patch", "warnings", "status") if key in response]
    return f"{endpoint.path}={mode}/{notes['decision']}/{notes['reason']}/{'+'.join(shape)}"


def _run(coroutine: Coroutine[Any, Any, bytes]) -> bytes:
    return _loop().run_until_complete(coroutine)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The loop of all reviews: one for each would cost more than all else."""
    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    return loop


def _counted(act: Callable[[], bytes]) -> tuple[bytes, int]:
    """Its result, and how many functions it called, C's among them."""
    count = 0

    def called(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    with no_collection():
        sys.setprofile(called)
        try:
            return act(), count
        finally:
            sys.setprofile(before)


def settings(data: bytes) -> str:
    return _refused(lambda: file.parse(data, "settings.yaml"))


def documents(data: bytes) -> str:
    """Files of objects, as the command line reads them."""

    def read() -> None:
        for document in parse_documents(data, "file.yaml"):
            for found in objects_in(document):
                json.dumps(found.value)

    return _refused(read)


def texts(data: bytes) -> str:
    """The small syntaxes: quantities, selectors, references, queries, times."""
    text = data.decode(errors="replace")
    said = [
        _refused(lambda: quantity.canonical(text)),
        _refused(lambda: parse_selector(text.split(","), "--to")),
        _refused(lambda: find_malformed({text: text}, "spec")),
        _refused(lambda: find.parse(INSTANCETYPE_MATCHER, text, "spec")),
        _refused(lambda: parse_question(text)),
        _refused(lambda: parse_question(f"namespace=demo&name=web01&to={text}")),
        _refused(lambda: timeout_of(text)),
        _blackout(text),
    ]
    return "".join("+" if word == "taken" else "-" for word in said)


def _blackout(text: str) -> str:
    try:
        Blackout.model_validate({"days": [text], "from": text, "to": "06:00", "timeZone": text})
    except ValueError:
        return "refused"
    return "taken"


def _refused(act: Callable[[], object]) -> str:
    try:
        act()
    except InputError as error:
        oracle.rejection(error)
        return "refused"
    return "taken"


TARGETS: Mapping[str, Callable[[bytes], str]] = {
    "reviews": reviews,
    "settings": settings,
    "documents": documents,
    "texts": texts,
}
