"""The command line of `serve`, and the settings that it names: those in force, and what happens when they change."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from webhook.cluster.selection import require_single_source
from webhook.errors import InputError, quote
from webhook.install.registration import check_url, configurations
from webhook.k8s.client.identity import Kubeconfig
from webhook.settings.fields import is_address, is_loopback
from webhook.settings.model import Settings, TlsMode
from webhook.settings_file import SettingsFile, default_settings


@dataclass(frozen=True)
class Options:
    """The command line of `serve`."""

    cluster_from: Path | None = None
    kubeconfig: Kubeconfig | None = None
    config_file: Path | None = None
    listen: str | None = None
    ops_listen: str | None = None
    admin_listen: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_mode: TlsMode | None = None
    client_ca: Path | None = None
    client_names: tuple[str, ...] = ()
    url: str | None = None
    register: bool = False
    register_as: str = "local"

    def check(self) -> None:
        """Check the combination of options; an `InputError` where they exclude each other, or one is not valid."""
        require_single_source(self.cluster_from, self.kubeconfig)
        listeners = {"--listen": self.listen, "--ops-listen": self.ops_listen, "--admin-listen": self.admin_listen}
        for option, address in listeners.items():
            if address and not is_address(address):
                raise InputError(f"{quote(address)} is not a valid HOST:PORT", option, "use for example 127.0.0.1:8443")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise InputError("the options require each other", "--tls-cert, --tls-key", "use both or neither")
        if self.tls_cert and self.tls_mode not in (None, "mounted"):
            raise InputError(f"{self.tls_mode} excludes --tls-cert", "--tls", "use --tls mounted")
        if bool(self.client_ca) != bool(self.client_names):
            # A cluster's CA signs certificates of many clients, not only of the API server.
            raise InputError("the options require each other", "--client-ca, --client-name", "use both or neither")
        if "" in self.client_names:
            # So is the name of a client without a certificate.
            raise InputError("the name is empty", "--client-name", "use that of the client's certificate")
        if self.register and not self.url:
            fix = "add for example --url https://192.0.2.1:8443"
            raise InputError("the address of the server is missing", "--register", fix)
        if self.register and self.cluster_from:
            raise InputError("the option excludes --cluster-from", "--register", "use --kubeconfig FILE")
        if self.url:
            check_url(self.url)
        if not re.fullmatch("[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?", self.register_as):
            fix = "use lower-case letters, digits and -"
            raise InputError(f"{quote(self.register_as)} is not a valid name", "--register-as", fix)

    def apply_to(self, settings: Settings) -> Settings:
        """The settings, overridden by the command line; an `InputError` where the two exclude each other."""
        tls = settings.tls
        mode = self.tls_mode or ("mounted" if self.tls_cert else tls.mode)
        files = (self.tls_cert or tls.cert_file, self.tls_key or tls.key_file) if mode == "mounted" else ("", "")
        if mode == "mounted" and not all(files):
            raise InputError("the certificate files are missing", "--tls mounted", "add --tls-cert and --tls-key")
        if mode == "managed" and (self.cluster_from or self.register):
            with_ = "--cluster-from" if self.cluster_from else "--register"
            fix = "use --kubeconfig FILE" if self.cluster_from else "install the configurations, or remove --tls"
            raise InputError(f"managed excludes {with_}", "--tls", fix)
        listen = self.admin_listen or settings.admin.listen
        if self.cluster_from and listen and not is_loopback(listen):
            why = "is not a loopback address, and --cluster-from has no API server to check tokens"
            where = "--admin-listen" if self.admin_listen else "admin.listen"
            raise InputError(f"{quote(listen)} {why}", where, "listen on 127.0.0.1, or use --kubeconfig")
        changes = {
            "mode": mode,
            "cert_file": str(files[0]),
            "key_file": str(files[1]),
            "client_ca_file": str(self.client_ca or tls.client_ca_file),
            "client_names": self.client_names or tls.client_names,
        }
        return settings.model_copy(
            update={
                "tls": tls.model_copy(update=changes),
                "admin": settings.admin.model_copy(update={"listen": listen}),
            }
        )


class SettingsFollower:
    """The settings in force, and what happens when they change.

    Args:
        path: the settings file; None: the default settings, which do not change.
        log: the logger for events.

    Attributes:
        file: the file as it is followed; None without a file.
        reloads: reloads by result, ``accepted`` or ``rejected``.
        subscribers: functions that get settings when they come into force.
    """

    def __init__(self, path: Path | None, log: Any) -> None:
        self._log: Final = log
        self._fixed: Final = None if path else default_settings()
        self.file: Final = (
            SettingsFile(
                path,
                on_rejected=self._log_rejection,
                on_reloaded=self._log_reload,
                on_restart_needed=lambda keys: log.warning("changed settings take effect after a restart", keys=keys),
            )
            if path
            else None
        )
        self.reloads = {"accepted": 0, "rejected": 0}
        self.subscribers: list[Callable[[Settings], None]] = []

    def current(self) -> Settings:
        """Those in force."""
        settings = self.file.current if self.file else self._fixed
        assert settings
        return settings

    def _log_reload(self, old: Settings, new: Settings) -> None:
        self.reloads["accepted"] += 1
        self._log.info("settings reloaded", digest=new.digest[:12])
        if configurations(old) != configurations(new):
            self._log.warning(
                "the settings change the webhook configurations; run `kubevirt-webhook install`, or register again"
            )
        for subscriber in self.subscribers:
            subscriber(new)

    def _log_rejection(self, error: InputError) -> None:
        self.reloads["rejected"] += 1
        self._log.error("invalid settings; keeping the previous settings", mistakes=str(error).splitlines())
