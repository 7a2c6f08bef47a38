"""The promises about every answer, for every request."""

from __future__ import annotations

import base64
import copy
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonpatch

from webhook import names
from webhook.admission.decision import LONGEST_WARNING
from webhook.admission.wire import MAX_NOTE
from webhook.errors import InputError
from webhook.policy import Endpoint

Json = dict[str, Any]

CODES = (403, 422, 429, 503)
# An answer holds parts of the object: patches lists that were changed, as a whole, in base64; a denial, names. Objects
# whose lists are all long take 1.2 times their bytes; characters that must be escaped may take three times as many.
MAX_GROWTH = 4
MAX_FRAME = 128 * 1024
# Function calls of a review, by the bytes of its body: small ones take 14,000, those with long lists four a byte.
MAX_CALLS = 60_000
MAX_CALLS_PER_BYTE = 10
MAX_SENTENCE = 4096

_ANNOTATIONS = "/metadata/annotations"
_TEMPLATES_ANNOTATIONS = "/spec/template/metadata/annotations"
_TEMPLATE = "/spec/template/spec"
# The fields that each policy may write: JSON pointers, and all below them.
OWNED: Mapping[str, tuple[str, ...]] = {
    "scheduling/pods": ("/spec/schedulerName", "/spec/topologySpreadConstraints"),
    "scheduling/virtualmachineinstances": ("/spec/schedulerName", "/spec/topologySpreadConstraints"),
    "scheduling/virtualmachines": (
        "/spec/template/spec/schedulerName",
        "/spec/template/spec/topologySpreadConstraints",
    ),
    "instancetypes/virtualmachines": ("/spec/instancetype", "/spec/preference", "/spec/template"),
    # As KubeVirt does, an instancetype and a preference write the annotations that their ``spec`` has.
    "instancetypes/virtualmachineinstances": ("/spec", _ANNOTATIONS),
    "migration/pods": ("/spec/affinity",),
    "groups/pods": ("/spec/affinity",),
    "defaults/pods": ("/spec/tolerations", "/spec/nodeSelector", "/spec/affinity"),
    "defaults/virtualmachineinstances": (
        *("/spec/priorityClassName", "/spec/evictionStrategy", "/spec/terminationGracePeriodSeconds"),
        "/spec/domain/cpu",
    ),
}
_OWN_ANNOTATIONS = re.compile(rf"{re.escape(names.DOMAIN)}/|(\w+\.)?kubevirt\.io/")
# What `webhook.admission.decision.compose` puts around a text.
_FRAMED = re.compile(r"kubevirt-webhook \([a-z]+\): (?P<text>.*) \[[a-z-]+\]", re.DOTALL)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class BrokenPromiseError(AssertionError):
    """An answer that breaks a promise."""


def require(holds: object, promise: str, seen: object = "") -> None:
    if not holds:
        raise BrokenPromiseError(f"{promise}: {str(seen)[:500]!r}")


def rejection(error: InputError) -> None:
    text = str(error)
    require(text, "a refusal says something")
    require(not _CONTROL.search(text.replace("\n", "")), "a refusal holds no control characters", text)
    require(max(map(len, text.splitlines())) <= MAX_SENTENCE, "a refusal is short", len(text))


def answer(endpoint: Endpoint, body: bytes, text: bytes) -> None:
    require(len(text) <= MAX_FRAME + MAX_GROWTH * len(body), "an answer is bounded by its question", len(text))
    review = json.loads(text.decode())
    require(set(review) == {"apiVersion", "kind", "response"}, "an answer is an AdmissionReview", sorted(review))
    require(review["kind"] == "AdmissionReview", "an answer is an AdmissionReview", review["kind"])
    response = review["response"]
    require(isinstance(response["uid"], str) and response["uid"], "an answer has its question's uid", response["uid"])
    require(isinstance(response["allowed"], bool), "an answer decides", response["allowed"])
    _texts(response)
    if endpoint.stage == names.OBSERVE:
        require(response["allowed"] and "patch" not in response, "who observes changes nothing", response)
    if not response["allowed"]:
        status = response["status"]
        require(status["code"] in CODES, "a denial has a code of the API", status["code"])
        framed = _FRAMED.fullmatch(status["message"])
        require(framed and framed["text"].strip(), "a denial says why", status["message"])
        told = [status["message"], *(cause["message"] for cause in status.get("details", {}).get("causes", ()))]
        for sentence in told:
            require(not _CONTROL.search(sentence.replace("\n", "")), "a denial holds no control characters", sentence)
        require("patch" not in response, "a denial patches nothing")
    if "patch" in response:
        require(endpoint.verb == "mutate", "what validates patches nothing")
        _patch(endpoint, json.loads(body), json.loads(base64.b64decode(response["patch"])))


def _texts(response: Json) -> None:
    for warning in response.get("warnings", ()):
        require(len(warning) <= LONGEST_WARNING, "a warning is short", len(warning))
        require(not _CONTROL.search(warning), "a warning holds no control characters", warning)
    for key, note in response.get("auditAnnotations", {}).items():
        require(re.fullmatch("[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", key), "a note has a qualified name", key)
        require(len(note) <= MAX_NOTE, "a note is short", len(note))


def _patch(endpoint: Endpoint, review: Json, operations: list[Json]) -> None:
    before = review["request"]["object"]
    owned = OWNED.get(f"{endpoint.policy}/{endpoint.resource}", ())
    places = (_ANNOTATIONS, _TEMPLATES_ANNOTATIONS) if endpoint.resource == "virtualmachines" else (_ANNOTATIONS,)
    for operation in operations:
        require(operation["op"] in ("add", "remove"), "patches add and remove only", operation["op"])
        for path in _written(operation["path"], operation.get("value"), (*owned, *places)):
            allowed = any(path == own or path.startswith(f"{own}/") for own in owned)
            require(allowed or _annotates(path, places), "a policy writes only what it owns", path)
    # Raises where the API server would fail the user's request.
    after = jsonpatch.apply_patch(copy.deepcopy(before), operations)
    for key in before.keys() | after.keys():
        if key not in ("metadata", "spec"):
            require(before.get(key) == after.get(key), "nothing but metadata and spec is written", key)
    others = [
        {key: value for key, value in (obj.get("metadata") or {}).items() if key != "annotations"}
        for obj in (before, after)
    ]
    require(others[0] == others[1], "nothing in the metadata but annotations is written", others[1])
    was, now = ((obj.get("metadata") or {}).get("annotations") or {} for obj in (before, after))
    for key, value in was.items():
        if not _OWN_ANNOTATIONS.match(key):
            require(key in now and now[key] == value, "an owner's annotation stays", key)


def _written(path: str, value: Any, owned: tuple[str, ...]) -> Iterator[str]:
    """The fields that an operation writes: where it makes what holds something owned, the things in it."""
    if isinstance(value, dict) and any(own == path or own.startswith(f"{path}/") for own in owned):
        for key, item in value.items():
            yield from _written(f"{path}/{key.replace('~', '~0').replace('/', '~1')}", item, owned)
    else:
        yield path


def _annotates(path: str, places: tuple[str, ...]) -> bool:
    """Whether a path is that of an annotation that is a policy's to write."""
    place, _, key = path.rpartition("/")
    return place in places and _OWN_ANNOTATIONS.match(key.replace("~1", "/")) is not None


def calls(count: int, size: int) -> None:
    """Hold the functions that a review called to the bytes that it had to read."""
    require(count <= MAX_CALLS + MAX_CALLS_PER_BYTE * size, "work is bounded by the bytes", count)
