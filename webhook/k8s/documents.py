"""Documents of manifests, whatever they were written in: a value, where each part of it stands, the objects in it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from webhook.errors import InputError, InputErrors, quote

KeyPath = Sequence[str | int]
# By id of a mapping or list: the line of each child, in order. Beside the values, because those stay plain.
Lines = dict[int, list[int]]
_WORD: Final = re.compile(r"[\w-]+")


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document, or one object of a ``List``.

    Attributes:
        value: dict, list, str, int, float or bool, nested; it must not change while `line_of` is in use.
        file: the name of the file, as the user gave it.
        line: the line where the value starts, from 1.
        lines: the lines of its parts, for `line_of`; empty for JSON.
    """

    value: Any
    file: str
    line: int
    lines: Lines = field(default_factory=dict, repr=False, compare=False)

    def line_of(self, path: KeyPath) -> int:
        """The line, from 1, of the last part of a path that is there; for all of a JSON file that of the document."""
        value, line = self.value, self.line
        for segment in path:
            lines = self.lines.get(id(value))
            if lines is None:
                break
            if isinstance(value, dict) and segment in value:
                place = list(value).index(segment)
            elif isinstance(value, list) and isinstance(segment, int) and 0 <= segment < len(value):
                place = segment
            else:
                break
            line, value = lines[place], value[segment]
        return line

    def where(self, path: KeyPath = ()) -> str:
        """``FILE:LINE`` of a path, as `InputError` wants it."""
        return f"{self.file}:{self.line_of(path)}"


def format_path(path: KeyPath) -> str:
    """A path in words: ``spec.volumes[0].name``, ``metadata.labels["kubernetes.io/hostname"]``."""
    parts = (
        f"[{part}]" if isinstance(part, int) else f".{part}" if _WORD.fullmatch(part) else f"[{quote(part)}]"
        for part in path
    )
    return "".join(parts).removeprefix(".")


def join_mistakes(mistakes: Collection[InputError]) -> InputError:
    """One error for all mistakes of a document; there is at least one."""
    return InputErrors(mistakes) if len(mistakes) > 1 else next(iter(mistakes))


def mistakes_of(error: InputError) -> tuple[InputError, ...]:
    """The single mistakes in an error."""
    return error.mistakes if isinstance(error, InputErrors) else (error,)


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
