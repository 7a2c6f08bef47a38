"""The audit record: what was decided, about which object, why, and what followed; documented in docs/audit.md.

A record never holds the object, so cloud-init, SSH keys and other secrets cannot leak from what is not there; the parts
of it that a decision changes are redacted. The types here are the schema: `schema` prints it, and tests hold every
record to it. Lines are written by `webhook.admission.lines`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, Protocol

import msgspec
from msgspec import Meta

from webhook.admission.decision import Change, Reason
from webhook.names import Mode

# Fields and values may be added under the same name: readers pass over what they don't know. A field that goes, or that
# means something else, takes a new one.
SCHEMA: Final = "kubevirt-webhook.github.io/audit/v1alpha1"

Label = Literal["allowed", "patched", "denied", "would-patch", "would-deny", "skipped", "error"]

_SchemaName = Annotated[Literal["kubevirt-webhook.github.io/audit/v1alpha1"], Meta(description="This schema.")]
_Time = Annotated[
    str,
    Meta(
        description="RFC 3339 in UTC with microseconds.",
        pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$",
        extra_json_schema={"format": "date-time"},
    ),
]
_Reasons = Annotated[Sequence[Reason], Meta(description="Which rules led to it, the most telling first.", min_length=1)]
_Changes = Annotated[
    Sequence[Change],
    Meta(description="Made by enforce, or that enforce would have made; secrets in them are redacted."),
]
_Message = Annotated[
    str | None,
    Meta(description="The denial, without the policy's name and the code that users read beside it; null without one."),
]
_Endpoint = Annotated[str, Meta(description="The path that was called: /VERB/POLICY/RESOURCE/STAGE.", pattern="^/")]


class AuditedObject(msgspec.Struct, frozen=True):
    """Which object it is about."""

    kind: Annotated[str, Meta(description="Its kind, for example VirtualMachine.")]
    namespace: Annotated[str, Meta(description="Its namespace.")]
    name: Annotated[str, Meta(description="Its name; the prefix of it where the API server has yet to make one.")]


class Record(msgspec.Struct, frozen=True, rename="camel", tag="decision", tag_field="kind"):
    """One decision. "Decided", not "done": a later admission step may still deny the object."""

    schema: _SchemaName
    time: Annotated[_Time, Meta(description="When it was decided; RFC 3339 in UTC with microseconds.")]
    uid: Annotated[str, Meta(description="UID of the admission request.")]
    endpoint: _Endpoint
    operation: Annotated[str, Meta(description="CREATE, UPDATE or DELETE, as the API server calls it.")]
    object: Annotated[AuditedObject, Meta(description="The object of the request.")]
    user: Annotated[str, Meta(description="Who sent the request: the user name.")]
    dry_run: Annotated[bool, Meta(description="Nothing came of it but the answer.")]
    mode: Annotated[Mode, Meta(description="Mode of the policy in the namespace; only enforce patches and denies.")]
    decision: Annotated[
        Label,
        Meta(
            description="What was decided; would-patch and would-deny: what enforce would have decided; skipped: the "
            "policy was not run, for example because the namespace has not opted in; error: the request could not be "
            "evaluated."
        ),
    ]
    reasons: _Reasons
    changes: _Changes
    message: _Message
    duration_ms: Annotated[
        float, Meta(description="Time from the complete body to the answer, including lookups, in milliseconds.", ge=0)
    ]
    freshness: Annotated[
        Mapping[str, float | None],
        Meta(
            description="The informers that the decision used, by resource, each with the seconds since it last "
            "was up to date; null: never. What is not named here was read for this request."
        ),
    ]
    details: Annotated[
        Mapping[str, Any] | msgspec.UnsetType,
        Meta(description="What a policy adds for admins, by names of its own; see its page."),
    ] = msgspec.UNSET


class DifferingField(msgspec.Struct, frozen=True):
    """A field of a VMI that is not what it should be. Its value is not shown."""

    path: Annotated[str, Meta(description="Where it is in the VMI.")]
    origin: Annotated[str | None, Meta(description="The source that sets it; null where no source does.")]


class FidelityRecord(msgspec.Struct, frozen=True, rename="camel", tag="fidelity", tag_field="kind"):
    """A running VM whose VMI differs from what KubeVirt's rules make of it."""

    schema: _SchemaName
    time: Annotated[_Time, Meta(description="When it was compared; RFC 3339 in UTC with microseconds.")]
    uid: Annotated[str, Meta(description="UID of the VMI.")]
    object: Annotated[AuditedObject, Meta(description="The VM.")]
    differences: Annotated[Sequence[DifferingField], Meta(description="The first ones by path.")]
    count: Annotated[int, Meta(description="Number of all differences.", ge=1)]


