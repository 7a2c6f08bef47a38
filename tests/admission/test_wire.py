from __future__ import annotations

import base64
import json
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Json, launcher_pod, review
from tests.golden_files import Golden
from tests.k8s.json_values import JSON_VALUES
from webhook.admission import wire as module
from webhook.admission.decision import Denial, FieldCause, Outcome
from webhook.admission.wire import MAX_NOTE, Codec, GroupVersionKind, Request, encode, envelope, is_dry_run, object_name
from webhook.errors import MAX_SENTENCE, InputError
from webhook.k8s.json_tree import MAX_LEVELS, RUN
from webhook.k8s.types.core import DeleteOptions, Eviction, SchedulingPod
from webhook.k8s.types.meta import ObjectMeta, Unstructured
from webhook.kubevirt.types.views import VirtualMachine
from webhook.text import visible

PODS: Codec[SchedulingPod] = Codec(SchedulingPod, "", "Pod")
VMS: Codec[VirtualMachine] = Codec(VirtualMachine, "kubevirt.io", "VirtualMachine")


def body(value: object) -> bytes:
    return json.dumps(value).encode()


def rejection(data: bytes) -> str:
    with pytest.raises(InputError) as caught:
        PODS.decode(data)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def test_decodes_what_the_policy_reads() -> None:
    received = PODS.decode(body(review(launcher_pod())))
    assert (received.malformed, received.api_version) == (None, "admission.k8s.io/v1")
    spec = received.request.object and received.request.object.spec
    assert spec and spec.scheduler_name == "default-scheduler"
    assert received.request.user_info.username == "system:serviceaccount:kubevirt:kubevirt-controller"
    # v1beta1 is answered as v1beta1.
    received = PODS.decode(body(review(launcher_pod()) | {"apiVersion": "admission.k8s.io/v1beta1"}))
    answer = encode(received.api_version, received.request, Outcome(None, (), (), {}), None, {})
    assert json.loads(answer)["apiVersion"] == "admission.k8s.io/v1beta1"


REVIEW = body(review(launcher_pod()))


NO_REVIEWS = {
    "empty": b"",
    "text": b"hello",
    "not UTF-8": b"\xff\xfe",
    "not UTF-8 in a string": b'{"kind": "AdmissionReview", "x": "\xff"}',
    "truncated": REVIEW[:-20],
    "more behind it": REVIEW + b"{}",
    "nested arrays": b"[" * 100_000,
    "nested objects": b'{"request": {"object": ' + b'{"a":' * 1_000_000 + b"1" + b"}" * 1_000_002,
    "NaN": b'{"kind": NaN}',
    "array": b"[]",
    "null": b"null",
    "object": b"{}",
    "a Pod": body({"apiVersion": "v1", "kind": "Pod"}),
    "version v2": body({"apiVersion": "admission.k8s.io/v2", "kind": "AdmissionReview"}),
    "no request": body({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}),
    "no uid": body(review(launcher_pod(), uid="")),
    "number as uid": body(review(launcher_pod(), uid=5)),
    "array as userInfo": body(review(launcher_pod(), userInfo=[])),
    "string as request": body(review(launcher_pod()) | {"request": "x"}),
    "another kind": body(review(launcher_pod(), kind={"kind": "Node"})),
    "no kind": body(review(launcher_pod(), kind={})),
    "another group": body(review(launcher_pod(), kind={"group": "x.io", "version": "v1", "kind": "Pod"})),
}


@pytest.mark.parametrize("data", NO_REVIEWS.values(), ids=NO_REVIEWS)
def test_what_is_no_review_gets_one_sentence(data: bytes, golden: Golden) -> None:
    golden(rejection(data))


