"""Looks at whether the API server reaches the replicas at the port of the webhooks, as it must for every review."""

from __future__ import annotations

from typing import Final

from webhook.doctor.support.finding import Finding
from webhook.doctor.support.installation import Installation
from webhook.errors import Unavailable
from webhook.install.shortage import REMEDY, why_unreachable

CHECK: Final = "reach"


async def check(installation: Installation) -> list[Finding]:
    """Have the API server send a request to a replica through the Service."""
    if installation.url:
        return []  # The server is not behind the Service.
    webhooks = installation.settings.webhooks
    namespace, name = webhooks.service_namespace, webhooks.service_name
    why = await why_unreachable(installation.reader.api, namespace, name)
    if isinstance(why, Unavailable):
        return []  # Another check reports it: the metrics are read in the same way.
    subject = f"Service {namespace}/{name}"
    if why:
        what = f"the API server does not reach a replica at port webhooks, so requests may not be evaluated: {why}"
        return [Finding(CHECK, "unreachable", subject, "failure", what, REMEDY)]
    return [Finding(CHECK, "reachable", subject, "ok", "the API server reaches a replica at port webhooks")]
