"""Whether the API server reaches the replicas at the port of the webhooks, as it must for every review."""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import quote

from webhook.errors import Unavailable
from webhook.k8s.client.api import ApiConnectionError, NoAnswerInTimeError, Requests
from webhook.k8s.client.status import decode_status

# In seconds. The API server itself waits 30 s for a new connection, and then gives the cause.
PATIENCE: Final = 45.0
# A NetworkPolicy that has just changed takes a moment to count.
PAUSE: Final = 3.0
REMEDY: Final = (
    'run "kubevirt-webhook install --callers auto", and look for other NetworkPolicies and for firewalls between the '
    "API servers and the nodes"
)


async def why_unreachable(api: Requests, namespace: str, name: str) -> str | Unavailable:
    """Why the API server has no connection to a replica, as a clause; empty: it has one.

    The API server itself sends a request to one of the replicas, by its proxy for Services. If the connection is
    rejected at first, it sends another one.

    Args:
        api: the connection to the API server.
        namespace: the namespace of the Service that the webhook configurations name.
        name: the name of that Service.

    Returns:
        `Unavailable` where that is not to be known, for example for lack of permission.
    """
    path = f"/api/v1/namespaces/{quote(namespace)}/services/https:{quote(name)}:webhooks/proxy/healthz"
    clock = asyncio.get_running_loop().time
    begin = clock()
    why = await _try(api, path)
    # Not after a time limit: that was long enough.
    if why and not isinstance(why, Unavailable) and clock() - begin < PAUSE:
        await asyncio.sleep(PAUSE)
        why = await _try(api, path)
    return why


async def _try(api: Requests, path: str) -> str | Unavailable:
    try:
        status, body = await api.request("GET", path, seconds=PATIENCE)
    except NoAnswerInTimeError:
        # Over a connection that the API server had already: it does not notice that nothing comes back.
        return f"no answer came within {PATIENCE:g} s"
    except ApiConnectionError as error:
        return Unavailable(error.why)
    answer = decode_status(body)
    if (not answer.reason and status < 500) or "remote error: tls" in answer.text:
        # The replica's own answer, or a TLS alert by a replica that asks for a client certificate.
        return ""
    return answer.text if "dial tcp" in answer.text else Unavailable(f"status {status}")
