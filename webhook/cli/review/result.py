"""What a review of one object says, in the form that every output is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from webhook.admission.patch import segments
from webhook.admission.redaction import redact_at

# The decisions of several endpoints about one request, the lightest first.
WEIGHT: Final = ("skipped", "allowed", "would-patch", "would-deny", "patched", "error", "denied")
# What a pipeline does about a result: nothing, show it, fail, or report that the answer is not known.
Severity = Literal["fine", "warned", "denied", "unevaluated"]


def weightier(one: str, other: str) -> str:
    """The decision of the two that decides."""
    return max(one, other, key=WEIGHT.index)


class Result(msgspec.Struct, kw_only=True):
    """One evaluated object.

    Attributes:
        file: the name of the file, as the user gave it.
        line: the line of the object in the file, from 1.
        uid: UID of the review.
        operation: operation of the review, for example CREATE.
        kind: kind of the object.
        namespace: namespace of the request.
        name: name of the object, or what its name begins with.
        user: the sender.
        origin: the object that makes this one, as ``KIND NAMESPACE/NAME``; None: it stands in the file itself.
        decision: one of `WEIGHT`.
        message: of a denial, or why no endpoint was called.
        evaluations: the evaluations of the endpoints that the API server would call, in its order.
        warnings: what kubectl would print.
        patch: the operations of all endpoints, as JSON Patch.
        object: the object with the patches applied; None without an object, or where the output does not show it.
        given: what stands in the file, where that makes the reviewed object.
        matched: whether the API server calls kubevirt-webhook for objects of this kind.
    """

    file: str
    line: int
    uid: str = ""
    operation: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    user: str = ""
    origin: str | None = None
    decision: str = "skipped"
    message: str | None = None
    judgements: list[dict[str, Any]] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)
    patch: list[dict[str, Any]] = msgspec.field(default_factory=list)
    object: Any = None
    given: Any = None
    matched: bool = True

    @property
    def source(self) -> str:
        """File and line, for messages."""
        return f"{self.file}:{self.line}"

    @property
    def title(self) -> str:
        """Kind, namespace and name, as kubectl's users write them."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    @property
    def severity(self) -> Severity:
        """How a pipeline takes it."""
        if self.decision == "denied":
            return "denied"
        if self.decision == "error":
            return "unevaluated"
        return "warned" if self.warnings or self.decision == "would-deny" else "fine"

    @property
    def reasons(self) -> list[dict[str, Any]]:
        """The reasons of all endpoints, those of the endpoint that decided first."""
        deciding = [each for each in self.judgements if each["decision"] == self.decision]
        others = [each for each in self.judgements if each["decision"] != self.decision]
        return [reason for each in (*deciding, *others) for reason in each["reasons"]]

    @property
    def summary(self) -> str:
        """Why, in one sentence: the denial's message, or the reason that decided."""
        if self.message:
            return self.message
        reasons = self.reasons
        return str(reasons[0]["text"]) if reasons else ""

    @property
    def code(self) -> str:
        """The reason code that decided; empty without an evaluation."""
        reasons = self.reasons
        return str(reasons[0]["code"]) if reasons else ""

    def as_json(self) -> dict[str, Any]:
        """The result as plain JSON."""
        return {
            "source": self.source,
            "uid": self.uid,
            "operation": self.operation,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "user": self.user,
            "origin": self.origin,
            "decision": self.decision,
            "message": self.message,
            "judgements": self.judgements,
            "warnings": self.warnings,
            "patch": self.patch,
            "object": self.object,
        }

    def redact(self, shown: frozenset[str]) -> bool:
        """Redact the secrets in the parts that an output shows.

        Args:
            shown: of ``object``, ``patch`` and ``changes``.

        Returns:
            Whether the object or the patch had any, so that the output must not be applied.
        """
        found = set()

        def hide(part: str, path: Sequence[str], holder: dict[str, Any], key: str) -> None:
            safe = redact_at(path, holder[key], bounded=False)
            if safe is not holder[key]:
                holder[key] = safe
                found.add(part)

        if "object" in shown:
            holder = {"object": self.object, "given": self.given}
            hide("object", (), holder, "object")
            hide("object", (), holder, "given")
            self.object, self.given = holder["object"], holder["given"]
        if "changes" in shown:
            for change in (change for evaluation in self.judgements for change in evaluation["changes"]):
                for side in ("old", "new"):
                    hide("changes", change["path"], change, side)
        if "patch" in shown:
            for operation in self.patch:
                if "value" in operation:
                    hide("patch", segments(operation["path"]), operation, "value")
        return bool(found - {"changes"})
