"""AdmissionReview, from bytes and to bytes (k8s.io/api/admission/v1).

The whole review is decoded once, straight into the view that the endpoint's policy reads. Two failures of decoding are
distinguished. A body that is not a review is the sender's mistake and gets a 4xx. A review whose object cannot be read,
for a value of the wrong type or for its depth, is an ordinary request (the API server checks an object's schema only
after mutating webhooks, and its depth never) and gets an ordinary answer.

A parser that recurses, as msgspec's does, can neither decode nor skip an object that is nested deeply enough. The API
server accepts 10,000 levels (sigs.k8s.io/json), so any user who may create a VM can send one. Without the review's uid
there is no answer but an HTTP error, which a failurePolicy of Ignore turns into an admission. So where decoding failed,
the objects are cut out of the bytes, in a loop, and the rest is decoded as usual.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from webhook.admission.credentials import scrub_prose
from webhook.admission.decision import Denial, FieldCause, Outcome
from webhook.errors import InputError
from webhook.k8s.json_tree import MAX_LEVELS, RUN, STRING, is_too_deep, plain_fields
from webhook.k8s.types.core import Eviction
from webhook.k8s.types.meta import Object, View
from webhook.text import shorten, visible

API_VERSIONS: Final = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")

# The API server bounds the keys of audit annotations (a qualified name behind the entry's name), not their values; but
# an audit backend may drop what an event is too large for.
MAX_NOTE: Final = 1024
# kubectl prints all of it, and the API server's audit log keeps it.
MAX_MESSAGE: Final = 16 * 1024
# Of the names of objects, groups and kinds (k8s.io/apimachinery, DNS1123SubdomainMaxLength).
_MAX_NAME: Final = 253

V = TypeVar("V")


class GroupVersionKind(View, frozen=True):
    """A kind with its API version (metav1.GroupVersionKind)."""

    group: str = ""
    version: str = ""
    kind: str = ""


class GroupVersionResource(View, frozen=True):
    """A resource with its API version (metav1.GroupVersionResource)."""

    group: str = ""
    version: str = ""
    resource: str = ""


class UserInfo(View, frozen=True):
    """``request.userInfo`` (authentication/v1 UserInfo): the user, as the API server authenticated it."""

    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class Request(View, Generic[V], frozen=True):
    """``AdmissionReview.request``. ``kind`` and ``resource`` are those to which the API server converted the object."""

    uid: str = ""
    kind: GroupVersionKind = GroupVersionKind()
    resource: GroupVersionResource = GroupVersionResource()
    sub_resource: str | None = None
    name: str | None = None
    namespace: str | None = None
    operation: str = ""
    user_info: UserInfo = UserInfo()
    object: V | None = None
    old_object: V | None = None
    dry_run: bool | None = None


class Review(View, Generic[V], frozen=True):
    """An AdmissionReview (admission/v1), whose request may be missing."""

    api_version: str | None = None
    kind: str | None = None
    request: Request[V] | None = None


class Received(msgspec.Struct, Generic[V], frozen=True):
    """A review that can be answered.

    Attributes:
        api_version: ``apiVersion`` of the review; the answer has the same.
        request: decoded into views; without objects where ``malformed`` is set.
        malformed: what in the object does not match its kind's schema; None: nothing.
    """

    api_version: str
    request: Request[V]
    malformed: str | None = None


class Codec(Generic[V]):
    """Decodes the reviews of one kind of object.

    Args:
        view: the class that ``object`` and ``oldObject`` are decoded into.
        group: the API group of the kind.
        kind: the kind.
    """

    def __init__(self, view: type[V], group: str, kind: str) -> None:
        self.view: Final = view
        self.group: Final = group
        self.kind: Final = kind
        self._plain: Final = plain_fields(view)
        self._typed: msgspec.json.Decoder[Review[V]] = msgspec.json.Decoder(Review[view])  # type: ignore[valid-type]

    def decode(self, body: bytes) -> Received[V]:
        """The review in a request's body.

        Raises:
            InputError: the body is not JSON in UTF-8, not an AdmissionReview with a request, or about an object
                of another kind than this endpoint serves.
        """
        try:
            review = self._typed.decode(_checked(body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return self._without_objects(body, error)
        request = review.request
        suspect = request if self._plain and _may_be_deep(body) else None
        if suspect is not None and (self._is_too_deep(suspect.object) or self._is_too_deep(suspect.old_object)):
            return self._without_objects(body, RecursionError())
        kind = request.kind if request else None
        if (
            kind
            and request
            and request.uid
            and review.kind == "AdmissionReview"
            and review.api_version in API_VERSIONS
            and kind.kind == self.kind
            and kind.group == self.group
        ):
            # All as it should be; else `_validate` says what is not.
            return Received(review.api_version, request)
        return self._validate(review, None)

    def _is_too_deep(self, obj: V | None) -> bool:
        """Whether an object's plain JSON is. Without the rest of the review, most have too few brackets for it."""
        if obj is None:
            return False
        try:
            plain = _encode([getattr(obj, name) for name in self._plain])
        except RecursionError:
            return True
        return _may_be_deep(plain) and is_too_deep(obj)

    def _without_objects(self, body: bytes, error: Exception) -> Received[V]:
        """The review, if its objects alone are what is wrong; an `InputError` if they are not."""
        around = envelope(body)
        try:
            review = _ENVELOPE.decode(_checked(around.text))
            request = _parse_request(review)[1]
        except InputError:
            if isinstance(error, msgspec.ValidationError):
                raise
            raise _no_review(error) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as around_error:
            raise _no_review(around_error if isinstance(around_error, msgspec.ValidationError) else error) from None
        # Without its end, a review does not show whether it is a dry run: then it may have no side effect.
        dry = request.dry_run if around.whole else True
        request = msgspec.structs.replace(request, object=None, old_object=None, dry_run=dry)
        review = msgspec.structs.replace(review, request=request)
        return self._validate(review, _wrong(error, around))

    def _validate(self, review: Review[V], malformed: str | None) -> Received[V]:
        api_version, request = _parse_request(review)
        if request.kind.kind != self.kind or request.kind.group != self.group:
            raise InputError(
                f"this endpoint evaluates {_group_kind(self.kind, self.group)}, not "
                f"{_group_kind(request.kind.kind or 'an object without kind', request.kind.group)}",
                "request.kind",
                "correct the rules of the webhook configuration that sends it here",
            )
        return Received(api_version, request, malformed)


