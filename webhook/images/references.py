"""References to container images, as pods and the status of nodes write them.

The grammar is that of the module ``github.com/distribution/reference``, with the defaults that Docker, containerd and
CRI-O share: a name without a registry is one of ``docker.io``, and a reference without tag and digest means the tag
``latest``.
"""

from __future__ import annotations

import re
from typing import Final

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
        repository: the path of the repository in the registry.
        tag: the tag; empty where there is a digest, which then decides.
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
    registry, path = _split(name)
    if len(name) > _MAX_NAME or not _is_domain(registry) or not _is_path(path):
        return None
    if digest:
        return ImageReference(registry.lower(), path, "", digest)
    return ImageReference(registry.lower(), path, tag or "latest")


def _split(name: str) -> tuple[str, str]:
    """Registry and repository of a name."""
    first, slash, rest = name.partition("/")
    if not slash or not (first == "localhost" or "." in first or ":" in first or first != first.lower()):
        first, rest = DOCKER_HUB, name
    if first == "index.docker.io":
        first = DOCKER_HUB
    if first == DOCKER_HUB and "/" not in rest:
        rest = f"library/{rest}"
    return first, rest
