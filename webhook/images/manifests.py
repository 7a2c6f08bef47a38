"""References to container images, and the manifests of images.

The grammar of references is that of the module ``github.com/distribution/reference``, with the defaults that Docker,
containerd and CRI-O share: a name without a registry is one of ``docker.io``, and one without tag and digest has the
tag ``latest``.

A manifest says what layers an image has, or what images an index has, in the formats of the OCI image specification and
of Docker's schema 2. The user who pushed the image wrote it, so everything in it is bounded.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, TypeAlias

import msgspec

DOCKER_HUB: Final = "docker.io"
# The longest name is 255 characters, the longest tag 128, and a digest 71.
MAX_CHARACTERS: Final = 512
_MAX_NAME: Final = 255
_LABEL: Final = "[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?"
_DOMAIN: Final = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{{1,5}})?"
_COMPONENT: Final = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_PATH: Final = rf"{_COMPONENT}(?:/{_COMPONENT})*"
_TAG: Final = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
DIGEST: Final = "sha256:[0-9a-f]{64}"

_is_domain: Final = re.compile(_DOMAIN).fullmatch
_is_path: Final = re.compile(_PATH).fullmatch
_is_tag: Final = re.compile(_TAG).fullmatch
is_digest: Final = re.compile(DIGEST).fullmatch


class ImageReference(msgspec.Struct, frozen=True):
    """A reference to an image.

    Attributes:
        registry: ``HOST`` or ``HOST:PORT`` in lower case; ``docker.io`` for Docker Hub.
        repository: its path in the registry.
        tag: empty where there is a digest, which then decides.
        digest: ``sha256:`` and 64 hexadecimal digits; empty where there is none.
    """

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def version(self) -> str:
        """The digest, or else the tag: the last segment of the URL of the manifest."""
        return self.digest or self.tag

    def __str__(self) -> str:
        name = f"{self.registry}/{self.repository}"
        return f"{name}@{self.digest}" if self.digest else f"{name}:{self.tag}"


def parse_reference(text: str) -> ImageReference | None:
    """The reference in a text; None where the text is not valid, or has a digest of another algorithm than SHA-256."""
    if len(text) > MAX_CHARACTERS:
        return None
    name, at, digest = text.partition("@")
    if at and not is_digest(digest):
        return None
    tag = ""
    # The colon of a port has a slash behind it.
    if ":" in name.rpartition("/")[2]:
        name, _, tag = name.rpartition(":")
        if not _is_tag(tag):
            return None
    registry, slash, path = name.partition("/")
    is_registry = registry == "localhost" or "." in registry or ":" in registry or registry != registry.lower()
    if not slash or not is_registry:
        registry, path = DOCKER_HUB, name
    if registry == "index.docker.io":
        registry = DOCKER_HUB
    if registry == DOCKER_HUB and "/" not in path:
        path = f"library/{path}"
    if len(name) > _MAX_NAME or not _is_domain(registry) or not _is_path(path):
        return None
    return ImageReference(registry.lower(), path, "" if digest else tag or "latest", digest)


# What the distribution specification asks registries to accept.
MAX_BYTES: Final = 4 * 1024 * 1024
MAX_LAYERS: Final = 512
MAX_IMAGES: Final = 256
MAX_LAYER_BYTES: Final = 2**50

INDEX_TYPES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFEST_TYPES: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)


class ManifestError(Exception):
    """Bytes that are not a manifest; the text is the cause as a clause, without a quotation of the manifest."""


class Layer(msgspec.Struct, frozen=True, gc=False):
    """One layer of an image: its digest, and its compressed size in bytes, which is what a node pulls."""

    digest: str
    size: int


# The layers of an image for one platform, each once.
Manifest: TypeAlias = tuple[Layer, ...]
# The digests of an image's manifests by platform, ``OS/ARCHITECTURE``; of several variants the first.
Index: TypeAlias = dict[str, str]


class _Platform(msgspec.Struct, gc=False):
    architecture: str = ""
    os: str = ""


class _Descriptor(msgspec.Struct, gc=False):
    digest: str
    size: int
    platform: _Platform | None = None


class _Document(msgspec.Struct, rename="camel", gc=False):
    schema_version: int = 0
    layers: list[_Descriptor] | None = None
    manifests: list[_Descriptor] | None = None


_decode: Final = msgspec.json.Decoder(_Document).decode


def digest_of(body: bytes) -> str:
    """The digest of bytes, as references write it."""
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def parse_manifest(body: bytes) -> Manifest | Index:
    """The manifest or index in bytes; a `ManifestError` where they are neither."""
    if len(body) > MAX_BYTES:
        raise ManifestError(f"it is larger than {MAX_BYTES // 1024 // 1024} MiB")
    try:
        document = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ManifestError("it is not a manifest of the OCI or of Docker's schema 2") from None
    if document.schema_version != 2 or (document.layers is None) == (document.manifests is None):
        # Both at once would be an image to some programs and an index to others.
        raise ManifestError("it is neither an image manifest nor an index of schema version 2")
    return _manifest(document.layers or []) if document.manifests is None else _index(document.manifests)


def _manifest(descriptors: list[_Descriptor]) -> Manifest:
    if len(descriptors) > MAX_LAYERS:
        raise ManifestError(f"it has more than {MAX_LAYERS} layers")
    sizes: dict[str, int] = {}
    for descriptor in descriptors:
        if not is_digest(descriptor.digest) or not 0 <= descriptor.size <= MAX_LAYER_BYTES:
            raise ManifestError("a layer has an invalid digest or size")
        sizes.setdefault(descriptor.digest, descriptor.size)
    return tuple(Layer(digest, size) for digest, size in sizes.items())


def _index(descriptors: list[_Descriptor]) -> Index:
    if len(descriptors) > MAX_IMAGES:
        raise ManifestError(f"it has more than {MAX_IMAGES} images")
    images: dict[str, str] = {}
    for descriptor in descriptors:
        if not is_digest(descriptor.digest):
            raise ManifestError("an image has an invalid digest")
        platform = descriptor.platform
        # Attestations stand beside the images, with the platform unknown/unknown.
        if platform and platform.os and platform.architecture and platform.os != "unknown":
            images.setdefault(f"{platform.os}/{platform.architecture}"[:128], descriptor.digest)
    return images
