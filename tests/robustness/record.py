"""Writes down what others know of a cluster: etcd what was true, the API server's audit log what was decided."""

from __future__ import annotations

import base64
import datetime as dt
import http.client
import json
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from tests.e2e.support.processes import LOOPBACK

from .history import Call, Change, Json, ObjectId, Request, Webhook

PREFIX, PREFIX_END = b"/registry/", b"/registry0"
# What policies read, and what clients make.
KINDS = frozenset(
    {
        "ControllerRevision",
        "KubeVirt",
        "LimitRange",
        "MigrationPolicy",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Pod",
        "PriorityClass",
        "ResourceQuota",
        "RuntimeClass",
        "VirtualMachine",
        "VirtualMachineClusterInstancetype",
        "VirtualMachineClusterPreference",
        "VirtualMachineInstance",
        "VirtualMachineInstanceMigration",
        "VirtualMachineInstancePreset",
        "VirtualMachineInstancetype",
        "VirtualMachinePreference",
    }
)
# Requests whose objects are written down; what decides beside them is here for its moments.
AUDITED = [
    {"group": "", "resources": ["namespaces", "pods", "pods/eviction", "nodes"]},
    {"group": "kubevirt.io"},
    {"group": "instancetype.kubevirt.io"},
    {"group": "policy"},
]
_ROUND = re.compile(
    r"^(patch|mutation|failed-open\.mutation|failed-open\.validating)\.webhook\.admission\.k8s\.io/"
    r"round_(\d+)_index_(\d+)$"
)
_RETRY_SECONDS = 0.1
# Audit lines say when an answer was made, to a millisecond; the API server's clock is the same.
_EARLY_SECONDS = 0.005


@dataclass(frozen=True)
class _Seen:
    """A change as it arrived; ``began``: nothing of it can have been true before.

    Attributes:
        is_followed: it came by the watch, or is newer than all before; else etcd was read again, perhaps another one.
    """

    id: ObjectId
    value: Json | None
    revision: int
    began: float
    arrived: float
    is_followed: bool = True


