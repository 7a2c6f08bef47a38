"""Mutations of JSON that keep most of its structure, and of bytes that don't."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from webhook import names
from webhook.policies.registry import BY_NAME

Path = tuple[Any, ...]

# The placeholder for bytes that JSON cannot express.
_RAW = "@raw-{}@"
RAW: Sequence[bytes] = (
    b"[" * 200 + b"]" * 200,
    b'{"a":' * 1100 + b"1" + b"}" * 1100,
    b'{"a":[' * 4900 + b"1" + b"]}" * 4900,
    *(b"[" * 3000, b'"\xff\xfe"', b'"\xed\xa0\x80"', b'"\\ud800"', b'"\\u0000"', b'"\x01"', b"NaN", b"1e400", b"-0"),
    *(b"9" * 400, b"1e-400", b'{"a":1,"a":2}', b"{}}", b""),
)
_TEXTS: Sequence[str] = (
    *("", " ", "0", "-1", "4Gi", "1e9999", "9" * 100, "1500m", "0x10", "true", "off", "enforce", "null"),
    *("a\x00b", "a\nb\r\n", "\x1b[31mred\x1b[0m", "\u202egnp.exe", "\u2028"),
    *("\u00e9" * 300, "x" * 20_000, "\U0001f600"),
    *("../../secrets/x", "a/b/c", "/", "~0~1", "a~/b", "%2e%2e", '"', "\\", "{}", "*", "**" * 200, "u1.*,"),
    *("u1.small", "fedora", "VirtualMachineInstancetype/u1.small", "virtualmachineclusterinstancetypes", "kubevirt"),
    *("default-scheduler", "batch", "virt-launcher", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "zone"),
    *("host-model", "host-passthrough", "spread", "q35", "amd64", "forbid", "force", "LiveMigrate", "External"),
    *("kubevirt.io/nodeName", "cpu-vendor.node.kubevirt.io/Intel", "kubernetes.io/hostname", "v1:metadata.name"),
    *("kubevirt-evacuation-", "kubevirt.io/v1", "kubevirt.io/v1alpha3", "2026-11-21T12:00:00Z", "CREATE", "UPDATE"),
    *(value for name, value in sorted(vars(names).items()) if name.isupper() and isinstance(value, str)),
    *(names.policy_label(policy) for policy in BY_NAME),
)
_SCALARS: Sequence[Any] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**30, 0.5, -1e300),
    *([], {}, "", [[]]),
)
_KEYS: Sequence[str] = (
    *("instancetype", "preference", "template", "spec", "metadata", "annotations", "labels", "name", "kind", "status"),
    *("revisionName", "inferFromVolume", "schedulerName", "nodeSelector", "affinity", "domain", "cpu", "features"),
    *("addedNodeSelector", "vmiName", "sendTo", "ownerReferences", "uid", "controller"),
    *("dryRun", "operation", "object"),
    *("oldObject", "subResource", "namespace", "generateName", "deletionTimestamp", "topologySpreadConstraints"),
    *("memory", "guest", "hugepages", "resources", "requests", "limits", "disks", "interfaces", "volumes", "devices"),
    *("nodeSelectorTerms", "matchExpressions", "matchFields", "operator", "values", "key", "deleteOptions"),
    *("numa", "realtime", "dedicatedCpuPlacement", "threads", "sockets", "cores", "model", "policy", "architecture"),
)


# Characters of what is repeated; what has more is not mutated further.
_MAX_REPEATED = 300_000


class Mutator:
    """Makes inputs of others, the same ones for the same seed."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._ways: Sequence[Callable[[Any, Path], Any]] = (
            *(self._replaced, self._replaced, self._removed, self._added, self._added),
            *(self._swapped, self._repeated, self._wrapped, self._renamed),
        )

    def body(self, seed: bytes) -> bytes:
        """A mutation of an input that may be JSON."""
        chance = self._chance
        if chance.random() < 0.1:
            return self.noise(seed)
        try:
            value = self.value(json.loads(seed))
            encoded = json.dumps(value, ensure_ascii=chance.random() < 0.5, indent=chance.choice((None, None, 1)))
        except (ValueError, RecursionError):
            return self.noise(seed)
        body = encoded.encode(errors="surrogatepass")
        for index, raw in enumerate(RAW):
            body = body.replace(f'"{_RAW.format(index)}"'.encode(), raw)
        return self.noise(body) if chance.random() < 0.03 else body

    def value(self, value: Any) -> Any:
        value = copy.deepcopy(value)
        for _ in range(self._chance.choice((1, 1, 1, 2, 3, 8))):
            path = self._chance.choice(list(_paths(value)))
            value = self._chance.choice(self._ways)(value, path)
            if _is_large(value):
                break
        return value

    def text(self, seed: str) -> str:
        """A mutation of a text of any syntax."""
        pieces = [seed, self._chance.choice(_TEXTS), self._chance.choice(_KEYS)]
        at = self._chance.randrange(len(seed) + 1)
        return self._chance.choice(
            (
                seed[:at] + self._chance.choice(pieces) + seed[at:],
                seed[:at] + seed[at + self._chance.randrange(4) :],
                seed[:at] + chr(self._chance.choice((0, 10, 32, 34, 44, 47, 58, 61, 127, 0x2028, 0xD7FF))) + seed[at:],
                seed * self._chance.choice((2, 50)),
                self._chance.choice(_TEXTS),
            )
        )[:200_000]

    def noise(self, seed: bytes) -> bytes:
        """Other bytes: cut, doubled, flipped, or with a piece of another input in between."""
        chance = self._chance
        body = bytearray(seed)
        for _ in range(chance.choice((1, 2, 5))):
            at = chance.randrange(len(body) + 1)
            way = chance.randrange(4)
            if way == 0:
                del body[at : at + chance.choice((1, 5, 500))]
            elif way == 1:
                body[at:at] = chance.choice((*RAW, b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\x00", b"\xff"))
            elif way == 2 and body:
                body[at % len(body)] = chance.randrange(256)
            else:
                body[at:at] = body[max(0, at - 50) : at]
        return bytes(body)

    # -- ways ----------------------------------------------------------------------------------------------------------

    def _anything(self, value: Any) -> Any:
        way = self._chance.random()
        if way < 0.35:
            return self._chance.choice(_TEXTS)
        if way < 0.6:
            return copy.deepcopy(self._chance.choice(_SCALARS))
        if way < 0.75:
            return _RAW.format(self._chance.randrange(len(RAW)))
        return copy.deepcopy(_at(value, self._chance.choice(list(_paths(value)))))

    def _replaced(self, value: Any, path: Path) -> Any:
        return _set(value, path, self._anything(value))

    def _removed(self, value: Any, path: Path) -> Any:
        if path:
            del _at(value, path[:-1])[path[-1]]
        return value

    def _added(self, value: Any, path: Path) -> Any:
        place, new = _at(value, path), self._anything(value)
        if isinstance(place, dict):
            place[self._chance.choice(_KEYS if self._chance.random() < 0.6 else _TEXTS)] = new
        elif isinstance(place, list):
            place.insert(self._chance.randrange(len(place) + 1), new)
        return value

    def _swapped(self, value: Any, path: Path) -> Any:
        return _set(value, path, copy.deepcopy(_at(value, self._chance.choice(list(_paths(value))))))

    def _repeated(self, value: Any, path: Path) -> Any:
        place = _at(value, path)
        times = self._chance.choice((2, 10, 300))
        if isinstance(place, list) and len(json.dumps(place)) * times < _MAX_REPEATED:
            # Each of them is a copy: a later change of one must not change the others.
            return _set(value, path, [copy.deepcopy(item) for _ in range(times) for item in place])
        if isinstance(place, dict) and place:
            key, times = self._chance.choice(sorted(place)), min(times, 20)
            # Copies of copies would grow twentyfold with every step.
            if len(json.dumps(place[key])) * times < _MAX_REPEATED:
                place.update({f"{key}{number}": copy.deepcopy(place[key]) for number in range(times)})
        return value

    def _wrapped(self, value: Any, path: Path) -> Any:
        place = _at(value, path)
        for _ in range(self._chance.choice((1, 2, 90, 110))):
            place = [place] if self._chance.random() < 0.5 else {self._chance.choice(_KEYS): place}
        return _set(value, path, place)

    def _renamed(self, value: Any, path: Path) -> Any:
        place = _at(value, path)
        if isinstance(place, dict) and place:
            key = self._chance.choice(sorted(place))
            place[self._chance.choice(_KEYS)] = place.pop(key)
        return value


def _is_large(value: Any) -> bool:
    try:
        return len(json.dumps(value)) > _MAX_REPEATED
    except RecursionError:
        return True


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Paths of all values, and of the object's own twice: it is what tenants write."""
    pending = [(path, value)]
    while pending:
        here, place = pending.pop()
        yield here
        if "object" in here[:2] and len(here) < 8:
            yield here
        if isinstance(place, dict):
            pending += [((*here, key), item) for key, item in place.items()]
        elif isinstance(place, list):
            pending += [((*here, index), item) for index, item in enumerate(place[:50])]


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def _set(value: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    _at(value, path[:-1])[path[-1]] = new
    return value
