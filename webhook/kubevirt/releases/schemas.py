"""KubeVirt's kinds as its releases define them: groups, versions, scopes, and the schema of each.

They are the CustomResourceDefinitions that virt-operator installs, without descriptions and validation rules (CEL);
``python -m hack.definitions`` writes them.
"""

from __future__ import annotations

import gzip
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from webhook.kubevirt.releases.capabilities import SUPPORTED_VERSIONS, Version

DIRECTORY: Final = Path(__file__).with_name("definitions")


class DefinedKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of a release.

    Attributes:
        versions: the versions that the API server serves, all with the same schema.
        schema: the structural schema of a whole object, plain JSON.
    """

    group: str
    kind: str
    namespaced: bool
    versions: tuple[str, ...]
    schema: dict[str, Any]


def file_of(version: Version) -> Path:
    """The file with the kinds of a version's minor release."""
    return DIRECTORY / f"{version.major}.{version.minor}.json.gz"


@lru_cache(maxsize=2)
def kinds_of(version: Version) -> tuple[DefinedKind, ...]:
    """The kinds of a release; of one that is not among the supported ones, those of the nearest that is."""
    known = max((each for each in SUPPORTED_VERSIONS if each.line <= version.line), default=SUPPORTED_VERSIONS[0])
    return msgspec.json.decode(gzip.decompress(file_of(known).read_bytes()), type=tuple[DefinedKind, ...])
