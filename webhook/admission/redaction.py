"""What must never be shown of an object: cloud-init, passwords, keys and copies of them.

Audit lines need none of this, they hold no objects. It is for the commands that print objects.
"""

from __future__ import annotations

from typing import Any, Final

REDACTED: Final = "<redacted; --show-secrets shows it>"

# Members that hold secrets wherever they stand: cloudInitNoCloud and cloudInitConfigDrive, and what other kinds call
# theirs. References to Secrets stay: they name, they don't tell.
_SECRET: Final = frozenset(
    {"userData", "userDataBase64", "networkData", "networkDataBase64", "password", "token", "stringData", "caBundle"}
)
# The whole manifest as it was applied, cloud-init included.
_COPIES: Final = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})


def redacted(value: Any) -> Any:
    """A copy of plain JSON with every secret replaced; names, kinds and references stay readable."""
    if isinstance(value, list):
        return [redacted(item) for item in value]
    if not isinstance(value, dict):
        return value
    secret = value.get("kind") == "Secret"
    return {
        key: REDACTED if item and (key in _SECRET or key in _COPIES or (secret and key == "data")) else redacted(item)
        for key, item in value.items()
    }