class DriftRecord(msgspec.Struct, frozen=True, rename="camel", tag="drift", tag_field="kind"):
    """An object in a namespace that has opted in, which is not as enforce would have made it."""

    schema: _SchemaName
    time: Annotated[_Time, Meta(description="When it was found; RFC 3339 in UTC with microseconds.")]
    uid: Annotated[str, Meta(description="UID of the object.")]
    endpoint: Annotated[str, Meta(description="Whose policy says so: /VERB/POLICY/RESOURCE/STAGE.", pattern="^/")]
    object: Annotated[AuditedObject, Meta(description="The object that was found.")]
    created: Annotated[str, Meta(description="When the object was created, as its metadata says.")]
    decision: Annotated[
        Literal["would-patch", "would-deny"], Meta(description="What enforce would do if it were created now.")
    ]
    reasons: _Reasons
    changes: _Changes
    message: _Message


AnyRecord = Record | FidelityRecord | DriftRecord


def schema() -> dict[str, Any]:
    """The JSON Schema of an audit line."""
    made = msgspec.json.schema(AnyRecord)
    for record in made["discriminator"]["mapping"].values():
        members = made["$defs"][record.rpartition("/")[2]]["properties"]
        members["kind"] = {"description": "What the line is about.", **members["kind"]}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"https://{SCHEMA}"}
    members = {"anyOf": made["anyOf"], "$defs": _dedent_schema(made["$defs"])}
    return {**head, "title": "An audit line of kubevirt-webhook", **members}


def _dedent_schema(node: Any) -> Any:
    """The schema without the indentation of docstrings in the code, which Python 3.13 removes and older ones keep."""
    if isinstance(node, dict):
        return {
            key: inspect.cleandoc(value) if key == "description" and isinstance(value, str) else _dedent_schema(value)
            for key, value in node.items()
        }
    return [_dedent_schema(each) for each in node] if isinstance(node, list) else node


def timestamp(wall: float) -> str:
    """Unix time in seconds as records have it: RFC 3339 in UTC with microseconds."""
    second = int(wall)
    micros = round((wall - second) * 1e6)
    if not 0 <= micros < 10**6:
        # Before 1970, and where the rounding reaches the next second.
        return datetime.fromtimestamp(wall, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return f"{_second(second)}.{micros:06}Z"


@lru_cache(maxsize=1)
def _second(wall: int) -> str:
    """A whole second, of which a busy server writes thousands of records."""
    return datetime.fromtimestamp(wall, UTC).isoformat()[:-6]


class Sink(Protocol):
    """Where records of decisions go."""

    def write(self, record: Record) -> None:
        """Take a record over; must neither wait nor raise."""


class Sinks:
    """Several of them as one.

    Args:
        sinks: each gets every record, one after the other.
    """

    def __init__(self, *sinks: Sink) -> None:
        self._sinks: Final = sinks

    def write(self, record: Record) -> None:
        """Give each the record."""
        for sink in self._sinks:
            sink.write(record)


class NoAudit:
    """Keeps nothing: for the command line and tests."""

    def write(self, record: Record) -> None:
        """Drop the record."""