class EtcdRecorder:
    """Follows all objects in etcd by its JSON gateway, also after etcd was restarted, compacted or put back.

    A context manager. What etcd holds is read whole at the beginning and whenever the watch cannot go on: what differs
    from before has changed at some moment since etcd was heard of last.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._values: dict[str, Json] = {}
        self._seen: list[_Seen] = []
        self._revision = 0
        self._heard = 0.0
        self._ends = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60), "etcd was not read within a minute"
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()

    def caught_up(self, revision: int) -> bool:
        return self._revision >= revision

    def changes(self, written: Mapping[int, Sequence[tuple[float, float]]]) -> list[Change]:
        """All changes in etcd's order, each between the narrowest two moments.

        Args:
            written: of a revision, when the API server got a request that made it, and when it had answered; an etcd
                that was put back makes it once more.
        """
        seen = list(self._seen)
        found: list[Change] = []
        after = 0.0
        for one in seen:
            known = written.get(one.revision, ()) if one.is_followed else ()
            received, completed = max(
                (each for each in known if each[0] <= one.arrived), default=(one.began, one.arrived)
            )
            after = max(after, received)
            found.append(Change(one.id, after, max(after, min(one.arrived, completed)), one.value, one.revision))
        latest = float("inf")
        for number in range(len(found) - 1, -1, -1):
            latest = min(latest, found[number].by)
            found[number] = replace(found[number], by=max(latest, found[number].after))
        return found

    def _follow(self) -> None:
        while not self._ends.is_set():
            with suppress(OSError, http.client.HTTPException, ValueError, KeyError):
                self._read_all()
                self._watch()
            time.sleep(_RETRY_SECONDS)

    def _read_all(self) -> None:
        began = self._heard
        with closing(self._connect()) as connection:
            asked = {"key": _text(PREFIX), "range_end": _text(PREFIX_END)}
            connection.request("POST", "/v3/kv/range", json.dumps(asked))
            answer = json.loads(connection.getresponse().read())
        arrived = time.time()
        revision = int(answer["header"]["revision"])
        there = {}
        for pair in answer.get("kvs", ()):
            if (value := _value(pair)) is not None:
                there[base64.b64decode(pair["key"]).decode()] = value, int(pair["mod_revision"])
        # In the order of their revisions, so that what the audit log knows of one holds for the next ones.
        for key in [key for key in self._values if key not in there]:
            self._note(key, None, revision, began, arrived, is_followed=False)
        for key, (value, version) in sorted(there.items(), key=lambda item: item[1][1]):
            if self._values.get(key) != value:
                self._note(key, value, version, began, arrived, is_followed=version > self._revision)
        self._revision, self._heard = revision, arrived
        self._ready.set()

    def _watch(self) -> None:
        create = {
            "key": _text(PREFIX),
            "range_end": _text(PREFIX_END),
            "start_revision": str(self._revision + 1),
            "progress_notify": True,
        }
        with closing(self._connect()) as connection:
            connection.request("POST", "/v3/watch", json.dumps({"create_request": create}))
            response = connection.getresponse()
            while not self._ends.is_set() and (line := response.readline()):
                result = json.loads(line)["result"]
                arrived = time.time()
                if result.get("canceled") or int(result["header"]["revision"]) < self._revision:
                    return
                for event in result.get("events", ()):
                    pair = event["kv"]
                    key, revision = base64.b64decode(pair["key"]).decode(), int(pair["mod_revision"])
                    value = None if event.get("type") == "DELETE" else _value(pair)
                    if value is not None or key in self._values:
                        self._note(key, value, revision, self._heard, arrived)
                    self._revision = max(self._revision, revision)
                self._heard = arrived

    def _note(
        self, key: str, value: Json | None, revision: int, began: float, arrived: float, *, is_followed: bool = True
    ) -> None:
        known = value if value is not None else self._values.pop(key)
        if value is not None:
            self._values[key] = value
        self._seen.append(_Seen(ObjectId.of(known), value, revision, began, arrived, is_followed))

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(LOOPBACK, self._port, timeout=120)


def _value(pair: Json) -> Json | None:
    raw = base64.b64decode(pair.get("value", ""))
    if not raw.startswith(b"{"):
        return None  # an object that was there before the API server was asked to write JSON
    value: Json = json.loads(raw)
    return value if value.get("kind") in KINDS else None


def _text(key: bytes) -> str:
    return base64.b64encode(key).decode()


# -- the audit log -----------------------------------------------------------------------------------------------------


def audit_flags(directory: Path) -> list[str]:
    """Of an API server that writes all that the recorder reads, and keeps its objects as JSON."""
    directory.mkdir(parents=True, exist_ok=True)
    policy = directory / "audit-policy.json"
    rules = [
        {"level": "None", "verbs": ["get", "list", "watch", "delete", "deletecollection"]},
        {"level": "RequestResponse", "resources": AUDITED, "omitStages": ["RequestReceived"]},
        {"level": "None"},
    ]
    policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
    return [
        f"--audit-policy-file={policy}",
        f"--audit-log-path={directory / 'audit.log'}",
        "--audit-log-mode=blocking-strict",
        "--storage-media-type=application/json",
    ]


def audit_events(directory: Path) -> list[Json]:
    """What the API server has written of requests that ended; a line may be torn where it was killed."""
    events = []
    for line in (directory / "audit.log").read_text(errors="replace").splitlines():
        with suppress(ValueError):
            event = json.loads(line)
            if event["stage"] in ("ResponseComplete", "Panic"):
                events.append(event)
    return events


def moments(events: Iterable[Json]) -> dict[int, list[tuple[float, float]]]:
    """Of each revision that a request made, when it was received and when it was answered."""
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        version = (event.get("responseObject") or {}).get("metadata", {}).get("resourceVersion")
        if version and event.get("responseStatus", {}).get("code", 500) < 300:
            found[int(version)].append((_time(event["requestReceivedTimestamp"]), _time(event["stageTimestamp"])))
    return found


def requests_of(
    events: Sequence[Json], lines: Sequence[Json], webhooks: Sequence[Webhook], changes: Sequence[Change]
) -> list[Request]:
    """The requests that reached admission, with the calls of our webhooks.

    Args:
        events: of the API server's audit log.
        lines: the audit lines of all replicas.
        webhooks: the installed entries.
        changes: what was true, for what was stored before an update.
    """
    by_object: dict[tuple[str, str], list[Json]] = defaultdict(list)
    for line in lines:
        by_object[line["object"]["namespace"], line["object"]["name"]].append(line)
    stored: dict[ObjectId, list[Change]] = defaultdict(list)
    for change in changes:
        stored[change.id].append(change)
    return [request for event in events if (request := _request(event, by_object, webhooks, stored)) is not None]


def _request(
    event: Json,
    lines: Mapping[tuple[str, str], Sequence[Json]],
    webhooks: Sequence[Webhook],
    stored: Mapping[ObjectId, Sequence[Change]],
) -> Request | None:
    about, sent, answer = event.get("objectRef", {}), event.get("requestObject"), event.get("responseObject") or {}
    code = event.get("responseStatus", {}).get("code", 0)
    resource, subresource = about.get("resource", ""), about.get("subresource", "")
    reviewed = ("virtualmachines", ""), ("virtualmachineinstances", ""), ("virtualmachineinstancemigrations", "")
    if (resource, subresource) not in (*reviewed, ("pods", ""), ("pods", "eviction")):
        return None
    if event["verb"] not in ("create", "update") or not sent or (event["verb"] == "update" and subresource):
        return None
    received, completed = _time(event["requestReceivedTimestamp"]), _time(event["stageTimestamp"])
    namespace = about.get("namespace", "")
    # Of what gets a name only after admission, the beginning of it, as audit lines have it.
    name = about.get("name") or sent.get("metadata", {}).get("name") or sent.get("metadata", {}).get("generateName", "")
    operation: Literal["CREATE", "UPDATE"] = "CREATE" if event["verb"] == "create" else "UPDATE"
    # A controller may change what a user has just made before the user has the answer; a VM and its VMI have one name.
    about_it = sent.get("kind", ""), operation, event["user"]["username"]
    near = [
        line
        for line in lines.get((namespace, name), ())
        if received - _EARLY_SECONDS <= _time(line["time"]) <= completed + _EARLY_SECONDS
        and (line["object"]["kind"], line["operation"], line["user"]) == about_it
    ]
    old = None
    if event["verb"] == "update":
        wanted = sent.get("metadata", {}).get("resourceVersion")
        versions = stored.get(ObjectId(sent["kind"], namespace, name), ())
        before = [one.value for one in versions if one.value and str(one.revision) == wanted and one.after <= completed]
        old = before[-1] if before else None
        if old is None:
            return None  # of another version: a conflict, or what etcd no longer tells
        old = {**old, "metadata": {**old["metadata"], "resourceVersion": wanted}}
    return Request(
        id=event["auditID"],
        received=received,
        completed=completed,
        operation=operation,
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
        user={key: event["user"][key] for key in ("username", "uid", "groups", "extra") if key in event["user"]},
        object=sent,
        code=code,
        message=str(event.get("responseStatus", {}).get("message") or answer.get("message", "")),
        old=old,
        result=answer if 200 <= code < 300 and not subresource else None,
        calls=tuple(_calls(event.get("annotations", {}), near, webhooks)),
    )


def _calls(annotations: Mapping[str, str], lines: Sequence[Json], webhooks: Sequence[Webhook]) -> Iterator[Call]:
    """Mutating calls in their order, of their first round, as the API server has them; then those that validate."""
    rounds: dict[tuple[int, int], dict[str, Any]] = defaultdict(dict)
    validating: set[str] = set()
    for key, value in annotations.items():
        if (found := _ROUND.match(key)) is None:
            continue
        what, place = found[1], (int(found[2]), int(found[3]))
        if what == "failed-open.validating":
            validating.add(value)
        elif what == "failed-open.mutation":
            rounds[place] |= {"webhook": value, "failed": True}
        else:
            said = json.loads(value)
            rounds[place] |= {"webhook": said["webhook"], **({"patch": said["patch"]} if what == "patch" else {})}
    paths = {(entry.type, entry.name): entry.path for entry in webhooks}
    answered = {line["endpoint"]: line for line in reversed(lines)}
    for (round_, _), said in sorted(rounds.items()):
        if round_ == 0 and (path := paths.get(("mutating", said["webhook"]))):
            yield _call(said["webhook"], "mutating", answered.get(path), said)
    for entry in webhooks:
        if entry.type == "validating" and (entry.path in answered or entry.name in validating):
            yield _call(entry.name, "validating", answered.get(entry.path), {"failed": entry.name in validating})


def _call(name: str, type_: Literal["mutating", "validating"], line: Json | None, said: Mapping[str, Any]) -> Call:
    if said.get("failed") or line is None:
        return Call(name, type_, failed_open=bool(said.get("failed")))
    return Call(name, type_, line["mode"], line["decision"], line["reasons"][0]["code"], said.get("patch"))


def _time(stamp: str) -> float:
    return dt.datetime.fromisoformat(stamp).timestamp()
