"""The machine on which the tests run."""

from __future__ import annotations

import socket


def address_of_this_machine() -> str:
    """One that an EndpointSlice may hold, which may not hold a loopback address; empty: there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: the kernel only chooses the address.
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        address = str(probe.getsockname()[0])
    return "" if address.startswith("127.") else address
