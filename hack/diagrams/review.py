"""The picture of a review's way: from the endpoints, and from the calls that the code makes in this order."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final, NamedTuple

from hack.diagrams import svg
from webhook.review.endpoints import ENDPOINTS


class DiagramStage(NamedTuple):
    """One step of a review.

    Attributes:
        title: what the step is called.
        note: what it does.
        module: the file in which it is a call.
        call: the end of the call's name, as the module writes it.
    """

    title: str
    note: str
    module: str
    call: str


SERVER: Final = (
    DiagramStage("read the body", "limits of size, time and memory", "webhook/server/app.py", "_body"),
    DiagramStage("take a turn", "at once if none waits; a share per namespace", "webhook/server/app.py", "take"),
)
REVIEWER: Final = (
    DiagramStage("decode", "only the fields that the policy reads", "webhook/review/reviewer.py", "codec.decode"),
    DiagramStage("scope", "the namespace's mode and parameters", "webhook/review/reviewer.py", "scopes.resolve"),
    DiagramStage("policy", "a pure function: what would enforce do?", "webhook/review/reviewer.py", "endpoint.handler"),
    DiagramStage("mode", "enforce acts, warn and audit only report", "webhook/review/reviewer.py", "decision.under"),
    DiagramStage("patch", "add, and remove of what was there", "webhook/review/reviewer.py", "patch.render"),
    DiagramStage("record", "audit line, metrics", "webhook/review/reviewer.py", "_audit.write"),
    DiagramStage("encode", "the AdmissionReview's answer", "webhook/review/reviewer.py", "wire.encode"),
)
READ: Final = DiagramStage("read facts", "copies, files, API server", "webhook/review/replay.py", "cluster.read")

_WIDTH: Final = 1000
_STAGE_WIDTH: Final = 330
_STAGE_HEIGHT: Final = 42
_STEP: Final = 60
_LEFT: Final = 480
_TABLE_ROW: Final = 24


def missing(root: Path) -> list[str]:
    """The stages whose call the code does not make any more: then this table is to be corrected."""
    found = []
    for stage in (*SERVER, *REVIEWER, READ):
        calls = _calls((root / stage.module).read_text())
        if not any(f".{name}".endswith(f".{stage.call}") for name in calls):
            found.append(f"{stage.module} does not call {stage.call} any more (stage {stage.title!r})")
    return found


def _calls(source: str) -> set[str]:
    return {ast.unparse(node.func) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)}


def draw(root: Path) -> str:
    """The picture as SVG.

    Raises:
        LookupError: a stage is not in the code.
    """
    if gone := missing(root):
        raise LookupError("; ".join(gone))
    top = 60
    parts = [_box("API server", "calls each entry that matches the request", top, "accent")]
    parts += _entries(top)
    y = top + _STAGE_HEIGHT
    for title, stages in (("webhook.server", SERVER), ("webhook.review", REVIEWER)):
        y += 34
        height = len(stages) * _STEP + 26
        parts.append(svg.rectangle(_LEFT - 22, y, _STAGE_WIDTH + 44, height, "band"))
        parts.append(svg.text(_LEFT - 14, y + 18, title, size=12, css="quiet"))
        for number, stage in enumerate(stages):
            at = y + 30 + number * _STEP
            parts.append(_down(at - (_STEP - _STAGE_HEIGHT if number else 64), at))
            parts.append(_box(stage.title, stage.note, at))
            if stage.title == "policy":
                parts += _facts(at)
        y += height
    parts.append(_down(y - 14, y + 24))
    parts.append(_box("API server", "applies the patch, or denies; shows warnings", y + 24, "accent"))
    height = y + 24 + _STAGE_HEIGHT + 30
    return svg.document(_WIDTH, height, "The way of a review, from the API server's call to its answer", parts)


def _box(title: str, note: str, y: int, css: str = "box") -> str:
    return "".join(
        (
            svg.rectangle(_LEFT, y, _STAGE_WIDTH, _STAGE_HEIGHT, css),
            svg.text(_LEFT + 12, y + 17, title, size=13),
            svg.text(_LEFT + 12, y + 34, note, size=11, css="quiet"),
        )
    )


def _down(start: int, end: int) -> str:
    return svg.path(f"M{_LEFT + _STAGE_WIDTH / 2:g} {start}V{end}")


def _facts(y: int) -> list[str]:
    """The box beside the policy, and the way there and back."""
    x, right = _LEFT + _STAGE_WIDTH, _LEFT + _STAGE_WIDTH + 44
    middle, lower = y + 12, y + 30
    return [
        svg.path(f"M{x} {middle}H{right}", "again"),
        svg.path(f"M{right} {lower}H{x}", "again"),
        svg.rectangle(right, y - 9, 134, 60),
        svg.text(right + 10, y + 8, READ.title, size=12),
        svg.text(right + 10, y + 25, "copies, files,", size=11, css="quiet"),
        svg.text(right + 10, y + 40, "API server", size=11, css="quiet"),
        svg.text(right, y + 68, "NotRead: read,", size=11, css="quiet"),
        svg.text(right, y + 82, "then run again", size=11, css="quiet"),
    ]


def _entries(y: int) -> list[str]:
    """The table of endpoints, one row for the two stages of each; the order is that of the configurations."""
    rows = [one for one in ENDPOINTS if one.stage == "enforce"]
    parts = [svg.text(24, 34, "Endpoints: /{mutate|validate}/{policy}/{resource}/{enforce|observe}", size=13)]
    previous = ""
    for one in rows:
        heading = f"{one.verb} {one.policy}"
        if heading != previous:
            y += 12
            parts.append(svg.text(24, y + 16, heading, size=13))
            y += _TABLE_ROW
        previous = heading
        resource = f"{one.resource}/{one.sub_resource}" if one.sub_resource else one.resource
        parts.append(svg.text(40, y + 14, resource, size=12, css="quiet"))
        operations = ", ".join(one.operations) + (" *" if one.on_error == "deny" else "")
        parts.append(svg.text(310, y + 14, operations, size=12, css="quiet"))
        y += _TABLE_ROW - 2
    parts.append(svg.text(24, y + 30, "* denied while it cannot be evaluated, where the", size=11, css="quiet"))
    parts.append(svg.text(24, y + 46, "policy's failurePolicy is Fail; else allowed", size=11, css="quiet"))
    return parts
