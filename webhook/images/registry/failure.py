"""Why there is no manifest."""

from __future__ import annotations

from typing import Final, Literal

Cause = Literal["absent", "denied", "limited", "unavailable", "invalid"]

# How long until the same is requested again.
RETRY_SECONDS: Final[dict[Cause, float]] = {
    "unavailable": 30.0,
    "absent": 300.0,
    "denied": 300.0,
    "limited": 900.0,
    "invalid": 3600.0,
}


class RegistryError(Exception):
    """There is no manifest.

    Args:
        cause: ``absent`` (404), ``denied`` (401, 403, or a rule of this client), ``limited`` (429), ``unavailable`` (no
            answer in time, or 5xx) or ``invalid`` (an answer that is none).
        why: the cause as a clause; it quotes nothing that the registry sent.
    """

    def __init__(self, cause: Cause, why: str) -> None:
        super().__init__(why)
        self.cause: Final[Cause] = cause
        self.why: Final = why