def _checked(text: bytes) -> bytes:
    """The same text, if it is UTF-8, else a `UnicodeDecodeError`: msgspec looks at no field that it skips.

    It decodes from bytes. A `str` takes up to four times as much, and msgspec adds a copy of its bytes.
    """
    if not text.isascii():
        str(text, "utf-8")
    return text


# As the API server writes it (k8s.io/api/admission/v1: the order of the fields).
_BEGINNING: Final = re.compile(
    rb'\s*\{\s*(?:"kind"\s*:\s*"AdmissionReview"\s*,\s*|"apiVersion"\s*:\s*"(?P<version>[^"\\]{1,64})"\s*,\s*){2}'
    rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"(?P<uid>[^"\\]{1,128})"'
)
_MEMBER: Final = re.compile(rb'"(name|namespace|operation)"\s*:\s*"([^"\\]{0,253})"')
_BEHIND: Final = re.compile(rb'"(?:userInfo|object)"')


def begun_request(prefix: bytes) -> tuple[str, Request[Any]] | None:
    """The API version and the request of a review of which only the first bytes were read; None: they have no uid.

    The API server takes no answer whose uid is not the request's. Behind that come the name, the namespace and the
    operation, which are read if they are there. The request has no object.
    """
    match = _BEGINNING.match(prefix)
    if match is None or match["version"] is None:
        return None
    version = match["version"].decode("utf-8", "replace")
    if version not in API_VERSIONS:
        return None
    behind = _BEHIND.search(prefix, match.end())
    members: dict[bytes, str] = {}
    for name, value in _MEMBER.findall(prefix[match.end() : behind.start() if behind else None]):
        members.setdefault(name, value.decode("utf-8", "replace"))
    return version, Request(
        uid=match["uid"].decode("utf-8", "replace"),
        name=members.get(b"name"),
        namespace=members.get(b"namespace"),
        operation=members.get(b"operation", ""),
    )


