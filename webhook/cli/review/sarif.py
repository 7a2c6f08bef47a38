"""SARIF 2.1.0, as code scanning reads it: what is denied, warned about or not evaluated, at its line."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

from webhook import __version__
from webhook.admission.reasons import MEANINGS
from webhook.cli.review.result import Result
from webhook.cli.review.summary import Summary
from webhook.errors import InputError
from webhook.text import visible

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final = {"denied": "error", "unevaluated": "error", "warned": "warning"}
_RULES: Final = {code: index for index, code in enumerate(sorted(MEANINGS))}
_PLACE: Final = re.compile(r"(?P<file>.+?):(?P<line>[1-9][0-9]{0,8})(?::.*)?")


class Sarif:
    """One result for each object that needs attention, and one rule for each reason code."""

    parts: frozenset[str] = frozenset()
    partial = True

    def fragment(self, result: Result) -> str:
        """The result; empty for an object that is allowed without a warning."""
        if result.severity == "fine":
            return ""
        code = result.code
        text = "; ".join([result.summary, *result.warnings] if result.severity == "warned" else [result.summary])
        value: dict[str, Any] = {
            "ruleId": code or "not-evaluated",
            "level": _LEVELS[result.severity],
            "message": {"text": visible(f"{result.title}: {text}")},
            "locations": [_location(result.file, result.line, result)],
            "partialFingerprints": {"objectAndReason/v1": _fingerprint(result)},
            "properties": {"decision": result.decision, "operation": result.operation},
        }
        if code in _RULES:
            value["ruleIndex"] = _RULES[code]
        return json.dumps(value)

    def document(self, fragments: Sequence[str], summary: Summary, mistakes: Sequence[InputError]) -> str:
        """A log with one run."""
        driver = {"name": "kubevirt-webhook", "version": __version__, "rules": [_rule(code) for code in _RULES]}
        invocation: dict[str, Any] = {"executionSuccessful": not mistakes}
        if mistakes:
            invocation["toolExecutionNotifications"] = [_notification(each) for each in mistakes]
        run = {"tool": {"driver": driver}, "invocations": [invocation], "columnKind": "unicodeCodePoints"}
        run["results"] = [json.loads(each) for each in fragments]
        return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def place_of(error: InputError) -> tuple[str, int]:
    """File and line of a mistake; line 1 where it names none."""
    found = _PLACE.fullmatch(error.where)
    return (found["file"], int(found["line"])) if found else (error.where, 1)


def _rule(code: str) -> dict[str, Any]:
    meaning = MEANINGS[code]
    rule: dict[str, Any] = {"id": code, "shortDescription": {"text": meaning.meaning}}
    if meaning.remedy:
        rule["help"] = {"text": meaning.remedy}
    return rule


def _location(file: str, line: int, result: Result | None = None) -> dict[str, Any]:
    uri = quote(PurePath(file).as_posix(), safe="/") if not PurePath(file).is_absolute() else PurePath(file).as_uri()
    place = {"artifactLocation": {"uri": uri}, "region": {"startLine": line}}
    location: dict[str, Any] = {"physicalLocation": place}
    if result:
        location["logicalLocations"] = [{"fullyQualifiedName": visible(result.title), "kind": "resource"}]
    return location


def _notification(error: InputError) -> dict[str, Any]:
    file, line = place_of(error)
    value: dict[str, Any] = {"level": "error", "message": {"text": str(error)}}
    if file:
        value["locations"] = [_location(file, line)]
    return value


def _fingerprint(result: Result) -> str:
    """What stays the same when lines move."""
    return hashlib.sha256(f"{result.title}\n{result.origin}\n{result.code}".encode(errors="replace")).hexdigest()[:32]
