"""Whether a server has the page; what it consists of is imported only then."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from webhook.admission.audit import Sink
from webhook.cluster.source import BrowsableCluster
from webhook.server.runtime.certificates import Certificates
from webhook.settings.snapshot import ServerSettings, Settings

if TYPE_CHECKING:
    from webhook.server.runtime.page import PageParts


def page_parts(
    server: ServerSettings,
    audit: Sink,
    cluster: BrowsableCluster,
    settings: Callable[[], Settings],
    certificates: Certificates,
) -> PageParts | None:
    """What the page shows; None: it is off.

    Args:
        server: the settings of the listeners.
        audit: gets every audit record.
        cluster: the source of facts.
        settings: returns the settings in force.
        certificates: the certificate of the listener.
    """
    if not server.page_listen:
        return None
    from webhook.server.runtime.page import PageParts

    return PageParts(audit, cluster, settings, certificates)
