"""What must never be shown of an object: cloud-init, passwords, keys and copies of them.

Audit lines hold the parts of objects that were changed; commands print whole objects. A secret is recognized by its
place, by its key's name in annotations and labels, and by its look wherever it stands. A secret that looks like
ordinary text, in a place where none belongs, cannot be distinguished from other text.

Walks are bounded in depth, so that no object ends them with a RecursionError, and on the request path in work: there a
part of an object that has more values or suspicious text than any audit line shows is cut.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf
from operator import is_
from typing import Any, Final

from webhook import names
from webhook.admission.credentials import HIDDEN, is_secret_flag, is_short_name, may_need_scrubbing, scrub

REDACTED: Final = "<redacted; --show-secrets shows it>"

# Kubernetes' own objects have a third of this.
MAX_DEPTH: Final = 64
TOO_DEEP: Final = f"<nested deeper than {MAX_DEPTH} levels>"
# Of one change in an audit line or warning, which holds a few thousand characters at most.
MAX_VALUES: Final = 10_000
MAX_SEARCHED: Final = 128 * 1024
TOO_MUCH: Final = f"<not shown: more than {MAX_VALUES} values>"

# Members that hold secrets wherever they stand: cloudInitNoCloud and cloudInitConfigDrive, and what other kinds call
# theirs; headers that importers send, which log in; the launch blob of an encrypted VM. References to Secrets stay:
# they name, they do not hold it.
_SECRET: Final = frozenset(
    (
        *("userData", "userDataBase64", "networkData", "networkDataBase64", "password", "token", "stringData"),
        *("caBundle", "extraHeaders", "session", "dhCert"),
    )
)
# In annotations and labels people write what they like: the whole manifest as it was applied, Ignition, passwords; and
# drivers of volumes give their options names of their own.
_FREE: Final = frozenset({"annotations", "labels", "options", "volumeAttributes"})
_TELLING: Final = re.compile(
    "kubectl.kubernetes.io/last-applied-configuration|passw|passphrase|secret|token|credential|private|user-?data|"
    "network-?data|cloud-?init|cloud-?config|ignition|sysprep|unattend|ssh|api-?key|access-?key",
    re.IGNORECASE,
)
# No credential has so few characters.
_SHORT_KEY: Final = 20
_PLAIN: Final = frozenset({int, float, bool, type(None)})
_PREFIX: Final = f"{names.DOMAIN}/"
# What a probe's header, or a variable of the environment, is called that logs in.
_NAMED: Final = re.compile("authori[sz]ation|cookie|token|key|secret|passw|pwd|credential", re.IGNORECASE)
# Of a probe's headers those whose values say nothing of who asks; any other may log in by a name of its own.
_HARMLESS_HEADER: Final = re.compile(
    "accept(-[a-z]+)?|host|user-agent|content-type|connection|cache-control", re.IGNORECASE
)

# What has one of these in its JSON, in lower case, takes more than a quick look: members that hold secrets, or in which
# people write what they like, and texts in which more than JSON's own quotes divides words.
_NEEDS_A_WALK: Final = (
    *(f'"{member.lower()}"' for member in sorted(_SECRET | _FREE | {"httpHeaders", "value"})),
    *(" ", "\\", "'", "`"),
)
# In characters of JSON: as long as no limit of a walk is reached.
_QUICK: Final = MAX_VALUES


def redact(value: Any) -> Any:
    """Plain JSON, with tuples or lists, and every secret replaced; itself where it holds none.

    Names and references stay readable.
    """
    return _Walk(inf, inf).value(value, 0)


def redact_at(path: Sequence[str], value: Any, *, bounded: bool = True) -> Any:
    """A value without credentials, by its path in an object.

    Args:
        path: JSON names from the object's root.
        value: plain JSON.
        bounded: do only as much work as an audit line can show the result of, and cut the rest.
    """
    walk = _Walk(MAX_VALUES, MAX_SEARCHED) if bounded else _Walk(inf, inf)
    if not value or isinstance(value, int | float):
        return value
    if not _SECRET.isdisjoint(path):
        return REDACTED
    key, parent = (path[-1] if path else ""), (path[-2] if len(path) > 1 else "")
    # The annotations of kubevirt-webhook hold no secret and are the usual change: the search would cost more than the
    # rest.
    if parent in _FREE and not key.startswith(_PREFIX) and _TELLING.search(key):
        return REDACTED
    if isinstance(value, str):
        return walk.text(value)
    if key in _FREE and isinstance(value, dict):
        return walk.free(value, 0)
    return walk.value(value, 0, headers=key == "httpHeaders")


def is_harmless(json: str) -> bool:
    """Whether a quick look at plain JSON, encoded without spaces, shows that `redact` would leave it as it is."""
    if len(json) > _QUICK or not json.isascii() or json.count("{") + json.count("[") > MAX_DEPTH:
        return False
    lower = json.lower()
    # A loop, since a generator takes a call for each mark.
    for mark in _NEEDS_A_WALK:
        if mark in lower:
            return False
    return not may_need_scrubbing(json)


def is_plain_place(path: Sequence[str]) -> bool:
    """Whether a value's path in an object says nothing of what it holds, so that the value alone decides."""
    return _SECRET.isdisjoint(path) and _FREE.isdisjoint(path[-2:]) and "httpHeaders" not in path