@pytest.mark.parametrize(("rare", "most"), [("", 1.5), ("\N{GRINNING FACE}", 6.5)])
def test_no_copy_of_the_body_is_kept_beside_what_is_decoded(rare: str, most: float) -> None:
    """What is decoded takes as much as the body; four times that, where one character is beyond 16 bits."""
    pod = launcher_pod()
    pod["metadata"]["annotations"] = {"padding": "x" * (3 * 1024 * 1024) + rare}
    body = msgspec.json.encode(review(pod))
    tracemalloc.start()
    try:
        received = PODS.decode(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert received.malformed is None
    assert peak <= most * len(body)


@pytest.mark.parametrize("wrong", [b"\xff", b"\xed\xa0\x80", b"\xc0\x80"])
def test_invalid_utf8_in_what_no_policy_reads_is_invalid_too(wrong: bytes) -> None:
    body = msgspec.json.encode(review(launcher_pod())).replace(b'"spec"', b'"unknown":"%s","spec"' % wrong, 1)
    assert PODS.decode(body).malformed


def test_wrong_kind_names_both() -> None:
    with pytest.raises(InputError, match=r"evaluates VirtualMachine\.kubevirt\.io, not Pod;"):
        VMS.decode(REVIEW)


@pytest.mark.parametrize("field", ["group", "kind"])
def test_another_kind_however_long_its_name_is_one_short_sentence(field: str, golden: Golden) -> None:
    asked = review(launcher_pod())
    asked["request"]["kind"][field] = "x" * 1_000_000
    with pytest.raises(InputError) as caught:
        PODS.decode(body(asked))
    assert len(str(caught.value)) <= MAX_SENTENCE
    golden(caught.value.fix)


@pytest.mark.parametrize("field", ["apiVersion", "kind"])
def test_no_review_is_one_short_sentence_too(field: str) -> None:
    assert len(rejection(body(review(launcher_pod()) | {field: "x" * 1_000_000}))) <= MAX_SENTENCE


@pytest.mark.parametrize(
    "change",
    [{"spec": []}, {"spec": {"schedulerName": 5}}, {"metadata": {"labels": {"a": True}}}, {"metadata": "x"}],
    ids=["spec", "schedulerName", "label", "metadata"],
)
def test_object_of_wrong_types_is_a_review_all_the_same(change: Json, golden: Golden) -> None:
    received = PODS.decode(body(review(launcher_pod() | change)))
    assert received.malformed
    golden(received.malformed)
    assert (bool(received.request.uid), received.request.object) == (True, None)


def test_old_object_of_wrong_type(golden: Golden) -> None:
    received = VMS.decode(body(review({"kind": "VirtualMachine", "spec": {}}, oldObject=7)))
    assert received.malformed
    golden(received.malformed)


_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
_paths = st.sampled_from(
    [
        *("object", "oldObject", "object.spec", "object.metadata", "object.metadata.labels", "dryRun", "uid", "kind"),
        *("object.metadata.ownerReferences", "object.spec.schedulerName", "userInfo"),
    ]
).map(lambda path: path.split("."))


@given(_paths, _json)
def test_anything_anywhere_is_a_review_or_one_sentence(path: list[str], value: Any) -> None:
    asked = review(launcher_pod())
    place = asked["request"]
    for segment in path[:-1]:
        place = place[segment]
    place[path[-1]] = value
    try:
        received = PODS.decode(msgspec.json.encode(asked))
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert received.request.uid


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_one_sentence(data: bytes) -> None:
    with pytest.raises(InputError):
        PODS.decode(data)


class TestEncode:
    def answer(self, outcome: Outcome, patch: bytes | None = None) -> Json:
        asked: Request[Any] = Request('u"1', GroupVersionKind("kubevirt.io", "v1", "VirtualMachine"), name="web")
        result: Json = json.loads(encode("admission.k8s.io/v1", asked, outcome, patch, outcome.notes))
        return result

    def test_allowed(self) -> None:
        assert self.answer(Outcome(None, (), (), {})) == {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": 'u"1', "allowed": True},
        }

    def test_patched(self) -> None:
        response = self.answer(Outcome(None, (), ("w",), {"mode": "enforce"}), b"[]")["response"]
        assert (response["patchType"], base64.b64decode(response["patch"])) == ("JSONPatch", b"[]")
        assert (response["warnings"], response["auditAnnotations"]) == (["w"], {"mode": "enforce"})

    @given(st.text(max_size=4), st.text(max_size=4))
    def test_long_notes_are_cut(self, start: str, end: str) -> None:
        text = start + "x" * (MAX_NOTE - 4) + end
        (note,) = self.answer(Outcome(None, (), (), {"n": text}))["response"]["auditAnnotations"].values()
        assert len(note) <= MAX_NOTE
        whole = visible(text)
        assert note == whole or (len(whole) > MAX_NOTE and note == whole[: MAX_NOTE - 1] + "…")

    @pytest.mark.control("text-on-a-terminal", "causes-on-a-terminal")
    @given(st.text())
    def test_whatever_the_outcome_holds_nothing_hidden_leaves(self, text: str) -> None:
        denial = Denial(422, text, (FieldCause("FieldValueInvalid", text, text),))
        response = self.answer(Outcome(denial, (), (text,), {"n": text}))["response"]
        (cause,) = response["status"]["details"]["causes"]
        told = (response["status"]["message"], cause["message"], cause["field"], *response["warnings"])
        assert told == (visible(text),) * 4
        assert response["auditAnnotations"] == {"n": visible(text)}

    def test_denied(self) -> None:
        status = {"code": 429, "message": "later", "reason": "TooManyRequests"}
        response = self.answer(Outcome(Denial(429, "later"), (), (), {}))["response"]
        assert response == {"uid": 'u"1', "allowed": False, "status": status}

    def test_a_denial_says_when_to_ask_again(self) -> None:
        status = self.answer(Outcome(Denial(429, "later", retry_after=10), (), (), {}))["response"]["status"]
        assert status["details"] == {"retryAfterSeconds": 10}
        cause = FieldCause("FieldValueInvalid", "too big", "spec.size")
        status = self.answer(Outcome(Denial(429, "later", (cause,), 10), (), (), {}))["response"]["status"]
        assert (status["details"]["retryAfterSeconds"], status["details"]["name"]) == (10, "web")

    def test_a_refusal_names_the_fields_to_blame(self) -> None:
        cause = FieldCause("FieldValueInvalid", "too big", "spec.size")
        status = self.answer(Outcome(Denial(422, "too big", (cause,)), (), (), {}))["response"]["status"]
        causes = [{"reason": "FieldValueInvalid", "message": "too big", "field": "spec.size"}]
        details = {"name": "web", "group": "kubevirt.io", "kind": "VirtualMachine", "causes": causes}
        assert (status["reason"], status["details"]) == ("Invalid", details)


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (Request(name="n"), "n"),
        (Request(object=SchedulingPod(ObjectMeta(generate_name="g-"))), "g-"),
        (Request(object=SchedulingPod(ObjectMeta(name="o", generate_name="g-"))), "o"),
        (Request(object=SchedulingPod()), ""),
        (Request(), ""),
    ],
)
def test_object_name(request_: Request[SchedulingPod], name: str) -> None:
    assert object_name(request_) == name