def request_of(value: object) -> Request[Any]:
    """The request of a review in plain JSON, whatever its object is; an `InputError` where it is no AdmissionReview."""
    try:
        return _parse_request(msgspec.convert(value, Review[Any]))[1]
    except msgspec.ValidationError as error:
        raise InputError(_sentence(error), _BODY, _FIX) from None


_BODY: Final = "the request's body"
_FIX: Final = "send an AdmissionReview as the API server does"


def _parse_request(review: Review[V]) -> tuple[str, Request[V]]:
    """The API version and the request of a review."""
    if review.kind != "AdmissionReview" or review.api_version not in API_VERSIONS:
        got = f"its apiVersion is {review.api_version or 'missing'}, and its kind is {review.kind or 'missing'}"
        raise InputError(f"it is not an AdmissionReview of {' or '.join(API_VERSIONS)}: {got}", _BODY, _FIX)
    if review.request is None:
        raise InputError("the AdmissionReview has no request", _BODY, _FIX)
    if not review.request.uid:
        raise InputError("the AdmissionReview's request has no uid", _BODY, _FIX)
    return review.api_version, review.request


_ENVELOPE: Final[msgspec.json.Decoder[Review[Any]]] = msgspec.json.Decoder(Review[Any])


class _StatusDetails(View, frozen=True, omit_defaults=True):
    name: str = ""
    group: str = ""
    kind: str = ""
    causes: tuple[FieldCause, ...] = ()
    retry_after_seconds: int = 0


class _ResponseStatus(View, frozen=True, omit_defaults=True):
    code: int
    message: str
    reason: str | None = None
    details: _StatusDetails | None = None


class _Response(View, frozen=True, omit_defaults=True):
    uid: str
    allowed: bool
    status: _ResponseStatus | None = None
    patch: str | None = None
    patch_type: str | None = None
    warnings: tuple[str, ...] = ()
    audit_annotations: Mapping[str, str] | None = None


class _Answer(View, frozen=True):
    api_version: str
    kind: str
    response: _Response


_encode: Final = msgspec.json.Encoder().encode

# metav1.StatusReason of the codes that denials have: what clients branch on.
_REASONS: Final = {403: "Forbidden", 422: "Invalid", 429: "TooManyRequests", 503: "ServiceUnavailable"}


def _status(denial: Denial, request: Request[Any]) -> _ResponseStatus:
    causes = tuple(
        FieldCause(cause.reason, _clip_text(cause.message), _clip_text(cause.field)) for cause in denial.causes
    )
    # Of a denial with an object's name but without causes, kubectl prints the name alone.
    details = _StatusDetails(retry_after_seconds=denial.retry_after) if denial.retry_after else None
    if causes:
        name, group, kind = object_name(request), request.kind.group, request.kind.kind
        details = _StatusDetails(
            # Names are checked only after admission: until then they may be anything.
            _clip_text(scrub_prose(name), _MAX_NAME),
            _clip_text(group, _MAX_NAME),
            _clip_text(kind, _MAX_NAME),
            causes,
            denial.retry_after,
        )
    return _ResponseStatus(denial.code, _clip_text(denial.message), _REASONS.get(denial.code), details)


def _clip_text(text: str, length: int = MAX_MESSAGE) -> str:
    """A text that the API server passes on, with the parts escaped that a terminal would obey, and cut to a length."""
    return shorten(visible(text), length)