class _Walk:
    """One walk over a value.

    Args:
        values: how many values may be visited.
        characters: how much suspicious text may be searched; any more of it is hidden whole.
    """

    def __init__(self, values: float, characters: float) -> None:
        self._values = values
        self._characters = characters
        # Groups of nodes lack the same: each text is searched once, however often it stands there. None: no secret in
        # it, so that an equal text elsewhere stays itself, which shows the callers that nothing was hidden.
        self._searched: dict[str, str | None] = {}

    def value(self, value: Any, depth: int, *, headers: bool = False) -> Any:
        """The value without secrets; itself where there are none."""
        if isinstance(value, str):
            return self.text(value)
        if not isinstance(value, dict | list | tuple) or not value:
            return value
        self._values -= len(value)
        if self._values < 0:
            return TOO_MUCH
        if depth >= MAX_DEPTH:
            return TOO_DEEP
        if isinstance(value, dict):
            return self._redact_dict(value, depth, headers)
        return self._redact_list(value, depth, headers)

    def free(self, entries: dict[str, Any], depth: int) -> Any:
        """Entries whose keys people choose."""
        self._values -= len(entries)
        if self._values < 0:
            return TOO_MUCH
        shown = {}
        for key, item in entries.items():
            # An object that is not as its kind has it may have anything as a key.
            shown_key = key if len(key) < _SHORT_KEY else self.text(key)
            shown[shown_key] = REDACTED if item and _TELLING.search(key) else self.value(item, depth + 1)
        is_same = shown.keys() == entries.keys() and all(map(is_, shown.values(), entries.values()))
        return entries if is_same else shown

    def text(self, text: str) -> str:
        """A text without what looks like a secret; itself where there is none."""
        if text not in self._searched:
            self._characters -= len(text)
            shown = scrub(text) if self._characters >= 0 else REDACTED
            self._searched[text] = None if shown == text else REDACTED if shown == HIDDEN else shown
        replacement = self._searched[text]
        return text if replacement is None else replacement

    def _redact_list(self, items: Sequence[Any], depth: int, headers: bool) -> Sequence[Any]:
        shown, flag = [], False
        is_same = True
        for item in items:
            shown_item = REDACTED if flag and item else self.value(item, depth + 1, headers=headers)
            is_same = is_same and shown_item is item
            shown.append(shown_item)
            # A container's arguments: --password, and then what it is.
            flag = isinstance(item, str) and is_secret_flag(item)
        return items if is_same else shown

    def _redact_dict(self, entries: dict[str, Any], depth: int, header: bool) -> dict[str, Any]:
        secret = entries.get("kind") == "Secret"
        value_too = "value" in entries and _logs_in(entries, header)
        shown: dict[str, Any] = {}
        is_same = True
        for key, item in entries.items():
            shown_key = key
            if item and (key in _SECRET or (secret and key == "data") or (value_too and key == "value")):
                shown_item: Any = REDACTED
            elif key in _FREE and isinstance(item, dict):
                shown_item = self.free(item, depth + 1) if depth < MAX_DEPTH else TOO_DEEP
            else:
                # Most keys are short, and many values are numbers, names, or nothing: no call for those.
                shown_key = key if len(key) < _SHORT_KEY else self.text(key)
                is_plain = not item or type(item) in _PLAIN or (type(item) is str and is_short_name(item))
                shown_item = item if is_plain else self.value(item, depth + 1, headers=key == "httpHeaders")
            is_same = is_same and shown_item is item and shown_key is key
            shown[shown_key] = shown_item
        return entries if is_same else shown


def _logs_in(entries: dict[str, Any], header: bool) -> bool:
    """Whether it is a probe's HTTP header, or an environment variable, that logs in."""
    name = entries.get("name")
    if not isinstance(name, str) or "value" not in entries:
        return False
    return _NAMED.search(name) is not None or (header and not _HARMLESS_HEADER.fullmatch(name))
