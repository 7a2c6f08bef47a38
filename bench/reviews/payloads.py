"""The reviews that are sent, and what a right answer does to their objects.

They were recorded from a real API server; the migration of a drain is one of these, with the object and the sender that
KubeVirt's evacuation controller has.
"""

from __future__ import annotations

import base64
import binascii
import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import jsonpatch

from bench.reviews.errors import BenchError

_DATA: Final = Path(__file__).with_name("data")
_SCHEDULER: Final = "kubevirt"
_INJECTED_ANNOTATION: Final = "kubevirt-webhook.github.io/injected-scheduler"


@dataclass(frozen=True, slots=True)
class Payload:
    """One review.

    Attributes:
        name: what it is about, and its file's name.
        written: the values that a right answer writes into the object, by path; empty: it must not patch.
        varied: a name in it, which is another one each time, `NAMES` by turns; empty: it is sent as it is.
    """

    name: str
    written: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    varied: str = ""

    @property
    def file(self) -> Path:
        return _DATA / f"{self.name}.json"

    def check(self, who: str, status: int, answer: bytes) -> None:
        """See that a server did the work before its figures are taken: leaving an object alone is cheap.

        Raises:
            BenchError: the answer is not the right one.
        """
        fault = self._fault(status, answer)
        if fault:
            raise BenchError(f"{who} gave no right answer to the {self.name} review, so nothing was measured: {fault}")

    def _fault(self, status: int, answer: bytes) -> str:
        if status != 200:
            return f"HTTP {status}: {answer[:200].decode(errors='replace').strip()}"
        try:
            review = json.loads(answer)
            response = review["response"]
            found = (review["apiVersion"], review["kind"], response["uid"], response["allowed"])
        except (ValueError, KeyError, TypeError):
            return f"not the answer of an AdmissionReview: {answer[:200]!r}"
        request = json.loads(self.file.read_bytes())["request"]
        expected = ("admission.k8s.io/v1", "AdmissionReview", request["uid"], True)
        if found != expected:
            return f"apiVersion, kind, uid and allowed are {found}, not {expected}: {answer[:400].decode()}"
        return self._patch_fault(request["object"], response)

    def _patch_fault(self, before: Any, response: Mapping[str, Any]) -> str:
        if not self.written:
            return "it patches an object that needs no patch" if response.get("patch") else ""
        if not response.get("patch"):
            return f"it leaves the object alone: {json.dumps(response)[:400]}"
        if response.get("patchType") != "JSONPatch":
            return f"its patchType is {response.get('patchType')!r}"
        try:
            operations = json.loads(base64.b64decode(response["patch"], validate=True))
            after = jsonpatch.apply_patch(before, operations)
        except (ValueError, binascii.Error, jsonpatch.JsonPatchException) as error:
            return f"its patch does not apply: {error}"
        expected = copy.deepcopy(before)
        for path, value in self.written.items():
            _put(expected, path, value)
        lost = _lost(expected, after, "")
        return f"after its patch, {lost}" if lost else ""


def _put(node: Any, path: tuple[str, ...], value: str) -> None:
    *parents, name = path
    for parent in parents:
        node = node.setdefault(parent, {})
    node[name] = value


def _lost(expected: Any, found: Any, where: str) -> str:
    """Where ``found`` lacks or changes something of ``expected``; more is fine, and empty maps that are gone too."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key, value in expected.items():
            if key not in found and value in ({}, [], "", None):
                continue
            fault = _lost(value, found.get(key), f"{where}/{key}")
            if fault:
                return fault
        return ""
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            fault = _lost(one, other, f"{where}/{index}")
            if fault:
                return fault
        return ""
    return "" if expected == found else f"{where} is {found!r}, not {expected!r}"


POD: Final = Payload(
    "pod",
    {("spec", "schedulerName"): _SCHEDULER, ("metadata", "annotations", _INJECTED_ANNOTATION): _SCHEDULER},
    varied="pool-0",
)
VM: Final = Payload(
    "vm",
    {
        ("spec", "template", "spec", "schedulerName"): _SCHEDULER,
        ("metadata", "annotations", _INJECTED_ANNOTATION): _SCHEDULER,
        ("spec", "template", "metadata", "annotations", _INJECTED_ANNOTATION): _SCHEDULER,
    },
)
MIGRATION: Final = Payload("migration")
# Without a selector: what KubeVirt itself creates for each VM of a node that is drained.
DRAIN: Final = Payload("drain")

# More than any memory of the latest texts holds: no cluster sends the same pod again.
NAMES: Final = 1500
PAYLOADS: Final = (POD, VM, MIGRATION, DRAIN)