def encode(
    api_version: str, request: Request[Any], outcome: Outcome, patch: bytes | None, annotations: Mapping[str, str]
) -> bytes:
    """The AdmissionReview that answers a request.

    Args:
        api_version: ``apiVersion`` of the review, which the answer repeats.
        request: the request that is answered: its uid, and the object that a denial names.
        outcome: the answer to the request: denied or allowed, with its warnings.
        patch: a JSON patch, encoded; None: none.
        annotations: audit annotations for the API server's own audit log, which puts the entry's name before each key.
    """
    denial = outcome.denial
    short, text = annotations, "".join(annotations.values())
    # Nearly always there is nothing to escape or to cut.
    if len(text) > MAX_NOTE or not (text.isascii() and text.isprintable()):
        short = {key: _clip_text(value, MAX_NOTE) for key, value in annotations.items()}
    return _encode(
        _Answer(
            api_version,
            "AdmissionReview",
            _Response(
                request.uid,
                denial is None,
                _status(denial, request) if denial else None,
                b2a_base64(patch, newline=False).decode("ascii") if patch else None,
                "JSONPatch" if patch else None,
                tuple(map(visible, outcome.warnings)) if outcome.warnings else (),
                short or None,
            ),
        )
    )


def object_name(request: Request[Any]) -> str:
    """The object's name; at CREATE with generateName the prefix, which is all there is then."""
    if request.name:
        return request.name
    obj = request.object
    if not isinstance(obj, Object):
        return ""
    meta = obj.meta
    return meta.name or meta.generate_name or ""


def is_dry_run(request: Request[Any]) -> bool:
    """Whether nothing shall come of a request; evictions have a second place to say so."""
    obj = request.object
    return bool(request.dry_run) or (isinstance(obj, Eviction) and obj.dry_run)


_AT: Final = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_EXPECTED: Final = re.compile(r"^Expected `(?P<want>[^`]*)`, got `(?P<got>[^`]*)`")
# JSON's types by msgspec's names.
_TYPES: Final = {
    "str": "a string",
    **dict.fromkeys(("int", "float"), "a number"),
    "bool": "a boolean",
    "object": "an object",
    "array": "a list",
}


def _sentence(error: msgspec.ValidationError) -> str:
    """A msgspec error in other words, ``request.object.spec must be an object, not a list``, without values."""
    text = str(error)
    at = _AT.search(text)
    path = (at["path"] if at else "") or "the review"
    expected = _EXPECTED.match(text)
    if expected:
        wanted, got = (expected[each].split(" | ") for each in ("want", "got"))
        quotes = "; write it in quotes" if "str" in wanted and got[0] in ("int", "float", "bool") else ""
        needed, given = (" or ".join(_TYPES.get(each, each) for each in types) for types in (wanted, got))
        return f"{path} must be {needed}, not {given}{quotes}"
    return f"{path}: {text[: at.start()] if at else text}"


def _no_review(error: Exception) -> InputError:
    """Why the body cannot be answered at all."""
    if isinstance(error, RecursionError):
        return InputError("it is nested too deeply", _BODY, "send an AdmissionReview")
    if isinstance(error, UnicodeDecodeError):
        return InputError(f"it is not valid UTF-8 at byte {error.start}", _BODY, "send JSON encoded as UTF-8")
    if isinstance(error, msgspec.ValidationError):
        return InputError(_sentence(error), _BODY, _FIX)
    return InputError(f"it is not JSON: {error}", _BODY, "send an AdmissionReview as JSON")


def _may_be_deep(body: bytes) -> bool:
    """Whether there are brackets enough for it: most reviews have not, and counting costs a tenth of looking."""
    return body.count(b"{") + body.count(b"[") > MAX_LEVELS


