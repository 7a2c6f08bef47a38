"""Looks at whether the API server reaches the replicas at the port of the webhooks, as it must for every review."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from webhook.doctor.support.finding import Finding
from webhook.doctor.support.installation import Installation
from webhook.errors import Unavailable
from webhook.k8s.client.api import ApiConnectionError, NoAnswerInTimeError
from webhook.k8s.client.status import decode_status

CHECK: Final = "reach"
# In seconds. The API server itself waits 30 s for a new connection, and then gives the cause.
PATIENCE: Final = 45.0
_REMEDY: Final = (
    'run "kubevirt-webhook install --callers auto", and look for other NetworkPolicies and for firewalls between the '
    "API servers and the nodes"
)


async def check(installation: Installation) -> list[Finding]:
    """Have the API server send a request to a replica through the Service."""
    if installation.url:
        return []  # The server is not behind the Service.
    webhooks = installation.settings.webhooks
    namespace, name = webhooks.service_namespace, webhooks.service_name
    why = await _failure(installation, f"/api/v1/namespaces/{quote(namespace)}/services/https:{quote(name)}:webhooks")
    if isinstance(why, Unavailable):
        return []  # Another check reports it: the metrics are read in the same way.
    subject = f"Service {namespace}/{name}"
    if why:
        what = f"the API server does not reach a replica at port webhooks, so no request is evaluated: {why}"
        return [Finding(CHECK, "unreachable", subject, "failure", what, _REMEDY)]
    return [Finding(CHECK, "reachable", subject, "ok", "the API server reaches a replica at port webhooks")]


async def _failure(installation: Installation, service: str) -> str | Unavailable:
    """Why the API server has no connection to a replica; empty: it has one."""
    try:
        status, body = await installation.reader.api.request("GET", f"{service}/proxy/healthz", seconds=PATIENCE)
    except NoAnswerInTimeError:
        # Over a connection that the API server had already: it does not notice that nothing comes back.
        return f"no answer came within {PATIENCE:g} s"
    except ApiConnectionError as error:
        return Unavailable(error.why)
    answer = decode_status(body)
    if not answer.reason or "remote error: tls" in answer.text:
        # The replica's own answer, or a TLS alert by a replica that asks for a client certificate.
        return ""
    return answer.text if "dial tcp" in answer.text else Unavailable(f"status {status}")
