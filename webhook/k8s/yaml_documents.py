"""Strict reading of YAML as Kubernetes' users write it: plain values, exact lines, nothing guessed, nothing unbounded.

Scalars are read as ``sigs.k8s.io/yaml`` (a fork of go-yaml v2) reads them, as kubectl and the API server do;
tests/data/kubectl-yaml.jsonl.gz has its readings. Values are built from the parser's events rather than from PyYAML's
nodes: that needs no recursion, so that the depth can be limited here, and it is several times faster.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from sys import intern
from typing import Any, Final, NoReturn

import msgspec
import yaml
from yaml import events

from webhook.errors import InputError, quote
from webhook.k8s.bounded_input import decompress, read_file
from webhook.k8s.documents import Document, Lines, join_mistakes
from webhook.k8s.json_tree import is_too_deep
from webhook.text import SURROGATE

# Of a file, after decompression.
MAX_BYTES: Final = 256 * 1024 * 1024
MAX_DEPTH: Final = 200
# What aliases may add to a file, in parser events: a scalar is one, a collection two and its content.
MAX_ALIASED: Final = 1_000_000
MAX_MISTAKES: Final = 50
TOO_DEEP_TEXT: Final = f"is nested more than {MAX_DEPTH} levels deep"
# What libyaml says from 0.2.6 on, at a depth of its own, which is larger.
_TOO_DEEP_FOR_PARSER: Final = "exceeded maximum nesting depth"
YAML_TAG: Final = "tag:yaml.org,2002:"
_TYPES: Final = {"!!bool": (bool,), "!!float": (float, int), "!!int": (int,), "!!null": (type(None),)}
# Booleans to YAML 1.1, and so to go-yaml; YAML 1.2 has them as text.
_SWITCHES: Final[dict[str, bool]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF"), False),
}
_CONSTANTS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **_SWITCHES,
}
# Of decimal digits a limited number: to convert them takes the square of it.
_INTEGER: Final = re.compile("[-+]?(?:0[xX][0-9a-fA-F]+|0([oO]?[0-7]+)|0[bB][01]+|0|[1-9][0-9]{0,63})")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_BETWEEN_DIGITS: Final = re.compile("(?<=[0-9])_(?=[0-9])")
_NOT_JSON: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NOT_SPACE: Final = re.compile(r"[^ \t\r\n]")
_UNPRINTABLE: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(slots=True)
class _Collection:
    """A mapping or list under construction."""

    value: Any
    line: int
    # Of a mapping: the key that waits for its value, None while the next one is awaited.
    key: str | None = ""
    lines: dict[str | int, int] = field(default_factory=dict)
    # The keys that came from `<<` alone; None without one.
    merged: set[str] | None = None
    merging: bool = False
    anchor: str | None = None
    start: int = 0


class DocumentBuilder:
    """Builds documents from a parser's events.

    Args:
        where: the name of the source, for messages and `Document.file`.
        switches: whether ``on``, ``off``, ``yes``, ``no``, ``y`` and ``n`` are booleans, as to kubectl.

    Attributes:
        mistakes: the mistakes so far, by their text, so that each is reported once.
    """

    def __init__(self, where: str, *, switches: bool = True) -> None:
        self._where = where
        self._switches = switches
        self.mistakes: dict[str, InputError] = {}
        self._aliased = 0
        self._begin()

    def take(self, event: events.Event) -> Document | None:
        """Use one event; the document, if it was the last of a good one."""
        # Half of all events, for which nothing needs to be asked that follows.
        if type(event) is events.ScalarEvent and not self._recording and event.anchor is None:
            self._plain_node(event)
        elif isinstance(event, events.NodeEvent | events.CollectionEndEvent):
            self._node(event)
        elif isinstance(event, events.DocumentStartEvent):
            self._begin()
        elif isinstance(event, events.DocumentEndEvent):
            root = self._open[0]
            if root.value[0] is not None and len(self.mistakes) == self._mistakes_before:
                return Document(root.value[0], self._where, root.lines[0], self._lines)
        return None

    def give_up(self, what: str, line: int, fix: str = "") -> NoReturn:
        """Raise what was found, and a mistake after which nothing can be read."""
        raise join_mistakes([*self.mistakes.values(), InputError(what, f"{self._where}:{line}", fix)])

    def _begin(self) -> None:
        self._mistakes_before = len(self.mistakes)
        # The first holds the document itself.
        self._open = [_Collection([], 1)]
        self._lines: Lines = {}
        # An anchor's node is kept as its events, without aliases: replaying them makes copies, so that no two places
        # of a value share a list. None while the node isn't complete.
        self._anchors: dict[str, tuple[list[events.Event], int, int] | None] = {}
        self._recording = 0
        self._record: list[events.Event] = []

    def _mistake(self, what: str, line: int, fix: str = "") -> None:
        mistake = InputError(what, f"{self._where}:{line}", fix)
        # A replay finds the same again.
        self.mistakes.setdefault(str(mistake), mistake)
        if len(self.mistakes) >= MAX_MISTAKES:
            self.give_up(f"{MAX_MISTAKES} errors so far; the rest of the file was not read", line)

    def _node(self, event: events.Event, replayed: bool = False) -> None:
        assert event.start_mark is not None
        line = event.start_mark.line + 1
        if isinstance(event, events.AliasEvent):
            self._replay(event.anchor or "", line)
            return
        anchor = None if replayed else getattr(event, "anchor", None)
        starts = isinstance(event, events.CollectionStartEvent)
        if anchor is not None:
            self._anchors[anchor] = None if starts else ([event], 0, 1)
            self._recording += starts
        if self._recording:
            self._record.append(event)
        if isinstance(event, events.CollectionStartEvent):
            self._start(event, line, anchor)
        elif not isinstance(event, events.ScalarEvent):
            self._end()
        else:
            self._plain_node(event)

    def _plain_node(self, event: events.ScalarEvent) -> None:
        """What `_node` does with a scalar that no alias refers to."""
        assert event.start_mark is not None
        node, line = self._open[-1], event.start_mark.line + 1
        if node.key is None:
            self._key(node, event, line)
        else:
            self._add(self._scalar(event, line), line)

    def _start(self, event: events.CollectionStartEvent, line: int, anchor: str | None) -> None:
        mapping = isinstance(event, events.MappingStartEvent)
        if len(self._open) > MAX_DEPTH:
            self.give_up(TOO_DEEP_TEXT, line)
        if self._open[-1].key is None:
            self.give_up(f"a {'mapping' if mapping else 'list'} is not a valid key", line)
        if event.tag not in (None, "!", YAML_TAG + ("map" if mapping else "seq")):
            self._unknown_tag((event.tag or "").replace(YAML_TAG, "!!"), line)
        node = _Collection({}, line, None) if mapping else _Collection([], line)
        node.anchor, node.start = anchor, len(self._record) - 1
        self._open.append(node)

    def _end(self) -> None:
        node = self._open.pop()
        if node.anchor is not None:
            self._anchors[node.anchor] = (self._record, node.start, len(self._record))
            self._recording -= 1
            if not self._recording:
                self._record = []
        self._lines[id(node.value)] = list(node.lines.values())
        self._add(node.value, node.line)

    def _replay(self, anchor: str, line: int) -> None:
        if anchor not in self._anchors:
            self.give_up(f"the alias *{anchor} has no anchor &{anchor} before it", line)
        if (span := self._anchors[anchor]) is None:
            self.give_up(f"the alias *{anchor} refers to itself", line)
        record, start, end = span
        self._aliased += end - start
        if self._aliased > MAX_ALIASED:
            what = f"the aliases unfold to more than {MAX_ALIASED:,} nodes"
            self.give_up(what, line, "replace the aliases by their values")
        for index in range(start, end):
            self._node(record[index], replayed=True)

    def _add(self, value: Any, line: int) -> None:
        node = self._open[-1]
        if isinstance(node.value, list):
            node.lines[len(node.value)] = line
            node.value.append(value)
            return
        if node.merging:
            self._merge(node, value, line)
        else:
            node.value[node.key] = value
        node.key, node.merging = None, False

    def _key(self, node: _Collection, event: events.ScalarEvent, line: int) -> None:
        key = node.key = intern(event.value)
        if key == "<<" and event.implicit[0]:
            if node.merged is not None:
                self._mistake("the key << is a duplicate", line, "use one << with a list of aliases")
            node.merging, node.merged = True, node.merged or set()
            return
        # Workflows of GitHub have `on` at the top, and lie in directories that are reviewed. No object has such a key.
        is_text = len(self._open) == 2 and key in _SWITCHES
        if not is_text and not isinstance(self._scalar(event, line), str):
            self._mistake(f"the key {quote(key)} is not a string", line, "write it in quotes")
        if node.merged is not None and key in node.merged:
            node.merged.remove(key)
        elif key in node.value:
            self._mistake(f"the key {quote(key)} is a duplicate of line {node.lines[key]}", line, "remove one")
        node.lines[key] = line

    def _merge(self, node: _Collection, value: Any, line: int) -> None:
        assert node.merged is not None
        sources = value if isinstance(value, list) else [value]
        # As in go-yaml, the first of several wins.
        for source in reversed(sources):
            if not isinstance(source, dict):
                self._mistake("<< must be a mapping or a list of mappings", line)
                continue
            for (key, item), at in zip(source.items(), self._lines.pop(id(source)), strict=True):
                if key not in node.value or key in node.merged:
                    node.value[key], node.lines[key] = item, at
                    node.merged.add(key)
                elif node.value[key] != item:
                    # To YAML the mapping's own key wins, to go-yaml v2, and so to kubectl, the later one.
                    what = f"the key {quote(key)} is overridden by the << below it"
                    self._mistake(what, node.lines[key], "put << first")

    def _scalar(self, event: events.ScalarEvent, line: int) -> Any:
        text = event.value
        if not text.isascii() and SURROGATE.search(text):
            self._mistake("the escape is half of a surrogate pair", line, "write the character itself")
        tag = (event.tag or "").replace(YAML_TAG, "!!")
        if tag in ("!", "!!str") or not (tag or event.implicit[0]):
            return text
        if _NOT_JSON.fullmatch(text):
            self._mistake(f"{text} is not a valid JSON number", line, "if it is a string, write it in quotes")
            return text
        value = plain(text) if self._switches or text not in _SWITCHES else text
        if tag and tag not in _TYPES:
            self._unknown_tag(tag, line)
        elif tag and (
            type(value) not in _TYPES[tag] or (tag == "!!int" and not _INTEGER.fullmatch(text.replace("_", "")))
        ):
            self._mistake(f"{quote(text)} is not a valid {tag}", line)
        return value

    def _unknown_tag(self, tag: str, line: int) -> None:
        self._mistake(f"the tag {quote(tag)} is not valid in Kubernetes", line, "remove it")


def plain(text: str) -> Any:
    """What text without quotes and tag is to Kubernetes: a constant, a number, or itself."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in "+-.0123456789":
        return text
    # In what begins with a point go-yaml has underscores stand between digits alone.
    number = _BETWEEN_DIGITS.sub("", text) if text[0] == "." else text.replace("_", "")
    if match := _INTEGER.fullmatch(number):
        value = int(number, 8 if match[1] else 0)
        # What fits neither int64 nor uint64 is a float to go-yaml, if it is decimal.
        if -(2**63) <= value < 2**63 or (number[0] != "+" and 0 <= value < 2**64):
            return value
    if _FLOAT.fullmatch(number) and abs(fraction := float(number)) != inf:
        # Go writes 1.0 and 1e3 into JSON as 1 and 1000, and so the API server gets integers.
        return int(fraction) if fraction.is_integer() and abs(fraction) <= 2**53 else fraction
    return text


