"""Manifests of images, as registries serve them: what layers an image has, and what images an index has.

The formats are those of the OCI image specification and Docker's schema 2. A manifest is written by the user who pushed
the image, so everything in it is bounded, and its bytes are checked against their digest before they are parsed.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from webhook.images.references import is_digest

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
    """Bytes that are not a manifest.

    Args:
        why: the cause as a clause, without a quotation of the manifest.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why: Final = why


class Layer(msgspec.Struct, frozen=True, gc=False):
    """One layer of an image.

    Attributes:
        digest: the digest of the compressed layer.
        size: its compressed size in bytes, which is what a node pulls.
    """

    digest: str
    size: int


class Manifest(msgspec.Struct, frozen=True, gc=False):
    """An image for one platform.

    Attributes:
        layers: each layer once.
    """

    layers: tuple[Layer, ...]


class Index(msgspec.Struct, frozen=True, gc=False):
    """An image for several platforms.

    Attributes:
        images: the digest of the manifest by platform, ``OS/ARCHITECTURE``; of several variants the first.
    """

    images: dict[str, str]


class _Platform(msgspec.Struct, gc=False):
    architecture: str = ""
    os: str = ""


class _Descriptor(msgspec.Struct, gc=False):
    digest: str
    size: int
    platform: _Platform | None = None


class _Document(msgspec.Struct, rename="camel", gc=False):
    schema_version: int = 0
    media_type: str | None = None
    layers: list[_Descriptor] | None = None
    manifests: list[_Descriptor] | None = None


_decode: Final = msgspec.json.Decoder(_Document).decode


def digest_of(body: bytes) -> str:
    """The digest of bytes, as references write it."""
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def parse_manifest(body: bytes) -> Manifest | Index:
    """The manifest or index in bytes.

    Raises:
        ManifestError: the bytes are neither.
    """
    if len(body) > MAX_BYTES:
        raise ManifestError(f"it is larger than {MAX_BYTES // 1024 // 1024} MiB")
    try:
        document = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ManifestError("it is not a manifest of the OCI or of Docker's schema 2") from None
    if document.schema_version != 2 or (document.layers is None) == (document.manifests is None):
        # Both at once would be an image to some programs and an index to others.
        raise ManifestError("it is neither an image manifest nor an index of schema version 2")
    if document.manifests is not None:
        return _index(document.manifests)
    return _manifest(document.layers or [])


def _manifest(descriptors: list[_Descriptor]) -> Manifest:
    if len(descriptors) > MAX_LAYERS:
        raise ManifestError(f"it has more than {MAX_LAYERS} layers")
    sizes: dict[str, int] = {}
    for descriptor in descriptors:
        if not is_digest(descriptor.digest) or not 0 <= descriptor.size <= MAX_LAYER_BYTES:
            raise ManifestError("a layer has an invalid digest or size")
        sizes.setdefault(descriptor.digest, descriptor.size)
    return Manifest(tuple(Layer(digest, size) for digest, size in sizes.items()))


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
    return Index(images)