def _wrong(error: Exception, around: Envelope) -> str:
    """What is wrong with the objects of a review that is one without them."""
    if isinstance(error, msgspec.ValidationError):
        return _sentence(error)
    if isinstance(error, RecursionError):
        levels, member = max(((levels, name) for name, levels in around.depths.items()), default=(0, "object"))
        more = "or more" if not around.whole else "levels"
        return f"request.{member} is nested {levels} {more} deep; kubevirt-webhook reads {MAX_LEVELS}"
    if isinstance(error, UnicodeDecodeError):
        return f"the object is not valid UTF-8 at byte {error.start} of the request's body"
    return f"the object is not JSON: {error}"


def _group_kind(kind: str, group: str) -> str:
    return f"{kind}.{group}" if group else kind


# What is read of a request besides its objects.
_READ: Final = ("uid", "kind", "resource", "subResource", "name", "namespace", "operation", "userInfo", "dryRun")
_OF_REQUEST: Final = frozenset(f'"{name}"'.encode() for name in _READ)

# Brackets, runs of them, and keys that are looked at, before a value counts as endless. Honest objects have some
# hundreds; the API server takes 3 MB, which could be millions.
MAX_STEPS: Final = 100_000

_TOKEN: Final = re.compile(
    rb'[^"\[\]{}]*+(?:(?P<string>' + STRING + rb")(?P<colon>[ \t\r\n]*+:)?|(?P<bracket>[\[\]{}]))", re.DOTALL
)


class Envelope(msgspec.Struct, frozen=True):
    """A review without the objects in it.

    Attributes:
        text: the review's bytes with ``null`` for each value that was cut out; empty where they have no
            end.
        depths: levels of containers in each member of the request that was cut out, by its name.
        whole: False: a member had no end within `MAX_STEPS`; what follows it is left out.
    """

    text: bytes
    depths: Mapping[str, int]
    whole: bool


def envelope(body: bytes) -> Envelope:
    """The envelope of a review. It holds the body's own bytes, unchecked: invalid JSON is kept."""
    pieces: list[bytes] = []
    depths: dict[str, int] = {}
    depth = position = copied = 0
    key, steps = b"", MAX_STEPS
    while steps and (match := _TOKEN.match(body, position)):
        position, steps = match.end(), steps - 1
        string, bracket = match["string"], match["bracket"]
        if match["colon"] is not None:
            key = string
        elif bracket in (b"}", b"]"):
            depth -= 1
        elif _is_kept(depth, key, bracket is not None):
            depth += bracket is not None
        else:
            begin = match.start("string" if bracket is None else "bracket")
            pieces += (body[copied:begin], b"null")
            if bracket is not None:
                levels, end, steps = _measure(body, begin, steps)
                name = key[1:-1].decode("ascii", "replace")
                depths[name] = max(levels, depths.get(name, 0))
                if not end:
                    # Cut off where the steps ended, the envelope is what came before. A value without an end is none.
                    return Envelope(b"" if steps else b"".join(pieces) + b"}" * depth, depths, whole=False)
                position = end
            copied = position
    # Without steps left, the envelope itself is endless, which no API server sends.
    return Envelope(b"".join((*pieces, body[copied:])) if steps else b"", depths, whole=steps > 0)


def _is_kept(depth: int, key: bytes, is_container: bool) -> bool:
    """Whether a member's value stays, a string or a container that begins at a depth.

    A key counts as the review's or its request's only there: below, nothing is taken out any more.
    """
    if depth == 1:
        return not is_container or key == b'"request"'
    return depth != 2 or key in _OF_REQUEST


def _measure(body: bytes, begin: int, steps: int) -> tuple[int, int, int]:
    """Of a container in the body, the levels of containers, the position behind it, and the steps that are left.

    The position is 0 where it has no end, or the steps did not suffice.
    """
    depth = levels = 0
    position = begin
    while steps and (match := RUN.match(body, position)):
        position, run, steps = match.end(), match["run"], steps - 1
        if run[0] in b"{[":
            depth += len(run)
            levels = max(levels, depth)
        elif depth <= len(run):
            return levels, match.start("run") + depth, steps
        else:
            depth -= len(run)
    return levels, 0, steps
