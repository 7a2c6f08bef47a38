"""YAML read from a text, and the errors in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from webhook.errors import InputError
from webhook.k8s.yaml_documents import Document, parse_documents


def parsed(text: str | bytes) -> list[Any]:
    return [document.value for document in parse_documents(text, "f.yaml")]


def one(text: str) -> Document:
    (document,) = parse_documents(text, "f.yaml")
    return document


def rejection(text: str | bytes) -> str:
    with pytest.raises(InputError) as refused:
        list(parse_documents(text, "f.yaml"))
    return str(refused.value)


Refused = Callable[..., str]
