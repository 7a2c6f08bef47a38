"""What a command is given in files: documents, and the objects in them by name."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from webhook.cluster.kinds import KINDS
from webhook.errors import InputError, quote
from webhook.inputs import read_limited
from webhook.k8s.yaml_builder import Document
from webhook.k8s.yaml_documents import MAX_BYTES, objects_in, parse_documents, read_documents

_NAMESPACE: Final = "default"
MACHINES: Final = ("VirtualMachine", "VirtualMachineInstance")


def standard_input() -> bytes:
    """All of it.

    Raises:
        InputError: it is larger than a file may be.
    """
    return read_limited(sys.stdin.buffer, MAX_BYTES, "standard input")


def documents(paths: Iterable[str], stdin: bytes | None) -> list[Document]:
    """All documents in files; ``-`` is standard input. Lists are taken apart.

    Raises:
        InputError: a file can't be read or is no YAML or JSON.
    """
    found: list[Document] = []
    for path in paths:
        read = parse_documents(stdin or b"", "standard input") if path == "-" else read_documents(Path(path))
        for document in read:
            found.extend(objects_in(document))
    return found


@dataclass(frozen=True, slots=True)
class GivenObjects:
    """Documents sorted by what they are. As for kubectl, what names no namespace is in ``default``.

    Attributes:
        machines: VMs and VMIs, in their order.
        others: everything else that a cluster may hold, by kind, namespace and name.
        passed_over: the kinds that are of no use here, each once.
    """

    machines: list[Document] = field(default_factory=list)
    others: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    passed_over: list[str] = field(default_factory=list)


def objects(found: Iterable[Document]) -> GivenObjects:
    """Sort documents.

    Raises:
        InputError: one is no object with a name, or is there twice.
    """
    result = GivenObjects()
    seen: dict[tuple[str, str, str], str] = {}
    for document in found:
        name = _kind(document)
        kind = KINDS.get(name)
        if kind is None or not _is(document, kind.group, kind.versions):
            if name not in result.passed_over:
                result.passed_over.append(name)
            continue
        placed = _place(document, namespaced=kind.namespaced)
        metadata = placed.value["metadata"]
        key = (name, metadata.get("namespace", ""), metadata["name"])
        if key in seen:
            raise InputError(f"{name} {quote(key[2])} is here a second time", document.where(), f"see {seen[key]}")
        seen[key] = document.where()
        if name in MACHINES:
            result.machines.append(placed)
        else:
            result.others[key] = placed.value
    return result


def _kind(document: Document) -> str:
    value: dict[str, Any] = document.value
    kind = value.get("kind")
    if not isinstance(kind, str) or not kind or not isinstance(value.get("apiVersion"), str):
        raise InputError("it has no apiVersion and kind", document.where(["kind"]), "give a manifest")
    return kind


def _is(document: Document, group: str, versions: str) -> bool:
    """Whether it is of this group: others have kinds of the same name."""
    found, _, version = document.value["apiVersion"].rpartition("/")
    return found == group and re.fullmatch(versions, version) is not None


def _place(document: Document, *, namespaced: bool) -> Document:
    value = document.value
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        where = document.where(["metadata", "name"])
        raise InputError(f"this {value['kind']} has no metadata.name", where, "give it one, from which others follow")
    namespace = metadata.get("namespace") or (_NAMESPACE if namespaced else "")
    if not isinstance(namespace, str):
        raise InputError("metadata.namespace must be a string", document.where(["metadata", "namespace"]))
    rest = {key: item for key, item in metadata.items() if key != "namespace"}
    own = {"namespace": namespace} if namespaced else {}
    # The lines are known by the identity of what they belong to, so the copy's are those of the original.
    return Document({**value, "metadata": {**rest, **own}}, document.file, document.line, document.lines)
