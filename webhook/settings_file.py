"""The settings file: read as a whole or not at all; all errors are reported at once, with their lines.

`SettingsFile` follows changes of the file.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from certs import files
from webhook.errors import InputError, InputErrors
from webhook.policies.headroom.settings import HeadroomSettings
from webhook.policies.registry import POLICIES
from webhook.settings.model import Settings, with_policies
from webhook.settings.validation import validate

# The settings of all policies.
MODEL: Final = with_policies({policy.name: policy.settings for policy in POLICIES})
# The size limit of a ConfigMap.
MAX_BYTES: Final = 1024 * 1024
POLL_SECONDS: Final = 2.0

# The sections whose changes take effect at the next start: those of several keys are reported by key.
_AT_START: Final = ("server", "tls", "admin")
_WHOLE_AT_START: Final = ("audit", "layers", "traces")


def load(path: str | os.PathLike[str] | None) -> Settings:
    """The settings of a file; without one, the defaults.

    Raises:
        InputErrors: all errors in the file, or that it cannot be read.
    """
    return default_settings() if path is None else parse(read_bytes(path), os.fspath(path))


def parse(data: bytes, where: str) -> Settings:
    """Settings from a file's content. A file that sets nothing says so with ``{}``.

    Args:
        data: the content, UTF-8.
        where: the file's name, for messages.

    Raises:
        InputErrors: all errors in the content.
    """
    return validate(data, where, MODEL).completed(hashlib.sha256(data).hexdigest())


def default_settings() -> Settings:
    """The settings without a file."""
    return parse(b"{}", "the defaults").model_copy(update={"digest": "default"})


def effective(path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """All settings of a file with defaults, as plain JSON; `InputErrors`: its mistakes, or that it cannot be read."""
    settings = validate(b"{}" if path is None else read_bytes(path), os.fspath(path or ""), MODEL)
    return settings.model_dump(mode="json", by_alias=True)


class SettingsFile:
    """Follows a settings file.

    A change takes effect once two consecutive polls have read it, so a partial write, or a file that is missing while
    the kubelet swaps a mounted ConfigMap, has no effect. A change of what is read at the start requires a restart.

    Args:
        path: the path of the file; symbolic links are resolved at each poll.
        on_rejected: receives the errors, once for each content; the previous state is kept.
        on_reloaded: receives the old and the new state.
        on_restart_needed: receives the keys (``server.listen``) that changed since the start, once for each set.

    Attributes:
        current: the last state that was complete and valid.
        problem: the error in the present file; None if it is in effect.

    Raises:
        InputErrors: all errors in the file, or that it cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        on_rejected: Callable[[InputError], None] = lambda _: None,
        on_reloaded: Callable[[Settings, Settings], None] = lambda _old, _new: None,
        on_restart_needed: Callable[[list[str]], None] = lambda _: None,
    ) -> None:
        self._path = os.fspath(path)
        self._on_rejected = on_rejected
        self._on_reloaded = on_reloaded
        self._on_restart_needed = on_restart_needed
        self._followed: Final = files.Followed(Path(path), most=MAX_BYTES)
        with _reading(self._path):
            (content,) = self._followed.read()
        self.current = parse(content, self._path)
        self._at_start = self.current
        self.problem: InputError | None = None
        self._restart_needed: list[str] = []

    async def watch(self) -> None:
        """Poll the file until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.poll()

    async def poll(self) -> None:
        """Read the file once; valid content takes effect once two reads in a row have found it."""
        try:
            with _reading(self._path):
                changed = await asyncio.to_thread(self._followed.look)
            if changed is None:
                return
            self.problem = None
            # It is the same where a mistake was taken back.
            if hashlib.sha256(changed[0]).hexdigest() != self.current.digest:
                # A file that is full of mistakes takes seconds.
                self._swap(await asyncio.to_thread(parse, changed[0], self._path))
        except InputError as mistake:
            self.problem = mistake
            self._on_rejected(mistake)

    def _swap(self, new: Settings) -> None:
        old, start = self.current, self._at_start
        changed = list(_changes_at_start(start, new))
        kept = {name: getattr(start, name) for name in (*_AT_START, *_WHOLE_AT_START)}
        self.current = new.model_copy(update=kept)
        self._on_reloaded(old, self.current)
        if changed and changed != self._restart_needed:
            self._on_restart_needed(changed)
        self._restart_needed = changed


def _changes_at_start(old: Settings, new: Settings) -> Iterator[str]:
    """The keys of the file whose changes take effect at the next start."""
    for section in _AT_START:
        before, after = getattr(old, section), getattr(new, section)
        for name, field in type(before).model_fields.items():
            if getattr(before, name) != getattr(after, name):
                yield f"{section}.{field.alias}"
    yield from (name for name in _WHOLE_AT_START if getattr(old, name) != getattr(new, name))
    # Switched off, the policy decides nothing at once, although the watch goes on; switched on, there is none yet.
    if new.of(HeadroomSettings).enabled and not old.of(HeadroomSettings).enabled:
        yield "headroom.enabled"


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a settings file; `InputErrors` where it cannot be read, or is larger than `MAX_BYTES`."""
    with _reading(os.fspath(path)):
        return files.read(path, MAX_BYTES)


@contextmanager
def _reading(where: str) -> Iterator[None]:
    """Say that a settings file cannot be read as all its mistakes are said."""
    try:
        yield
    except files.FileError as error:
        fix = "a settings file is not larger" if isinstance(error, files.LargeFileError) else error.fix
        raise InputErrors([InputError(error.what, where, fix)]) from error.__cause__