def read_documents(path: str | os.PathLike[str]) -> Iterator[Document]:
    """Read a file of YAML or JSON (``.json``), either of them compressed (``.gz``), as `parse_documents` does.

    JSON is decoded some ten times faster than YAML, but a key written twice passes unseen and lines are the document's.
    A file of JSON may hold several objects, one after the other, with or without a line for each.
    An `InputError` also where the file cannot be read, is not a regular or gzip file, or is too large.
    """
    file = os.fspath(path)
    data = read_file(file, MAX_BYTES)
    if file.endswith(".gz"):
        data = decompress(data, MAX_BYTES, file)
    if file.removesuffix(".gz").endswith(".json"):
        yield from _parse_json(data, file)
    else:
        yield from parse_documents(data, file)


def parse_documents(source: str | bytes, where: str, *, switches: bool = True) -> Iterator[Document]:
    """Read all documents of a YAML text, or of UTF-8 bytes, that come from ``where``; empty ones are skipped.

    As kubectl does, a text of several JSON objects, one after the other, is read as these; and ``on``, ``off`` and the
    like are booleans, unless ``switches`` is false.

    A document with mistakes is left out. All mistakes are raised together once everything else has been read, so that a
    reader who consumes every document cannot miss them.

    Raises:
        InputError: bad syntax or encoding, a key that is not a string or a duplicate, a tag or number that JSON does
            not have, an alias of itself, more than `MAX_DEPTH` levels or `MAX_ALIASED` by aliases.
        InputErrors: several of these.
    """
    text = _text(source, where)
    if text.lstrip().startswith("{") and (stream := _json_stream(text, where)):
        yield from stream
        return
    builder = DocumentBuilder(where, switches=switches)
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
    """Whether YAML, or else a `yaml.YAMLError`, has more levels than `MAX_DEPTH`: PyYAML takes the square of them."""
    levels = 0
    try:
        for event in yaml.parse(source, Loader=_LOADER):
            if isinstance(event, yaml.CollectionStartEvent):
                levels += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                levels -= 1
            if levels > MAX_DEPTH:
                return True
    except yaml.MarkedYAMLError as error:
        if error.problem != _TOO_DEEP_FOR_PARSER:
            raise
        return True
    return False


