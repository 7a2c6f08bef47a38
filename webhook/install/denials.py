"""What to do where the API server denies a request to change an installation."""

from __future__ import annotations

from webhook.k8s.client.status import ApiStatus


def advise(status: int, error: ApiStatus, action: str) -> str:
    """What to do about a denial, as an instruction; empty: the answer does not show what would help.

    Args:
        status: the HTTP status.
        error: the answer.
        action: what an account needs the permission for, for example ``get and patch it``.
    """
    if error.is_of_admission:
        return "change what denies it, or let it through there, and run the command again"
    return f"use an account that is permitted to {action}" if status in (401, 403) else ""
