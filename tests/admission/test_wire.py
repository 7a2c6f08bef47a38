from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Json, launcher_pod, review
from webhook.admission.decision import Denial, FieldCause, Outcome
from webhook.admission.wire import MAX_NOTE, Codec, GroupVersionKind, Request, encode, is_dry_run, object_name
from webhook.errors import MAX_SENTENCE, InputError
from webhook.k8s.pods import DeleteOptions, Eviction, Pod
from webhook.k8s.views import ObjectMeta
from webhook.kubevirt.views import VirtualMachine
from webhook.text import visible

PODS: Codec[Pod] = Codec(Pod, "", "Pod")
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

    assert received.malformed is None
    assert received.api_version == "admission.k8s.io/v1"
    assert received.request.object is not None
    assert received.request.object.spec is not None
    assert received.request.object.spec.scheduler_name == "default-scheduler"
    assert received.request.user_info.username == "system:serviceaccount:kubevirt:kubevirt-controller"


def test_v1beta1_is_answered_as_v1beta1() -> None:
    received = PODS.decode(body(review(launcher_pod()) | {"apiVersion": "admission.k8s.io/v1beta1"}))

    assert json.loads(encode(received.api_version, received.request, Outcome(None, (), (), {}), None, {}))[
        "apiVersion"
    ].endswith("v1beta1")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "it is not JSON"),
        (b"hello", "it is not JSON"),
        (b"\xff\xfe", "it is not valid UTF-8 at byte 0"),
        (b'{"kind": "AdmissionReview", "x": "\xff"}', "it is not valid UTF-8 at byte 34"),
        (body(review(launcher_pod()))[:-20], "it is not JSON"),
        (body(review(launcher_pod())) + b"{}", "it is not JSON"),
        (b"[" * 100_000, "the review must be object, not array"),
        (b'{"request": {"object": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_002, "it is nested too deeply"),
        (b'{"kind": NaN}', "it is not JSON"),
        (b"[]", "the review must be object, not array"),
        (b"null", "the review must be object, not null"),
        (b"{}", "not an AdmissionReview of admission.k8s.io/v1 or admission.k8s.io/v1beta1 but no apiVersion no kind"),
        (body({"apiVersion": "v1", "kind": "Pod"}), "but v1 Pod"),
        (body({"apiVersion": "admission.k8s.io/v2", "kind": "AdmissionReview"}), "but admission.k8s.io/v2"),
        (body({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}), "has no request"),
        (body(review(launcher_pod(), uid="")), "has no uid"),
        (body(review(launcher_pod(), uid=5)), "request.uid must be str, not int"),
        (body(review(launcher_pod(), userInfo=[])), "request.userInfo must be object, not array"),
        (body(review(launcher_pod()) | {"request": "x"}), "request must be object or null, not str"),
        (body(review(launcher_pod(), kind={"kind": "Node"})), "this endpoint evaluates Pod, not Node"),
        (body(review(launcher_pod(), kind={})), "not an object without kind"),
        (
            body(review(launcher_pod(), kind={"group": "x.io", "version": "v1", "kind": "Pod"})),
            "this endpoint evaluates Pod, not Pod.x.io",
        ),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "body",
)
def test_what_is_no_review_gets_one_sentence(data: bytes, said: str) -> None:
    assert said in rejection(data)


def test_wrong_kind_names_both() -> None:
    with pytest.raises(InputError, match=r"evaluates VirtualMachine\.kubevirt\.io, not Pod;"):
        VMS.decode(body(review(launcher_pod())))


@pytest.mark.parametrize("field", ["group", "kind"])
def test_another_kind_however_long_its_name_is_one_short_sentence(field: str) -> None:
    asked = review(launcher_pod())
    asked["request"]["kind"][field] = "x" * 1_000_000

    with pytest.raises(InputError) as caught:
        PODS.decode(body(asked))
    assert len(str(caught.value)) <= MAX_SENTENCE
    assert str(caught.value).endswith("correct the rules of the webhook configuration that sends it here")


