"""The settings in force, and what happens when they change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from webhook.errors import InputError
from webhook.install.registration import configurations
from webhook.server.runtime.events import ServerEvent
from webhook.settings.file import SettingsFile, default_settings
from webhook.settings.snapshot import Settings

_RESTART_SECONDS: Final = 10.0


class SettingsFollower:
    """The settings in force, and what happens when they change.

    Args:
        path: the settings file; None: the default settings, which do not change.
        log: the logger for events.

    Attributes:
        file: the file as it is followed; None without a file.
        reloads: reloads by result, ``accepted`` or ``rejected``.
        subscribers: functions that get each new snapshot.
    """

    def __init__(self, path: Path | None, log: Any) -> None:
        self._log: Final = log
        self._fixed: Final = None if path else default_settings()
        self.file: Final = (
            SettingsFile(
                path,
                on_rejected=self._on_rejected,
                on_reloaded=self._log_reload,
                on_restart_needed=self._restart_needed,
            )
            if path
            else None
        )
        self.reloads = {"accepted": 0, "rejected": 0}
        self.subscribers: list[Callable[[Settings], None]] = []

    def current(self) -> Settings:
        """The snapshot in force."""
        if self.file:
            return self.file.current
        assert self._fixed
        return self._fixed

    def _on_rejected(self, error: InputError) -> None:
        self.reloads["rejected"] += 1
        self._log.error(ServerEvent.SETTINGS_INVALID, mistakes=str(error).splitlines())

    async def follow(self) -> None:
        """Follow the file until cancelled: a bug must not leave outdated settings without notice."""
        while self.file:
            try:
                await self.file.watch()
            except Exception as error:  # noqa: BLE001 - logged, and begun again
                self._log.error("internal error while following the settings file; retrying", exc_info=error)
                await asyncio.sleep(_RESTART_SECONDS)

    def _log_reload(self, old: Settings, new: Settings) -> None:
        self.reloads["accepted"] += 1
        self._log.info(ServerEvent.SETTINGS_RELOADED, digest=new.digest[:12])
        if configurations(old) != configurations(new):
            self._log.warning(
                "the settings change the webhook configurations; run `kubevirt-webhook install`, or register again"
            )
        for subscriber in self.subscribers:
            subscriber(new)

    def _restart_needed(self, keys: list[str]) -> None:
        self._log.warning(ServerEvent.RESTART_NEEDED, keys=keys)
