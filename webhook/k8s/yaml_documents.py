"""Strict reading of YAML as Kubernetes' users write it: plain values, exact lines, nothing guessed, nothing unbounded.

Scalars are read as ``sigs.k8s.io/yaml`` (a fork of go-yaml v2) reads them, as kubectl and the API server do, but for
``yes``, ``no``, ``on`` and ``off``. Values are built from the parser's events rather than from PyYAML's nodes: that
needs no recursion, so that the depth can be limited here, and it is several times faster.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

import msgspec
import yaml

from webhook.errors import InputError, InputErrors
from webhook.k8s.inputs import decompress, read_file
from webhook.k8s.yaml_builder import MAX_DEPTH, TOO_DEEP_TEXT, Document, DocumentBuilder, join_mistakes

# Of a file, after decompression.
MAX_BYTES: Final = 256 * 1024 * 1024
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNPRINTABLE: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def mistakes_of(error: InputError) -> tuple[InputError, ...]:
    """The single mistakes in an error."""
    return error.mistakes if isinstance(error, InputErrors) else (error,)


def read_documents(path: str | os.PathLike[str]) -> Iterator[Document]:
    """Read a file of YAML or JSON (``.json``), either of them compressed (``.gz``), as `parse_documents` does.

    JSON is decoded some ten times faster than YAML, but a key written twice passes unseen and lines are the document's.

    Raises:
        InputError: a document has mistakes; the file cannot be read, is not a regular or gzip file, or is larger than
            `MAX_BYTES`.
    """
    file = os.fspath(path)
    data = read_file(file, MAX_BYTES)
    if file.endswith(".gz"):
        data = decompress(data, MAX_BYTES, file)
    if file.removesuffix(".gz").endswith(".json"):
        yield from _parse_json(data, file)
    else:
        yield from parse_documents(data, file)


def parse_documents(source: str | bytes, where: str) -> Iterator[Document]:
    """Read all documents of a YAML text; empty ones are skipped.

    A document with mistakes is left out. All mistakes are raised together once everything else has been read, so that a
    reader who consumes every document cannot miss them.

    Args:
        source: text, or UTF-8 bytes.
        where: the name of the source, for messages and `Document.file`.

    Raises:
        InputError: bad syntax or encoding, a key that is not a string or a duplicate, a tag or number that JSON does
            not have, an alias of itself, more than `MAX_DEPTH` levels or `MAX_ALIASED` by aliases.
        InputErrors: several of these.
    """
    text = _text(source, where)
    builder = DocumentBuilder(where)
    if bad := _UNPRINTABLE.search(text):
        line = text.count("\n", 0, bad.start()) + 1
        builder.give_up(f"contains U+{ord(bad[0]):04X}, which YAML does not allow", line, "remove it")
    parser = _LOADER(text)
    try:
        while (event := parser.get_event()) is not None:
            if (document := builder.take(event)) is not None:
                yield document
    # The latter two: PyYAML's own parser, for absurd escapes and versions.
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        builder.give_up(*_syntax_mistake(error, text))
    finally:
        parser.dispose()
    if builder.mistakes:
        raise join_mistakes(builder.mistakes.values())


def is_deep(source: str | bytes) -> bool:
    """Whether YAML has more than `MAX_DEPTH` levels of collections: PyYAML's own parser takes the square of them.

    Raises:
        yaml.YAMLError: it is no YAML.
    """
    levels = 0
    for event in yaml.parse(source, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            levels += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            levels -= 1
        if levels > MAX_DEPTH:
            return True
    return False


def objects_in(document: Document) -> Iterator[Document]:
    """The Kubernetes objects of a document: itself, or the items of a ``List`` or ``...List``, nested ones too.

    Items of a typed list need no ``apiVersion`` and ``kind``, as in the API server's own answers; they get the list's.

    Raises:
        InputError: the document, or an item, is not a mapping, or ``items`` is not a list; raised after all good ones.
    """
    pending, mistakes = [document], []
    while pending:
        current = pending.pop()
        value = current.value
        kind = value.get("kind") if isinstance(value, dict) else ""
        if not isinstance(value, dict):
            mistakes.append(InputError("is not a Kubernetes object: it must be a mapping with a kind", current.where()))
        elif not isinstance(kind, str) or not kind.endswith("List") or (kind != "List" and "items" not in value):
            yield current
        elif isinstance(items := value.get("items"), list | None):
            pending.extend(reversed([_item(current, index, item) for index, item in enumerate(items or ())]))
        else:
            mistakes.append(InputError(f"items of this {kind} is not a list", current.where(["items"])))
    if mistakes:
        raise join_mistakes(mistakes)


def _item(parent: Document, index: int, item: Any) -> Document:
    line = parent.line_of(["items", index])
    kind = parent.value["kind"].removesuffix("List")
    if kind and isinstance(item, dict):
        implied = {"apiVersion": parent.value.get("apiVersion"), "kind": kind}
        added = {key: value for key, value in implied.items() if key not in item}
        lines = parent.lines.get(id(item))
        item = {**added, **item}
        if lines is not None:
            parent.lines[id(item)] = [line] * len(added) + lines
    return Document(item, parent.file, line, parent.lines)


def _text(source: str | bytes, where: str) -> str:
    try:
        return (source if isinstance(source, str) else source.decode()).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputError("is not valid UTF-8", f"{where}:{line}", "save it as UTF-8") from error


def _syntax_mistake(error: Exception, text: str) -> tuple[str, int, str]:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return f"is not valid YAML: {error}", 1, ""
    index, context = error.problem_mark.index, error.context or ""
    line = text.count("\n", 0, index) + 1
    if text[index : index + 1] == "\t":
        return "a tab is used for indentation", line, "use spaces"
    if error.context_mark is not None and error.context_mark.line + 1 < line:
        context += f" that starts in line {error.context_mark.line + 1}"
    return f"is not valid YAML: {error.problem}" + (f" ({context})" if context else ""), line, ""


def _parse_json(data: bytes, where: str) -> Iterator[Document]:
    text = _text(data, where)
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        problem, _, byte = str(error).removeprefix("JSON is malformed: ").partition(" (byte ")
        line = text.encode().count(b"\n", 0, int(byte[:-1]) if byte else None) + 1
        raise InputError(f"is not valid JSON: {problem}", f"{where}:{line}") from error
    except RecursionError as error:
        raise InputError(TOO_DEEP_TEXT, where) from error
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        children = chain.from_iterable(parent.values() if isinstance(parent, dict) else parent for parent in level)
        level = [child for child in children if isinstance(child, dict | list)]
    if level:
        raise InputError(TOO_DEEP_TEXT, where)
    if value is not None:
        yield Document(value, where, 1)