@pytest.mark.parametrize("field", ["apiVersion", "kind"])
def test_no_review_is_one_short_sentence_too(field: str) -> None:
    with pytest.raises(InputError) as caught:
        PODS.decode(body(review(launcher_pod()) | {field: "x" * 1_000_000}))
    assert len(str(caught.value)) <= MAX_SENTENCE


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"spec": []}, "request.object.spec must be object or null, not array"),
        ({"spec": {"schedulerName": 5}}, "request.object.spec.schedulerName must be str or null, not int"),
        ({"metadata": {"labels": {"a": True}}}, "request.object.metadata.labels[...] must be str, not bool"),
        ({"metadata": "x"}, "request.object.metadata must be object or null, not str"),
    ],
)
def test_object_of_wrong_types_is_a_review_all_the_same(change: Json, said: str) -> None:
    received = PODS.decode(body(review(launcher_pod() | change)))

    assert received.malformed == said
    assert received.request.uid
    assert received.request.object is None


def test_old_object_of_wrong_type() -> None:
    received = VMS.decode(body(review({"kind": "VirtualMachine", "spec": {}}, oldObject=7)))

    assert received.malformed == "request.oldObject must be object or null, not int"


_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
_paths = st.sampled_from(
    [
        ("object",),
        ("oldObject",),
        ("object", "spec"),
        ("object", "metadata"),
        ("object", "metadata", "labels"),
        ("dryRun",),
        ("object", "metadata", "ownerReferences"),
        ("object", "spec", "schedulerName"),
        ("uid",),
        ("kind",),
        ("userInfo",),
    ]
)


@given(_paths, _json)
def test_anything_anywhere_is_a_review_or_one_sentence(path: tuple[str, ...], value: Any) -> None:
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

    @given(st.text(min_size=MAX_NOTE - 3, max_size=MAX_NOTE + 3))
    def test_long_notes_are_cut(self, text: str) -> None:
        (note,) = self.answer(Outcome(None, (), (), {"n": text}))["response"]["auditAnnotations"].values()

        assert len(note) <= MAX_NOTE
        whole = visible(text)
        assert note == whole or (len(whole) > MAX_NOTE and note == whole[: MAX_NOTE - 1] + "…")

    @given(st.text())
    def test_whatever_the_outcome_holds_nothing_hidden_leaves(self, text: str) -> None:
        denial = Denial(422, text, (FieldCause("FieldValueInvalid", text, text),))
        response = self.answer(Outcome(denial, (), (text,), {"n": text}))["response"]

        (cause,) = response["status"]["details"]["causes"]
        told = (response["status"]["message"], cause["message"], cause["field"], *response["warnings"])
        assert told == (visible(text),) * 4
        assert response["auditAnnotations"] == {"n": visible(text)}

    def test_denied(self) -> None:
        response = self.answer(Outcome(Denial(429, "later"), (), (), {}))["response"]

        assert response == {
            "uid": 'u"1',
            "allowed": False,
            "status": {"code": 429, "message": "later", "reason": "TooManyRequests"},
        }

    def test_a_refusal_names_the_fields_to_blame(self) -> None:
        cause = FieldCause("FieldValueInvalid", "too big", "spec.size")

        status = self.answer(Outcome(Denial(422, "too big", (cause,)), (), (), {}))["response"]["status"]

        assert status["reason"] == "Invalid"
        causes = [{"reason": "FieldValueInvalid", "message": "too big", "field": "spec.size"}]
        assert status["details"] == {"name": "web", "group": "kubevirt.io", "kind": "VirtualMachine", "causes": causes}


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (Request(name="n"), "n"),
        (Request(object=Pod(ObjectMeta(generate_name="g-"))), "g-"),
        (Request(object=Pod(ObjectMeta(name="o", generate_name="g-"))), "o"),
        (Request(object=Pod()), ""),
        (Request(), ""),
    ],
)
def test_object_name(request_: Request[Pod], name: str) -> None:
    assert object_name(request_) == name


@pytest.mark.parametrize(
    ("request_", "dry"),
    [
        (Request(), False),
        (Request(dry_run=True), True),
        (Request(object=Pod()), False),
        (Request(object=Eviction()), False),
        (Request(object=Eviction(delete_options=DeleteOptions())), False),
        (Request(object=Eviction(delete_options=DeleteOptions([]))), False),
        (Request(object=Eviction(delete_options=DeleteOptions(["All"]))), True),
        (Request(object=Eviction(), dry_run=True), True),
    ],
)
def test_evictions_have_two_places_for_dry_runs(request_: Request[Any], dry: bool) -> None:
    assert is_dry_run(request_) == dry
