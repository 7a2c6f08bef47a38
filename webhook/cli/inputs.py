"""What commands read: files and standard input, the objects in them, and the options that name a release."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from webhook.cli import write
from webhook.cluster.directory import KINDS, add_object, find_files
from webhook.cluster.together import COUNTED_KINDS
from webhook.errors import InputError, quote
from webhook.forecast.validation import Schemas, is_of_kubevirt
from webhook.k8s import bounded_input, yaml_documents
from webhook.k8s.documents import Document, join_mistakes, mistakes_of, objects_in
from webhook.k8s.yaml_documents import parse_documents, read_documents
from webhook.kubevirt.releases.capabilities import OLDEST, parse_version
from webhook.kubevirt.releases.release import Release, release_of
from webhook.text import visible

if TYPE_CHECKING:
    from webhook.k8s.client.identity import Kubeconfig
    from webhook.k8s.client.transport import KubernetesTransport

STANDARD_INPUT: Final = "standard input"
# Whether a text may hold objects that others in it refer to. VMs name kinds of instancetypes, but not their group.
_COUNTED: Final = re.compile(
    rb"""kind["']?\s*:\s*["']?(?:Namespace|KubeVirt|MigrationPolicy|VirtualMachineInstancePreset|ControllerRevision|"""
    rb"""PersistentVolumeClaim|VolumeSnapshot)(?:List)?\b|"""
    rb"""apiVersion["']?\s*:\s*["']?(?:instancetype|cdi)\.kubevirt\.io/"""
)
# Of YAML, of which a core parses some three megabytes in a second.
PART_BYTES: Final = 512 * 1024
# `---` in the first column starts a document wherever it stands, in a block of text too.
_DOCUMENT: Final = re.compile(rb"^---(?=[\s]|$)", re.MULTILINE)
# What stands before a document and belongs to it: such a text is not cut.
_DIRECTIVE: Final = re.compile(rb"^(?:%|\.\.\.)", re.MULTILINE)
MACHINES: Final = ("VirtualMachine", "VirtualMachineInstance")
OPTION: Final = "--kubevirt-version"


class Part(msgspec.Struct, frozen=True):
    """A file, or a piece of one.

    Attributes:
        size: bytes, for the progress.
        named: whether the user named it; files that a directory holds may be of other programs.
        text: the text of a piece; None: the whole file, which is still to be read.
        line: the line of the file before the first of the text.
    """

    file: str
    size: int
    named: bool
    text: bytes | None = None
    line: int = 0


class Read(msgspec.Struct):
    """The objects in some parts, what cannot be read, and how many documents of found files are no objects."""

    documents: list[Document] = msgspec.field(default_factory=list)
    mistakes: list[InputError] = msgspec.field(default_factory=list)
    foreign: int = 0


def find(arguments: Iterable[str], stdin: bytes | None, mistakes: list[InputError]) -> Iterator[Part]:
    """The parts of all files that the arguments name, in their order; the mistakes get what cannot be read.

    The arguments are files, directories and patterns; ``-`` is standard input, whose content is ``stdin``.
    """
    for argument in arguments:
        try:
            path = Path(argument)
            if argument == "-":
                yield from _pieces(STANDARD_INPUT, stdin or b"", named=True)
            elif path.is_dir():
                for file in find_files(path, mistakes):
                    yield from _parts(str(file), named=False)
            elif not path.exists() and re.search(r"[*?\[]", argument):
                for file in _matching(path, argument):
                    yield from _parts(str(file), named=False)
            else:
                yield from _parts(argument, named=True)
        except InputError as error:
            mistakes.extend(mistakes_of(error))


def _matching(path: Path, argument: str) -> list[Path]:
    """The files that a pattern matches, hidden ones aside, as in a shell."""
    try:
        every = Path(path.anchor or ".").glob(str(path.relative_to(path.anchor)))
        hidden = re.compile(r"(?:^|/)\.(?!\.?(?:/|$))")
        files = sorted(each for each in every if each.is_file() and not hidden.search(each.as_posix()))
    except (ValueError, NotImplementedError) as error:
        raise InputError(f"is not a valid pattern: {error}", argument, "quote it, as in 'apps/**/*.yaml'") from None
    if not files:
        raise InputError("matches no file", argument, "correct the pattern")
    return files


