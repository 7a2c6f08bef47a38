"""Who may use a listener: bearers of tokens whose users may ``get`` its path, asked of the API server seldom.

The answer is kept for some seconds, by the token's digest: neither scrapers nor guessers cause an API request each.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import Final

from webhook.cluster.source import Cluster
from webhook.facts import Facts
from webhook.policies.common import accounts
from webhook.review.replay import replay
from webhook.server.bearer import RequestDenied, authorize, user_of

KEPT_SECONDS: Final = 10.0
MAX_KEPT: Final = 64
# Questions to the API server at the same time.
MAX_IN_FLIGHT: Final = 4
_DEADLINE_SECONDS: Final = 5.0


class Gate:
    """Admits tokens to one path.

    Args:
        cluster: the source of facts: whose token it is, and whether RBAC allows its user to get the path.
        path: the path, as a ``nonResourceURL`` of RBAC.
    """

    def __init__(self, cluster: Cluster, path: str) -> None:
        self._cluster: Final = cluster
        self._path: Final = path
        self._asking = 0
        self._kept: Final[OrderedDict[bytes, tuple[float, RequestDenied | None]]] = OrderedDict()

    async def admit(self, token: str) -> None:
        """Return if the token's user may get the path.

        Raises:
            RequestDenied: the user may not, or too many tokens are being looked at.
            Unreadable: it is not known now.
        """
        now = asyncio.get_running_loop().time()
        digest = hashlib.sha256(token.encode()).digest()
        until, refused = self._kept.get(digest, (0.0, None))
        if now >= until:
            refused = await self._authorize(token)
            self._kept[digest] = now + KEPT_SECONDS, refused
            self._kept.move_to_end(digest)
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        if refused:
            raise refused

    async def _authorize(self, token: str) -> RequestDenied | None:
        """Why the API server says no; None: it says yes."""
        if self._asking >= MAX_IN_FLIGHT:
            raise RequestDenied(429, f"{MAX_IN_FLIGHT} tokens are being reviewed; try again", **{"Retry-After": "1"})
        self._asking += 1
        deadline = asyncio.get_running_loop().time() + _DEADLINE_SECONDS
        facts = Facts(peek=self._cluster.peek)
        try:
            await replay(lambda known: self._check(token, known), self._cluster, facts, deadline, self._path)
        except RequestDenied as refused:
            return refused
        finally:
            self._asking -= 1
        return None

    def _check(self, token: str, facts: Facts) -> None:
        user = user_of(token, facts)
        right = {f"get {self._path}": accounts.access_to_path(user, "get", self._path)}
        authorize(user, right, facts, shown="which this listener requires")
