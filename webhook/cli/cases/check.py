"""The comparison of a decision with what a case expects."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from webhook.cli.cases.model import Expectation
from webhook.cli.review.result import Result
from webhook.cli.yamltext import dump
from webhook.errors import InputError

_SEGMENT: Final = re.compile(r'\.?([^.\[\]]+)|\[(?:"([^"]*)"|([^\]]*))\]')
_NOTHING: Final = object()


def differences(expected: Expectation, result: Result) -> list[str]:
    """Where the decision is another one than expected, in lines for people; empty where it is the one.

    Raises:
        InputError: a path is not valid.
    """
    found: list[str] = []
    if expected.decision is not None and expected.decision != result.decision:
        found.append(f"decision: expected {expected.decision}, got {result.decision}")
    codes = codes_of(result)
    if expected.reasons is not None and expected.reasons != codes:
        found += ["reasons:", *_diff(expected.reasons, codes)]
    if expected.patched is not None:
        found += _patch_differences(expected.patched, result)
    if expected.warnings is not None and not _matches(expected.warnings, result.warnings):
        found += ["warnings:", *_diff(expected.warnings, result.warnings)]
    if expected.message is not None and expected.message not in (result.message or ""):
        found += ["message:", *_diff([expected.message], [result.message] if result.message else [])]
    return found


def codes_of(result: Result) -> list[str]:
    """The reason codes of all evaluations, in their order."""
    return [reason["code"] for evaluation in result.judgements for reason in evaluation["reasons"]]


def parse_path(path: str) -> list[str]:
    """The segments of a path such as ``metadata.annotations[example.com/a]`` or ``spec.volumes[0].name``.

    Raises:
        InputError: it is not valid.
    """
    segments, position = [], 0
    while position < len(path):
        found = _SEGMENT.match(path, position)
        if found is None:
            raise InputError(f"{json.dumps(path)} is not a valid path", fix="use for example spec.volumes[0].name")
        segments.append(next(group for group in found.groups() if group is not None))
        position = found.end()
    return segments


def _patch_differences(expected: dict[str, Any], result: Result) -> Iterator[str]:
    if not expected and result.patch:
        yield "patched: expected no changes, got"
        yield from (f"  + {operation['op']} {operation['path']}" for operation in result.patch)
    for path, value in expected.items():
        got = _at(result.object, parse_path(path))
        if value is None and got is _NOTHING:
            continue
        if got is _NOTHING or got != value:
            yield from _values(path, value, got)


def _values(path: str, expected: Any, got: Any) -> Iterator[str]:
    if not isinstance(expected, dict | list) and not isinstance(got, dict | list):
        yield f"{path}: expected {_shown(expected)}, got {_shown(got)}"
        return
    yield f"{path}:"
    yield from _diff(_lines(expected), _lines(got))


def _shown(value: Any) -> str:
    return "nothing" if value is None or value is _NOTHING else json.dumps(value, ensure_ascii=False)


def _lines(value: Any) -> list[str]:
    return [] if value is None or value is _NOTHING else dump([value]).splitlines()


def _at(value: Any, segments: Sequence[str]) -> Any:
    for segment in segments:
        if isinstance(value, dict) and segment in value:
            value = value[segment]
        elif isinstance(value, list) and segment.isdecimal() and int(segment) < len(value):
            value = value[int(segment)]
        else:
            return _NOTHING
    return value


def _matches(expected: Sequence[str], got: Sequence[str]) -> bool:
    return len(expected) == len(got) and all(part in text for part, text in zip(expected, got, strict=True))


def _diff(expected: Sequence[str], got: Sequence[str]) -> Iterator[str]:
    """Lines with ``-`` are missing, those with ``+`` are there instead."""
    lines = difflib.ndiff(list(expected), list(got))
    yield from (f"  {line}" for line in lines if not line.startswith("?"))
