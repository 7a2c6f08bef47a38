"""URL paths of the Kubernetes API: the one place where text becomes part of a URL."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from webhook.errors import InputError
from webhook.errors import quote as quote_text
from webhook.text import SURROGATE

_LONGEST_NAME: Final = 253


def is_segment(name: str) -> bool:
    """Whether an object can have this name at all (``path.IsValidPathSegmentName`` of k8s.io/apimachinery).

    Names come out of other people's objects: ``../secrets/x`` must not reach the path of a URL. Escaping doesn't help
    there, since the API server unescapes a path before it looks at its parts.
    """
    is_text = 0 < len(name) <= _LONGEST_NAME and not SURROGATE.search(name)
    return is_text and name not in (".", "..") and "/" not in name and "%" not in name


def group_path(group: str) -> str:
    """The URL path at which an API group says which versions it has.

    Raises:
        InputError: the text can't be part of a URL.
    """
    return f"/apis/{_segment(group)}"


def version_path(api_version: str) -> str:
    """The URL path of an API version: ``/api/v1``, ``/apis/kubevirt.io/v1``.

    Raises:
        InputError: the text can't be part of a URL.
    """
    root = "/apis" if "/" in api_version else "/api"
    return root + "".join(f"/{_segment(part)}" for part in api_version.split("/", 1))


def object_path(api_version: str, plural: str, namespace: str = "", name: str = "") -> str:
    """The URL path of a collection (of all namespaces where none is given), or of one object.

    Args:
        api_version: as in manifests, ``GROUP/VERSION`` or ``v1``.
        plural: the resource, such as ``virtualmachines``.
        namespace: as it is, not escaped; empty for cluster-scoped resources.
        name: as it is, not escaped; empty for the collection.

    Raises:
        InputError: one of them can't be part of a URL (`is_segment`); client-go sends no such request, either.
    """
    inside = f"/namespaces/{_segment(namespace)}" if namespace else ""
    collection = f"{version_path(api_version)}{inside}/{_segment(plural)}"
    return f"{collection}/{_segment(name)}" if name else collection


def _segment(text: str) -> str:
    if not is_segment(text):
        raise InputError(f"{quote_text(text)} can't be part of a URL of the API server", fix="correct the name")
    # A colon has no meaning of its own inside a path; in one it stands in "https:SERVICE:PORT".
    return quote(text, safe=":")
