"""The files that are arguments of a command: documents, and the objects in them by name."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from webhook.cluster.directory import KINDS
from webhook.errors import InputError, quote
from webhook.k8s.inputs import read_limited
from webhook.k8s.yaml_documents import MAX_BYTES, Document, objects_in, parse_documents, read_documents

_NAMESPACE: Final = "default"
MACHINES: Final = ("VirtualMachine", "VirtualMachineInstance")


def standard_input() -> bytes:
    """All of standard input.

    Raises:
        InputError: it is too large.
    """
    return read_limited(sys.stdin.buffer, MAX_BYTES, "standard input")


def documents(paths: Iterable[str], stdin: bytes | None) -> list[Document]:
    """All documents in files; ``-`` is standard input. A List is replaced by its items.

    Raises:
        InputError: a file cannot be read, or is not valid YAML or JSON.
    """
    found: list[Document] = []
    for path in paths:
        read = parse_documents(stdin or b"", "standard input") if path == "-" else read_documents(Path(path))
        for document in read:
            found.extend(objects_in(document))
    return found


@dataclass(frozen=True, slots=True)
class GivenObjects:
    """Documents by kind. As in kubectl, an object without a namespace is in ``default``.

    Attributes:
        machines: VMs and VMIs, in their order.
        others: objects of other kinds that commands use, by kind, namespace and name.
        skipped: the kinds that commands do not use, each once.
    """

    machines: list[Document] = field(default_factory=list)
    others: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


def objects(found: Iterable[Document]) -> GivenObjects:
    """Sort documents by kind.

    Raises:
        InputError: a document is not an object with a name, or a duplicate.
    """
    result = GivenObjects()
    seen: dict[tuple[str, str, str], str] = {}
    for document in found:
        name = _kind(document)
        kind = KINDS.get(name)
        if kind is None or not _is(document, kind.group, kind.versions):
            if name not in result.skipped:
                result.skipped.append(name)
            continue
        placed = _place(document, namespaced=kind.namespaced)
        metadata = placed.value["metadata"]
        key = (name, metadata.get("namespace", ""), metadata["name"])
        if key in seen:
            raise InputError(f"{name} {quote(key[2])} is a duplicate of {seen[key]}", document.where(), "remove one")
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
        raise InputError("apiVersion or kind is missing", document.where(["kind"]), "use a Kubernetes manifest")
    return kind


def _is(document: Document, group: str, versions: str) -> bool:
    """Whether it is of this group; other groups have kinds of the same name."""
    found, _, version = document.value["apiVersion"].rpartition("/")
    return found == group and re.fullmatch(versions, version) is not None


def _place(document: Document, *, namespaced: bool) -> Document:
    value = document.value
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        where = document.where(["metadata", "name"])
        raise InputError(f"metadata.name of the {value['kind']} is missing", where, "set metadata.name")
    namespace = metadata.get("namespace") or (_NAMESPACE if namespaced else "")
    if not isinstance(namespace, str):
        raise InputError("metadata.namespace must be a string", document.where(["metadata", "namespace"]))
    rest = {key: item for key, item in metadata.items() if key != "namespace"}
    own = {"namespace": namespace} if namespaced else {}
    # Line numbers are looked up by the identity of the parts, so the copy keeps those of the original.
    return Document({**value, "metadata": {**rest, **own}}, document.file, document.line, document.lines)
