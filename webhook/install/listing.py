"""Lists of a cluster's objects for commands, which end with a sentence where one cannot be read."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import quote

from webhook.errors import InputError
from webhook.k8s.client.api import NO_QUERY, READ_ERRORS, ApiConnectionError, ApiError, Transport, list_failure
from webhook.k8s.client.list_pages import pages
from webhook.k8s.client.resources import Resource

_LIMIT: Final = 500
_SECONDS: Final = 60.0


async def all_of(
    api: Transport, resource: Resource[Any], namespace: str = "", query: Mapping[str, str] = NO_QUERY
) -> AsyncGenerator[Any, None]:
    """All objects of a resource, in the API server's order; none where the cluster does not have the resource.

    Args:
        api: the connection to the API server.
        resource: the resource to list.
        namespace: the only namespace to look in; empty: all.
        query: selectors.

    Raises:
        InputError: the objects cannot be listed.
    """
    try:
        async with aclosing(pages(api, resource, quote(namespace), query, limit=_LIMIT, seconds=_SECONDS)) as listed:
            async for page in listed:
                for one in page.items or ():
                    yield one
    except READ_ERRORS as error:
        if isinstance(error, ApiError) and error.status == 404:
            # KubeVirt is not installed, so there are no VMs.
            return
        fix = "run the command again to continue" if isinstance(error, ApiConnectionError | TimeoutError) else ""
        raise InputError(list_failure(error, resource, namespace, _SECONDS).why, resource.plural, fix) from None
