"""Files that come with the program: in the wheel beside its modules, in a checkout at its root."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from webhook.errors import InputError

_PACKAGE: Final = Path(__file__).resolve().parent.parent


def directory(name: Literal["examples", "manifests"]) -> Path:
    """A directory of the distribution; an `InputError` where the installation lacks it."""
    for candidate in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise InputError(f"the installation lacks the directory {name}", str(_PACKAGE), "reinstall kubevirt-webhook")
