"""What happened in a cluster, as others than the server have written it down: etcd, the API server, the test itself.

A history is a file of JSON lines, so that what was found once can be checked again without a cluster. Moments are Unix
time in seconds. Of a change it is only known between which two moments it came, and everything here takes the wider
reading: what the checker finds wrong is wrong however the moments really were.
"""

from __future__ import annotations

import bisect
import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from webhook.errors import InputError

Json: TypeAlias = dict[str, Any]


class ObjectId(NamedTuple):
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> ObjectId:
        return cls(obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"])

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Change:
    """An object became this, or was deleted, at a moment between ``after`` and ``by``.

    Attributes:
        revision: that of etcd; 0 where etcd was put back to an older copy.
    """

    id: ObjectId
    after: float
    by: float
    value: Json | None
    revision: int = 0


@dataclass(frozen=True)
class Call:
    """A webhook of ours that the API server called for a request, as its audit annotations tell it.

    Attributes:
        webhook: the name of the entry.
        mode: as the server answered; empty where there was no answer.
        patch: the JSON patch; None where there was none.
        failed_open: the call failed, and the request went on.
    """

    webhook: str
    type: Literal["mutating", "validating"] = "mutating"
    mode: str = ""
    decision: str = ""
    reason: str = ""
    patch: list[Json] | None = None
    failed_open: bool = False


@dataclass(frozen=True)
class Request:
    """A request that creates or updates an object, or evicts a pod, and its answer.

    Attributes:
        object: as the client sent it.
        old: what is stored before an update; None: not known, or there was none.
        result: what the API server stored; None for a denied request.
        calls: of our webhooks, in their order.
    """

    id: str
    received: float
    completed: float
    operation: Literal["CREATE", "UPDATE"]
    resource: str
    subresource: str
    namespace: str
    name: str
    user: Json
    object: Json
    code: int
    message: str = ""
    old: Json | None = None
    result: Json | None = None
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Fault:
    """A fault that the test injected, from its first effect to its last.

    Attributes:
        clock: seconds by which a replica's wall clock was off meanwhile.
    """

    what: str
    began: float
    ended: float
    about: str = ""
    clock: float = 0.0


@dataclass(frozen=True)
class SettingsWritten:
    """The settings file of all replicas became this."""

    after: float
    by: float
    text: str


@dataclass(frozen=True)
class Webhook:
    """An entry of the installed configurations."""

    name: str
    type: Literal["mutating", "validating"]
    path: str
    failure_policy: str


@dataclass(frozen=True)
class Sample:
    """What a replica said of its readiness.

    Attributes:
        blind_since: when it lost its last way to the API server; None: it has one.
    """

    at: float
    replica: str
    ready: bool
    text: str
    blind_since: float | None = None


@dataclass(frozen=True)
class Run:
    """What the history is of.

    Attributes:
        seed: of all that was chosen at random.
        current_seconds: how old a store may be by which the server decides (docs/reliability.md).
        definitions: the CustomResourceDefinitions.
        command: what repeats it.
    """

    seed: int
    current_seconds: float
    definitions: list[Json]
    command: str = ""
    began: float = 0.0


@dataclass
class History:
    run: Run
    changes: list[Change] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    settings: list[SettingsWritten] = field(default_factory=list)
    webhooks: list[Webhook] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def save(self, file: Path) -> None:
        parts = (self.webhooks, self.settings, self.changes, self.faults, self.samples, self.requests)
        with file.open("w") as lines:
            one: Any
            for one in itertools.chain([self.run], *parts):
                lines.write(f"{json.dumps([type(one).__name__, asdict(one)])}\n")

    @classmethod
    def load(cls, file: Path) -> History:
        """The history in a file.

        Raises:
            InputError: the file cannot be read, or is no history.
        """
        run: Run | None = None
        history = cls(Run(0, 0.0, []))
        try:
            with file.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    one = _read(line, f"{file}:{number}")
                    match one:
                        case Run():
                            run = history.run = one
                        case Change():
                            history.changes.append(one)
                        case Request():
                            history.requests.append(one)
                        case Fault():
                            history.faults.append(one)
                        case SettingsWritten():
                            history.settings.append(one)
                        case Webhook():
                            history.webhooks.append(one)
                        case Sample():
                            history.samples.append(one)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", str(file)) from None
        if run is None:
            raise InputError("is no history: nothing says which run it is of", str(file), _FIX)
        return history


_PARTS: Mapping[str, type[Any]] = {
    part.__name__: part for part in (Run, Change, Request, Fault, SettingsWritten, Webhook, Sample)
}
_FIX = "name a history.jsonl that a run has written"


def _read(line: bytes, where: str) -> Any:
    try:
        name, fields = msgspec.json.decode(line, type=tuple[str, Json])
        return msgspec.convert(fields, _PARTS[name])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
        raise InputError("is no line of a history", where, _FIX) from None


class Timelines:
    """The objects of a history, each with all that it has been."""

    def __init__(self, changes: Iterable[Change]) -> None:
        self._of: dict[ObjectId, list[Change]] = defaultdict(list)
        self._kinds: dict[str, list[Change]] = defaultdict(list)
        for change in changes:
            self._of[change.id].append(change)
            self._kinds[change.id.kind].append(change)

    def ids(self, kind: str) -> list[ObjectId]:
        return [each for each in self._of if each.kind == kind]

    def changes(self, wanted: ObjectId) -> list[Change]:
        return self._of.get(wanted, [])

    def during(self, wanted: ObjectId, begin: float, end: float) -> list[Json | None]:
        """All that an object may have been at a moment from ``begin`` to ``end``, the last first; None: not there."""
        changes = self._of.get(wanted, [])
        values = [changes[number].value for number in _possible(changes, begin, end)]
        if not changes or changes[0].by >= begin:
            values.append(None)
        return values

    def lists_during(self, kind: str, begin: float, end: float) -> Iterator[list[Json]]:
        """All objects of a kind, as they may have been at a moment, the last first. Changes come in etcd's order."""
        changes = self._kinds.get(kind, [])
        last = bisect.bisect_left(changes, True, key=lambda change: change.after > end)
        first = bisect.bisect_left(changes, True, key=lambda change: change.by >= begin)
        for cut in range(last, first - 1, -1):
            there: dict[ObjectId, Json] = {}
            for change in changes[:cut]:
                if change.value is None:
                    there.pop(change.id, None)
                else:
                    there[change.id] = change.value
            yield [there[name] for name in sorted(there)]


def _possible(changes: list[Change], begin: float, end: float) -> Iterator[int]:
    """Which of an object's changes may be its last at a moment from ``begin`` to ``end``, the last first."""
    for number in range(len(changes) - 1, -1, -1):
        if changes[number].after > end:
            continue
        yield number
        if changes[number].by < begin:
            return
