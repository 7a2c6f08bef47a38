"""Reads a settings file as `Settings`, or says all of its mistakes at once: where, what, and what was meant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from webhook.errors import InputError, InputErrors, quote
from webhook.k8s.documents import Document, format_path, mistakes_of
from webhook.k8s.yaml_documents import parse_documents
from webhook.settings.mistakes import mistakes_in, node_at, schema_of
from webhook.settings.model import Settings
from webhook.settings.schedulers import undeclared


def schema(model: type[Settings]) -> dict[str, Any]:
    """The JSON Schema of the file, with descriptions and defaults."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_without_titles(schema_of(model))}


def of_file(value: object, model: type[Settings]) -> Settings:
    """The settings that a file's mapping has, each under its key in the file; a `ValidationError` where it has none."""
    return model.model_validate(value, by_alias=True, by_name=False)


def validate(data: bytes, where: str, model: type[Settings]) -> Settings:
    """The file's content, UTF-8, as settings; messages have the file's name.

    Raises:
        InputErrors: all errors in the content.
    """
    try:
        # kubectl never reads what is in the file: `spread: off` without quotes is valid, and stays so.
        documents = list(parse_documents(data, where, switches=False))
    except InputError as error:
        raise InputErrors(mistakes_of(error)) from error
    if len(documents) > 1:
        mistake = InputError("the file has more than one document", documents[1].where(), "keep one document")
        raise InputErrors([mistake])
    if not documents:
        # Editors and failed writes leave empty files behind; the defaults would end what the admin enforces.
        raise InputErrors([InputError("the file is empty", where, "write {} for the defaults")])
    document = documents[0]
    if other := _object_of_kubernetes(document):
        raise InputErrors([other])
    try:
        return of_file(document.value, model)
    except ValidationError as error:
        listed = error.errors(include_url=False)
        undeclared_scheduler = _undeclared_scheduler(document, listed, model)
        raise InputErrors(mistakes_in(listed, document, model, undeclared_scheduler)) from error


def _object_of_kubernetes(document: Document) -> InputError | None:
    """A file that holds an object of Kubernetes, such as the ConfigMap that has the settings, and not the settings."""
    value = document.value
    if not isinstance(value, dict) or not {"apiVersion", "kind"} <= value.keys():
        return None
    kind = value["kind"] if isinstance(value["kind"], str) else "object"
    fix = "use a file with settings alone"
    data = value.get("data")
    if kind == "ConfigMap" and isinstance(data, dict) and data:
        key = "settings.yaml" if "settings.yaml" in data else next(iter(data))
        fix = f"use the content of its key {quote(str(key))}"
    return InputError(f"this is a {kind} of Kubernetes, not settings", document.where(), fix)


def _undeclared_scheduler(
    document: Document, listed: Iterable[ErrorDetails], model: type[Settings]
) -> list[tuple[int, InputError]]:
    """An undeclared scheduler, which validation does not look for where a section that it depends on has a mistake."""
    if any((details.get("ctx") or {}).get("code") == "undeclared" for details in listed):
        return []
    path = ("scheduling", "schedulerName")
    if not node_at(path, model):
        return []
    value: Any = document.value
    schedulers, scheduling = (
        value.get(key) if isinstance(value, dict) else None for key in ("schedulers", "scheduling")
    )
    scheduler = scheduling.get("schedulerName") if isinstance(scheduling, dict) else None
    if not isinstance(scheduler, str) or not isinstance(schedulers, dict) or scheduler in schedulers:
        return []
    error, line = undeclared(scheduler, [name for name in schedulers if isinstance(name, str)]), document.line_of(path)
    context = error.context or {}
    return [(line, InputError(f"{format_path(path)}: {context['what']}", f"{document.file}:{line}", context["fix"]))]


def _without_titles(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_titles(part) for key, part in node.items() if key != "title"}
    return [_without_titles(part) for part in node] if isinstance(node, list) else node
