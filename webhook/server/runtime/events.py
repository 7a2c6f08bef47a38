"""The events of a running server in its log; tests and dashboards look for them."""

from __future__ import annotations

from typing import Final


class ServerEvent:
    """The events in the log, as they are written."""

    FILES_READ: Final = "cluster objects read from files"
    API_SERVER_READ: Final = "cluster objects read from the API server"
    ETCD_RESTORED: Final = "etcd restored from an older copy; reading everything again"
    SETTINGS_INVALID: Final = "invalid settings; keeping the previous settings"
    SETTINGS_RELOADED: Final = "settings reloaded"
    RESTART_NEEDED: Final = "changed settings take effect after a restart"
    NOT_DELETED: Final = "configuration not deleted"
    NOT_CALLABLE: Final = "the API server cannot call the server by every configuration"
    CALLABLE_AGAIN: Final = "the API server can call the server again"
    # After the name of what has changed on disk.
    CHANGE_INVALID: Final = "is invalid; keeping the previous one"