@pytest.mark.parametrize(
    ("request_", "dry"),
    [
        *((Request(), False), (Request(dry_run=True), True), (Request(object=SchedulingPod()), False)),
        *(
            (Request(object=Eviction(delete_options=each)), False)
            for each in (None, DeleteOptions(), DeleteOptions([]))
        ),
        (Request(object=Eviction(delete_options=DeleteOptions(["All"]))), True),
        (Request(object=Eviction(), dry_run=True), True),
    ],
)
def test_evictions_have_two_places_for_dry_runs(request_: Request[Any], dry: bool) -> None:
    assert is_dry_run(request_) == dry


@pytest.mark.parametrize("member", ["object", "oldObject"])
@pytest.mark.parametrize("levels", [MAX_LEVELS - 1, MAX_LEVELS])
def test_plain_json_has_as_many_levels_as_rules_are_made_for(member: str, levels: int) -> None:
    """The view of the object is the first level."""
    spec: Any = []
    for _ in range(levels - 1):
        spec = {"a": spec}
    whole: Json = {"kind": "VirtualMachine", "metadata": {}}
    asked = review(whole)
    asked["request"][member] = {**whole, "spec": spec}
    received = Codec(Unstructured, "kubevirt.io", "VirtualMachine").decode(body(asked))
    assert (received.malformed is None) is (levels < MAX_LEVELS)


READ = ("uid", "kind", "resource", "subResource", "name", "namespace", "operation", "userInfo", "dryRun")
_KEYS = st.sampled_from([*READ, "object", "oldObject", "options", "requestKind", "x", 'a"b', "request", "\u00e9"])


def dumped(pairs: list[tuple[str, Any]], indent: int | None = None) -> str:
    """An object with its members in this order, duplicates among them."""
    space = "\n " * bool(indent)
    return "{" + ",".join(f"{space}{json.dumps(k)}{space}:{space}{v}" for k, v in pairs) + space + "}"


def plainly(value: dict[str, Any], kept: tuple[str, ...], cut: Any) -> dict[str, Any]:
    return {k: v if k in kept or not isinstance(v, cut) else None for k, v in value.items()}


