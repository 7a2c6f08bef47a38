"""The reference to an image by its digest, and what an image's archive contains."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

from hack.interpreters import of_the_image
from hack.release import ReleaseError

_REFERENCE: Final = re.compile(r"(?P<repository>[\w.-]+(?::\d+)?(?:/[\w.-]+)*)@(?P<digest>sha256:[0-9a-f]{64})")
_METADATA: Final = re.compile(r"(?:.*/)?[^/]+\.dist-info/METADATA")
_LIBRARY: Final = re.compile(r"(?:.*/)?(?:lib[^/]+\.so[^/]*|ld-linux[^/]*|python3\.\d+)")


@dataclass(frozen=True)
class ReleaseImage:
    """An image by its digest.

    Attributes:
        repository: where it is, without tag and digest.
        digest: ``sha256:...``.
    """

    repository: str
    digest: str

    def __str__(self) -> str:
        return f"{self.repository}@{self.digest}"


def parse_image(text: str) -> ReleaseImage:
    """An image from ``REPOSITORY@sha256:DIGEST``.

    Raises:
        ReleaseError: it is not such a reference.
    """
    match = _REFERENCE.fullmatch(text)
    if match is None:
        raise ReleaseError(f'"{text}" is not an image by digest; use REPOSITORY@sha256:DIGEST, which a push prints')
    return ReleaseImage(match["repository"], match["digest"])


@dataclass(frozen=True)
class Content:
    """What an image contains.

    Attributes:
        digest: that of its manifest.
        packages: name and version of its Python packages.
        left_out: what a package requires without the image having it, by the package's name.
        libraries: SHA-256 of its shared libraries and interpreters, by path.
    """

    digest: str
    packages: dict[str, str]
    left_out: dict[str, list[str]]
    libraries: dict[str, str]


def read_archive(file: Path) -> Content:
    """The content of an image that was saved as an OCI archive, as `buildah push oci-archive:FILE` does.

    Raises:
        ReleaseError: the file is not such an archive of one image.
    """
    try:
        with tarfile.open(file) as archive:
            return _read(archive)
    except (OSError, tarfile.TarError, KeyError, ValueError) as error:
        raise ReleaseError(f"{file} is not an OCI archive of one image ({error})") from None


def _read(archive: tarfile.TarFile) -> Content:
    (manifest,) = json.loads(_blob(archive, "index.json"))["manifests"]
    content = json.loads(_of_digest(archive, manifest["digest"]))
    packages: dict[str, str] = {}
    required: dict[str, list[str]] = {}
    libraries: dict[str, str] = {}
    for layer in content["layers"]:
        for path, data in _files(_of_digest(archive, layer["digest"])):
            if _METADATA.fullmatch(path):
                headers = HeaderParser().parsestr(data.decode())
                name = _normalized(headers["Name"])
                packages[name], required[name] = headers["Version"], headers.get_all("Requires-Dist", [])
            elif _LIBRARY.fullmatch(path):
                libraries[path] = hashlib.sha256(data).hexdigest()
    return Content(manifest["digest"], packages, left_out(required), libraries)


def left_out(required: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """What `pip check` would report in the image: packages that others require, and that are not there.

    Args:
        required: of each package that is there, its requirements as its metadata has them.
    """
    environment = {"extra": "", "sys_platform": "linux", "platform_system": "Linux", "implementation_name": "cpython"}
    environment |= {"python_version": of_the_image(), "python_full_version": f"{of_the_image()}.0"}
    missing: dict[str, list[str]] = {}
    for name, texts in sorted(required.items()):
        needed = (one for one in map(Requirement, texts) if one.marker is None or one.marker.evaluate(environment))
        if absent := sorted({_normalized(one.name) for one in needed} - required.keys()):
            missing[name] = absent
    return missing


def _normalized(name: str) -> str:
    return name.lower().replace("_", "-")


def _files(layer: bytes) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(layer)) as files:
        for member in files:
            if member.isfile():
                stream: Any = files.extractfile(member)
                yield member.name.removeprefix("./"), stream.read()


def _of_digest(archive: tarfile.TarFile, digest: str) -> bytes:
    """A blob, if it has the digest by which it is named.

    Raises:
        ValueError: it has another one.
    """
    algorithm, _, value = digest.partition(":")
    data = _blob(archive, f"blobs/{algorithm}/{value}")
    if algorithm != "sha256" or hashlib.sha256(data).hexdigest() != value:
        raise ValueError(f"the blob {digest} has another digest")
    return data


def _blob(archive: tarfile.TarFile, name: str) -> bytes:
    stream: Any = archive.extractfile(name)
    data: bytes = stream.read()
    return data
