"""What a request asks of the page: its parameters, checked."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import parse_qsl, urlencode

from webhook.errors import InputError, quote

MAX_QUERY: Final = 4096
_MAX_PARAMETERS: Final = 32
_MAX_NUMBER: Final = 10**12
# Pages refresh themselves only for who asks for it, and not more often.
REFRESH_SECONDS: Final = (10, 30, 60)


class PageQuery:
    """The parameters of one request; empty ones count as absent, since forms send those.

    Args:
        query: the query string.
        known: the names of the parameters that the path has.

    Raises:
        InputError: it is too long, or has a parameter that the path does not have.
    """

    def __init__(self, query: str, known: Collection[str]) -> None:
        if len(query) > MAX_QUERY:
            raise InputError(f"has {len(query)} characters, of which {MAX_QUERY} are allowed", "the query")
        try:
            pairs = parse_qsl(query, keep_blank_values=False, max_num_fields=_MAX_PARAMETERS)
        except ValueError:
            raise InputError(f"has more than {_MAX_PARAMETERS} parameters", "the query", "ask for less") from None
        for name, _ in pairs:
            if name not in known:
                fix = f"use {', '.join(sorted(known))}" if known else "leave it out"
                raise InputError(f"{quote(name)} is not a parameter of this page", "the query", fix)
        self._pairs: Final = [(name, value.strip()) for name, value in pairs if value.strip()]

    def text(self, name: str) -> str:
        """The value of a parameter; empty: it is absent. Of several the last one counts."""
        return dict(self._pairs).get(name, "")

    def texts(self, name: str) -> list[str]:
        """All values of a parameter, which may hold several, separated by commas."""
        return [part.strip() for key, value in self._pairs if key == name for part in value.split(",") if part.strip()]

    def one_of(self, name: str, choices: Collection[str]) -> str:
        """The value of a parameter that has a closed set of values; empty: it is absent.

        Raises:
            InputError: it has another value.
        """
        value = self.text(name)
        if value and value not in choices:
            raise InputError(f"{quote(value)} is not a valid value", name, f"use {', '.join(choices)}")
        return value

    def number(self, name: str, default: int = 0) -> int:
        """The value of a parameter that is a number.

        Raises:
            InputError: it is not one.
        """
        value = self.text(name)
        if not value:
            return default
        if not (value.isascii() and value.isdecimal() and len(value) <= 12 and int(value) < _MAX_NUMBER):
            raise InputError(f"{quote(value)} is not a valid number", name, "use digits")
        return int(value)

    def link(self, path: str, **changed: str | int) -> str:
        """The same page with other parameters: those that are empty or 0 are left out.

        Args:
            path: the path of the page.
            **changed: parameters that get another value.
        """
        kept = [(name, value) for name, value in self._pairs if name not in changed]
        pairs = kept + [(name, str(value)) for name, value in changed.items() if value]
        return f"{path}?{urlencode(pairs)}" if pairs else path