@pytest.mark.control("unreadable-vms")
@given(
    st.lists(st.tuples(_KEYS, JSON_VALUES), max_size=8),
    st.lists(st.tuples(st.sampled_from(["apiVersion", "kind", "x", "request"]), JSON_VALUES), max_size=3),
    st.booleans(),
    st.sampled_from([None, 1]),
)
def test_it_is_what_an_ordinary_parser_finds(
    members: list[tuple[str, Any]], around: list[tuple[str, Any]], last: bool, indent: int | None
) -> None:
    request = dumped([(key, json.dumps(value, indent=indent)) for key, value in members], indent)
    others = [(key, json.dumps(value, indent=indent)) for key, value in around if key != "request"]
    sent = dumped([*others, ("request", request)] if last else [("request", request), *others], indent)
    found = envelope(sent.encode())
    expected = plainly(json.loads(sent), ("request",), dict | list)
    expected["request"] = plainly(expected["request"], READ, dict | list | str)
    assert found.whole
    assert json.loads(found.text) == expected


def sent(value: bytes, after: bytes = b'"dryRun":true,"options":{"kind":"CreateOptions"}') -> bytes:
    return b'{"kind":"AdmissionReview","request":{"uid":"u","object":' + value + b"," + after + b"}}"


@pytest.mark.parametrize("levels", [1, 900, 1100, 10_000, 40_000])
@pytest.mark.parametrize(("opener", "closer"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a" : ', b"}]")])
def test_any_depth(levels: int, opener: bytes, closer: bytes) -> None:
    found = envelope(sent(opener * levels + b"1" + closer * levels))
    assert json.loads(found.text) == json.loads(sent(b"null", b'"dryRun":true,"options":null'))
    assert found.whole
    assert found.depths["object"] == levels * (2 if opener.startswith(b"[{") else 1)


@pytest.mark.parametrize(
    "value",
    [
        *(b'"\xff"', b'{"a":"\xff\xfe"}', b'{"a":NaN}', b"{\x00}"),
        *(b'["\\\\","]","\\"","\\u005d"]', b'{"a":1e999999}', b"[1 2}"),
    ],
)
def test_what_is_in_an_object_is_not_looked_at(value: bytes) -> None:
    assert json.loads(envelope(sent(value)).text) == json.loads(sent(b"null", b'"dryRun":true,"options":null'))


@pytest.mark.parametrize("end", [b"", b"[", b'["', b'{"a":[]', b'{"a":"\\"}'])
def test_an_object_without_an_end_is_in_no_review(end: bytes) -> None:
    found = envelope(b'{"request":{"uid":"u","object":[' + end)
    assert (found.text, found.whole) == (b"", False)


def test_an_endless_object_ends_the_envelope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STEPS", 100)
    found = envelope(sent(b"[" + b"[1]," * 1000 + b"1]"))
    assert not found.whole
    assert json.loads(found.text) == {"kind": "AdmissionReview", "request": {"uid": "u", "object": None}}


@pytest.mark.control("unreadable-vms")
@pytest.mark.parametrize("piece", [b'"object":[[1],[1],[1]],', b'"kind":[1],', b'"uid":"u",'])
def test_steps_are_bounded_for_the_whole_body(monkeypatch: pytest.MonkeyPatch, piece: bytes) -> None:
    monkeypatch.setattr(module, "MAX_STEPS", 1000)
    steps = 0

    class CountingReader:
        def __init__(self, pattern: Any) -> None:
            self.pattern = pattern

        def match(self, *arguments: Any) -> Any:
            nonlocal steps
            steps += 1
            return self.pattern.match(*arguments)

    monkeypatch.setattr(module, "RUN", CountingReader(RUN))
    monkeypatch.setattr(module, "_TOKEN", CountingReader(module._TOKEN))

    found = envelope(b'{"request":{' + piece * 5000 + b'"uid":"u"}}')

    assert steps <= 1001
    assert not found.whole


@given(st.binary(max_size=80) | st.text(st.sampled_from('[]{}"\\,: aruid'), max_size=60).map(str.encode))
def test_any_bytes_come_to_an_end(data: bytes) -> None:
    for each in (data, sent(data), b'{"request":' + data):
        assert len(envelope(each).text) <= 5 * len(each)
