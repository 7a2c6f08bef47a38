"""A test written from what a review says now."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from webhook.admission.redaction import redact_at
from webhook.cli.cases.check import codes_of
from webhook.cli.cases.model import API_VERSION, KIND
from webhook.cli.requests import Sending
from webhook.cli.review.evaluation import Evaluator
from webhook.cli.review.inputs import Part, find, read
from webhook.cli.review.result import Result
from webhook.cli.show import path_text
from webhook.cli.yamltext import dump
from webhook.cluster.files import FilesCluster
from webhook.errors import InputError
from webhook.k8s.yaml_builder import Document, join_mistakes
from webhook.settings.file import default_settings, load


def record(target: Path, arguments: tuple[str, ...], cluster_from: Path, config_file: Path | None) -> int:
    """Write a test whose cases expect what the reviews of the given objects say.

    Args:
        target: the file to write; it must not exist.
        arguments: files, directories and patterns, as `review` takes them.
        cluster_from: the cluster's objects.
        config_file: the settings; None for the built-in defaults.

    Returns:
        The number of cases.

    Raises:
        InputError: the file exists, or an input cannot be used.
    """
    if target.exists():
        raise InputError("exists already", str(target), "remove it, or name another file")
    settings = load(config_file) if config_file else default_settings()
    evaluator = Evaluator(FilesCluster.load(cluster_from, settings), settings, Sending())
    cases = asyncio.run(_cases(_documents(arguments), evaluator, target))
    test: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND, "cluster": _relative(cluster_from, target)}
    if config_file:
        test["settings"] = _relative(config_file, target)
    target.write_text(dump([{**test, "cases": cases}]), encoding="utf-8")
    return len(cases)


def _documents(arguments: tuple[str, ...]) -> list[tuple[Part, list[Document]]]:
    mistakes: list[InputError] = []
    found = []
    for part in find(arguments, None, mistakes):
        content = read(part)
        mistakes += content.mistakes
        found.append((part, content.documents))
    if mistakes:
        raise join_mistakes(mistakes)
    return found


async def _cases(found: list[tuple[Part, list[Document]]], evaluator: Evaluator, target: Path) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = []
    names: set[str] = set()
    for part, documents in found:
        for document in documents:
            result = await evaluator.evaluate(document)
            if not result.matched:
                continue
            file = _relative(Path(part.file), target)
            name = result.title if result.title not in names else f"{result.title} ({file}:{result.line})"
            names.add(name)
            alone = len(documents) == 1 and part.text is None
            given: Any = file if alone else document.value
            cases.append({"name": name, "object": given, "expect": _expectation(result)})
    if not cases:
        raise InputError("there is nothing to record", str(target), "give objects that kubevirt-webhook evaluates")
    return cases


def _expectation(result: Result) -> dict[str, Any]:
    expect: dict[str, Any] = {"decision": result.decision, "reasons": codes_of(result)}
    if result.patch or result.decision == "allowed":
        expect["patched"] = _changes(result) if result.patch else {}
    if result.warnings:
        expect["warnings"] = list(result.warnings)
    if result.message:
        expect["message"] = result.message
    return expect


def _changes(result: Result) -> dict[str, Any]:
    """The values that the patch has set, but for those that hold secrets."""
    changes = [change for evaluation in result.judgements for change in evaluation["changes"]]
    return {
        path_text(change["path"]): change["new"]
        for change in changes
        if redact_at(change["path"], change["new"], bounded=False) is change["new"]
    }


def _relative(path: Path, target: Path) -> str:
    return Path(os.path.relpath(path, target.parent)).as_posix()
