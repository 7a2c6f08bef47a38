"""The vectors' files: a case and the answers to it on every line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from tests.kubevirt.samples import among
from webhook.errors import InputError
from webhook.kubevirt.config import AMD64, ClusterConfig
from webhook.kubevirt.rejection import Get
from webhook.kubevirt.releases.capabilities import parse_version
from webhook.kubevirt.releases.release import release_of
from webhook.kubevirt.rules import NEWEST, Rules, rules_of

Json = dict[str, Any]

DATA = Path(__file__).parents[1] / "data"
# Usual cases, and rare ones: odd amounts, old and lost revisions, fields that Go writes as null.
FILE = DATA / "instancetypes.jsonl.gz"
# The answers of each supported release of KubeVirt, to cases of its own and to one of every rule that differs.
VERSIONS = tuple(sorted((DATA / "versions").glob("*.jsonl.gz")))

_TYPES: dict[type, str] = {dict: "object", list: "list"}

_NAMESPACED = (
    "ControllerRevision",
    "DataSource",
    "DataVolume",
    "PersistentVolumeClaim",
    "VirtualMachineInstancetype",
    "VirtualMachinePreference",
    "VolumeSnapshot",
)


@dataclass(frozen=True)
class VectorCase:
    """One line.

    Attributes:
        id: its name.
        given: the case as it stands there.
        expected: the answer by stage: KubeVirt's are objects, kube-scheduler's are lists of names.
    """

    id: str
    given: Json
    expected: Json

    @property
    def namespace(self) -> str:
        """The VM's."""
        metadata: Json = (self.given.get("vm") or self.given.get("vmi") or {}).get("metadata", {})
        return str(metadata.get("namespace", ""))

    @property
    def objects(self) -> list[Json]:
        """Everything that exists beside the VM; what has no namespace is in the VM's."""
        named = (self.given.get("instancetype"), self.given.get("preference"))
        return [self._placed(item) for item in (*(self.given.get("objects") or ()), *named) if item is not None]

    def _placed(self, item: Json) -> Json:
        metadata = item.get("metadata", {})
        if item.get("kind") not in _NAMESPACED or "namespace" in metadata:
            return item
        return {**item, "metadata": {**metadata, "namespace": self.namespace}}

    @cached_property
    def get(self) -> Get:
        """Look-ups among them."""
        return among(self.objects)

    @cached_property
    def configuration(self) -> ClusterConfig:
        """The cluster's."""
        return ClusterConfig.of(self.given.get("clusterConfig"), self.given.get("clusterArch") or AMD64, self.rules)

    @cached_property
    def rules(self) -> Rules:
        """Those of the release that has answered; the newest ones where the case names none.

        Raises:
            InputError: it does not name a release.
        """
        named = self.given.get("kubevirtVersion")
        if named is None:
            return NEWEST
        version = parse_version(named) if isinstance(named, str) else None
        if version is None:
            raise InputError(f"names the KubeVirt version {named}, which there is not", self.id)
        return rules_of(release_of(version))


def read(path: Path, answer: type = dict) -> Iterator[VectorCase]:
    """The cases of a file, plain or compressed.

    Args:
        answer: the type of the answers; an ``error`` may be a text instead.

    Raises:
        InputError: the file cannot be read, or a line is not a valid case.
    """
    try:
        data = path.read_bytes()
        lines = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).splitlines()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"can't be read: {getattr(error, 'strerror', None) or error}", str(path)) from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _case(line, f"{path}:{number}", answer)


def _case(line: bytes, where: str, answer: type) -> VectorCase:
    try:
        entry = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"is no JSON: {error}", where) from error
    given, expected = (entry.get("case"), entry.get("expected")) if isinstance(entry, dict) else (None, None)
    if not isinstance(given, dict) or not isinstance(expected, dict):
        raise InputError("is no case, which has the objects case and expected", where)
    if not all(isinstance(value, answer) or stage == "error" for stage, value in expected.items()):
        raise InputError(f"has an answer that is no {_TYPES[answer]}", where)
    return VectorCase(str(given.get("id", where)), given, expected)
