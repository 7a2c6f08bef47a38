"""What must never be shown of an object: cloud-init, passwords, keys and copies of them.

Audit lines hold the parts of objects that were changed; commands print whole objects. What is a secret is told by its
place, by its key's name in annotations and labels, and by its look wherever it stands: a secret that looks like
nothing, in a place where none belongs, can't be told from other text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from webhook import names

REDACTED: Final = "<redacted; --show-secrets shows it>"

# Members that hold secrets wherever they stand: cloudInitNoCloud and cloudInitConfigDrive, and what other kinds call
# theirs; headers that importers send, which log in. References to Secrets stay: they name, they don't tell.
_SECRET: Final = frozenset(
    {
        "userData",
        "userDataBase64",
        "networkData",
        "networkDataBase64",
        "password",
        "token",
        "stringData",
        "caBundle",
        "extraHeaders",
    }
)
# In annotations and labels people write what they like: the whole manifest as it was applied, Ignition, passwords.
_FREE: Final = frozenset({"annotations", "labels"})
_TELLING: Final = re.compile(
    "kubectl.kubernetes.io/last-applied-configuration|passw|passphrase|secret|token|credential|private|user-?data|"
    "network-?data|cloud-?init|cloud-?config|ignition|sysprep|unattend|ssh|api-?key",
    re.IGNORECASE,
)
_OURS: Final = f"{names.DOMAIN}/"
_HEADER: Final = re.compile("authorization|cookie|token|key|secret|passw", re.IGNORECASE)
_LOOKS_SECRET: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|\b(?:ssh-[a-z0-9]{1,20}|ecdsa-sha2-[a-z0-9]{1,20}|sk-[a-z0-9@.-]{1,60}) AAAA"
    r"|\$(?:1|2[aby]|5|6|y|argon2id?)\$[^\s$]+\$"
    r"|#cloud-config\b|#cloud-boothook\b|\bssh_authorized_keys\b|\bchpasswd\b"
    r"|<(?:\w+:)?(?:AdministratorPassword|UserAccounts|AutoLogon)\b"
    r"|\"ignition\"\s*:"
    r"|\b[a-z][a-z0-9+.-]{0,20}://[^\s/@:]*:[^\s/@]+@",
    re.IGNORECASE,
)


def redacted(value: Any) -> Any:
    """A copy of plain JSON with every secret replaced; names, kinds and references stay readable."""
    if isinstance(value, list):
        return [redacted(item) for item in value]
    if isinstance(value, str):
        return REDACTED if _LOOKS_SECRET.search(value) else value
    if not isinstance(value, dict):
        return value
    secret, header = value.get("kind") == "Secret", _is_header(value)
    return {
        key: REDACTED
        if item and (key in _SECRET or (secret and key == "data") or (header and key == "value"))
        else _free(item)
        if key in _FREE and isinstance(item, dict)
        else redacted(item)
        for key, item in value.items()
    }


def redacted_at(path: Sequence[str], value: Any) -> Any:
    """The same for a value that stands at a path in an object; the value itself where it holds no secret.

    Args:
        path: JSON names from the object's root.
    """
    if isinstance(value, str):
        key = path[-1]
        # What we write ourselves is no secret, and the usual change: the search would cost more than the rest of it.
        told = len(path) > 1 and path[-2] in _FREE and not key.startswith(_OURS) and _TELLING.search(key)
        hidden = key in _SECRET or told or (not _is_name(value) and _LOOKS_SECRET.search(value))
        return REDACTED if value and hidden else value
    if isinstance(value, dict | list):
        if path[-1] in _SECRET:
            return REDACTED if value else value
        shown = _free(value) if path[-1] in _FREE and isinstance(value, dict) else redacted(value)
        return value if shown == value else shown
    return value


def _is_name(text: str) -> bool:
    """Whether it is a name as Kubernetes has them: then it looks like no secret."""
    return len(text) <= 253 and text.replace("-", "").replace(".", "").isalnum()


def _free(entries: dict[str, Any]) -> dict[str, Any]:
    return {key: REDACTED if item and _TELLING.search(key) else redacted(item) for key, item in entries.items()}


def _is_header(value: dict[str, Any]) -> bool:
    """Whether it is a probe's HTTP header, or an environment variable, that logs in."""
    name = value.get("name")
    return isinstance(name, str) and "value" in value and _HEADER.search(name) is not None