def _parts(path: str, *, named: bool) -> Iterator[Part]:
    try:
        size = Path(path).stat().st_size
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path) from error
    if size <= PART_BYTES or path.endswith((".json", ".gz")):
        yield Part(path, size, named)
    else:
        yield from _pieces(path, bounded_input.read_file(path, yaml_documents.MAX_BYTES), named)


def _pieces(file: str, text: bytes, named: bool) -> Iterator[Part]:
    if len(text) <= PART_BYTES or _DIRECTIVE.search(text):
        yield Part(file, len(text), named, text)
        return
    start = line = 0
    for match in _DOCUMENT.finditer(text):
        if match.start() - start >= PART_BYTES:
            piece = text[start : match.start()]
            yield Part(file, len(piece), named, piece, line)
            line += piece.count(b"\n")
            start = match.start()
    yield Part(file, len(text) - start, named, text[start:], line)


def batches(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """The parts in groups of about `PART_BYTES`."""
    group, size = list[Part](), 0
    for part in parts:
        group.append(part)
        # Opening a file costs about as much as parsing a kilobyte.
        size += part.size + 1024
        if size >= PART_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def read(part: Part) -> Read:
    """The objects of a part. A List is replaced by its items."""
    result = Read()
    try:
        # Empty lines take the place of what other parts hold, so that every line has its own number.
        text = None if part.text is None else b"\n" * part.line + part.text
        for document in read_documents(part.file) if text is None else parse_documents(text, part.file):
            fields = document.value if isinstance(document.value, dict) else {}
            if not part.named and not all(isinstance(fields.get(key), str) for key in ("kind", "apiVersion")):
                result.foreign += 1
                continue
            try:
                for each in objects_in(document):
                    result.documents.append(each)
            except InputError as error:
                result.mistakes.extend(mistakes_of(error))
    except InputError as error:
        result.mistakes.extend(_with_hint(each, part) for each in mistakes_of(error))
    return result


def _with_hint(error: InputError, part: Part) -> InputError:
    """The mistake; for the source of a Helm chart, with the way to review it."""
    if error.fix or part.file.endswith(".gz"):
        return error
    try:
        text = bounded_input.read_file(part.file, yaml_documents.MAX_BYTES) if part.text is None else part.text
    except InputError:
        return error
    fix = "render the chart first: helm template CHART | kubevirt-webhook review -"
    return InputError(error.what, error.where, fix) if b"{{" in text else error


def read_object(path: Path) -> Document:
    """The only object of a file; an `InputError` where it cannot be read, or holds none or several."""
    file = os.fspath(path)
    content = read(Part(file, 0, named=True))
    if content.mistakes:
        raise join_mistakes(content.mistakes)
    if len(content.documents) != 1:
        what = f"holds {len(content.documents)} objects"
        raise InputError(what, file, "use a file with one object, or write the object into the case")
    return content.documents[0]


def counted_objects(
    parts: Iterable[Part], schemas: Schemas | None, namespace: str, mistakes: list[InputError]
) -> list[Document]:
    """The objects in some parts that others may refer to, of several with one name the last, as they would be stored.

    Those that the API server denies are left out: a review of the object itself says why.

    Args:
        parts: where they are looked for; what cannot be read is passed over.
        schemas: what objects of KubeVirt are checked against; None: they are not.
        namespace: of objects that name none.
        mistakes: gets what is wrong with objects that are not KubeVirt's.
    """
    found: dict[tuple[str, str, str], Document] = {}
    for part in parts:
        if not _may_hold_counted(part):
            continue
        for document in read(part).documents:
            value = document.value
            name, version = value.get("kind"), value.get("apiVersion")
            if not isinstance(name, str) or not isinstance(version, str):
                continue
            kind = KINDS.get(name) if name in COUNTED_KINDS else None
            if kind is None or version.rpartition("/")[0] != kind.group:
                continue
            if schemas and schemas.errors(value):
                continue
            try:
                placed = _place(document, namespace if kind.namespaced else "")
                add_object({kind.name: {}}, placed, kind)
            except InputError as error:
                if not is_of_kubevirt(kind.group):
                    mistakes += mistakes_of(error)
                continue
            metadata = placed.value["metadata"]
            found[kind.name, metadata.get("namespace", ""), metadata["name"]] = placed
    return [*found.values()]


def _may_hold_counted(part: Part) -> bool:
    text = part.text
    if text is None:
        try:
            text = bounded_input.read_file(part.file, yaml_documents.MAX_BYTES)
            if part.file.endswith(".gz"):
                text = bounded_input.decompress(text, yaml_documents.MAX_BYTES, part.file)
        except InputError:
            return False
    return _COUNTED.search(text) is not None


def say_skipped(kinds: Iterable[str]) -> None:
    """Say on standard error, once, which kinds among the cluster's objects a command does not need."""
    if listed := ", ".join(kinds):
        write.error(f"skipped kinds that this command does not use: {visible(listed)}")


def standard_input() -> bytes:
    """All of standard input; an `InputError` where it is too large."""
    return bounded_input.read_limited(sys.stdin.buffer, yaml_documents.MAX_BYTES, STANDARD_INPUT)


def documents(paths: Iterable[str], stdin: bytes | None) -> list[Document]:
    """All documents in files, of which ``-`` is standard input; an `InputError` where one cannot be read.

    A List is replaced by its items.
    """
    streams = (
        parse_documents(stdin or b"", STANDARD_INPUT) if path == "-" else read_documents(Path(path)) for path in paths
    )
    return [each for stream in streams for document in stream for each in objects_in(document)]


@dataclass(frozen=True, slots=True)
class GivenObjects:
    """Documents by kind, each object with its namespace.

    Attributes:
        machines: VMs and VMIs, in their order.
        others: objects of other kinds that commands use, by kind, namespace and name.
        skipped: the kinds that commands do not use, each once.
    """

    machines: list[Document] = field(default_factory=list)
    others: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


def objects(manifests: Iterable[Document], namespace: str = "default") -> GivenObjects:
    """Sort manifests by kind; an `InputError` for one that is not an object with a name, or a duplicate.

    ``namespace`` is that of objects that name none.
    """
    result = GivenObjects()
    seen: dict[tuple[str, str, str], str] = {}
    for document in manifests:
        name, api_version = document.value.get("kind"), document.value.get("apiVersion")
        if not isinstance(name, str) or not name or not isinstance(api_version, str):
            raise InputError("apiVersion or kind is missing", document.where(["kind"]), "use a Kubernetes manifest")
        kind = KINDS.get(name)
        # Other groups have kinds of the same name.
        group, _, version = api_version.rpartition("/")
        if kind is None or kind.for_doctor or group != kind.group or not re.fullmatch(kind.versions, version):
            if name not in result.skipped:
                result.skipped.append(name)
            continue
        placed = _place(document, namespace if kind.namespaced else "")
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


def _place(document: Document, default: str) -> Document:
    value = document.value
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        where = document.where(["metadata", "name"])
        raise InputError(f"metadata.name of the {value['kind']} is missing", where, "set metadata.name")
    namespace = metadata.get("namespace") or default
    if not isinstance(namespace, str):
        raise InputError("metadata.namespace must be a string", document.where(["metadata", "namespace"]))
    rest = {key: item for key, item in metadata.items() if key != "namespace"}
    own = {"namespace": namespace} if default else {}
    # Line numbers are looked up by the identity of the parts, so the copy keeps those of the original.
    return Document({**value, "metadata": {**rest, **own}}, document.file, document.line, document.lines)


@asynccontextmanager
async def connected(kubeconfig: Kubeconfig | None) -> AsyncIterator[KubernetesTransport]:
    """A connection to a cluster, closed at the end; an `InputError` where the kubeconfig cannot be used."""
    from webhook.k8s.client import transport

    connection = await transport.connect(kubeconfig)
    try:
        yield connection
    finally:
        await connection.close()


def parse_release(text: str | None, option: str = OPTION) -> Release | None:
    """The release that an option names, None without it; an `InputError` for one whose rules are not known."""
    if text is None:
        return None
    version = parse_version(text)
    if version is None:
        raise InputError(f"{quote(text)} is not a valid KubeVirt version", option, "use for example 1.8 or v1.8.4")
    release = release_of(version)
    if not release.is_supported:
        raise InputError(f"KubeVirt {release} is not supported", option, f"use {OLDEST} or a newer release")
    return release


_RELEASE: Final = "KubeVirt release whose rules apply, for example 1.8.  [default: that of the KubeVirt object]"
kubevirt_version: Final = click.option(OPTION, metavar="VERSION", help=_RELEASE)