def load_plain(source: str | bytes) -> Any:
    """The value of one document as PyYAML reads it, by its parser in C; a `yaml.YAMLError`, `ValueError` or the like.

    What `is_deep` has not looked at takes the square of its depth.
    """
    return yaml.load(source, Loader=_LOADER)  # noqa: S506 - it is a safe one


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
    if error.problem == _TOO_DEEP_FOR_PARSER:
        return TOO_DEEP_TEXT, line, ""
    if text[index : index + 1] == "\t":
        return "a tab is used for indentation", line, "use spaces"
    if error.context_mark is not None and error.context_mark.line + 1 < line:
        context += f" that starts in line {error.context_mark.line + 1}"
    return f"is not valid YAML: {error.problem}" + (f" ({context})" if context else ""), line, ""


def _parse_json(data: bytes, where: str) -> Iterator[Document]:
    text = _text(data, where)
    try:
        documents = [Document(msgspec.json.decode(text), where, 1)]
    except msgspec.DecodeError as error:
        if stream := _json_stream(text, where):
            documents = stream
        else:
            problem, _, byte = str(error).removeprefix("JSON is malformed: ").partition(" (byte ")
            line = text.encode().count(b"\n", 0, int(byte[:-1]) if byte else None) + 1
            raise InputError(f"is not valid JSON: {problem}", f"{where}:{line}") from error
    except RecursionError as error:
        raise InputError(TOO_DEEP_TEXT, where) from error
    for document in documents:
        if is_too_deep(document.value, MAX_DEPTH):
            raise InputError(TOO_DEEP_TEXT, where)
        if document.value is not None:
            yield document


def _json_stream(text: str, where: str) -> list[Document]:
    """The objects of a text of several JSON objects, one after the other; empty where it is something else."""
    # It finds where an object ends; msgspec decodes it, as it decodes all other JSON.
    decoder = json.JSONDecoder()
    documents: list[Document] = []
    position = line = 0
    try:
        while found := _NOT_SPACE.search(text, position):
            line += text.count("\n", position, found.start())
            _, end = decoder.raw_decode(text, found.start())
            value = msgspec.json.decode(text[found.start() : end])
            if not isinstance(value, dict):
                return []
            documents.append(Document(value, where, line + 1))
            line += text.count("\n", found.start(), end)
            position = end
    except (ValueError, msgspec.DecodeError, RecursionError):
        return []
    is_deep_somewhere = any(is_too_deep(each.value, MAX_DEPTH) for each in documents)
    return documents if len(documents) > 1 and not is_deep_somewhere else []
