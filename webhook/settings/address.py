"""The syntax of hosts and ports."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME: Final = rf"{_LABEL}(\.{_LABEL})*"


def is_host(text: str) -> bool:
    """Whether a text is an IP address without brackets, or a DNS name that can be resolved and certified."""
    if ":" in text or re.fullmatch("[0-9.]+", text):
        try:
            ipaddress.ip_address(text)
        except ValueError:
            return False
        return True
    # Names are resolved through IDNA, which takes labels of 63 characters at most.
    return bool(re.fullmatch(_NAME, text.lower())) and all(len(label) <= 63 for label in text.split("."))


def is_loopback(address: str) -> bool:
    """Whether only this host, or pod, can reach ``HOST:PORT``."""
    return address.rpartition(":")[0] in ("127.0.0.1", "[::1]", "localhost")


def is_address(text: str) -> bool:
    """Whether a text is ``HOST:PORT``; brackets are required for an IPv6 address, and not allowed otherwise."""
    match = re.fullmatch(r"(?:\[(?P<six>[^]]+)\]|(?P<host>[^]:[]+)):(?P<port>[0-9]{1,5})", text)
    if match is None or int(match["port"]) > 65535:
        return False
    if match["six"]:
        return ":" in match["six"] and is_host(match["six"])
    return is_host(match["host"])
