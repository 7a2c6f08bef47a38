"""The page about one VM's placement: nodes by requirements, and selectors to try."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from webhook.cluster.source import Cluster
from webhook.errors import InputError
from webhook.facts import Facts
from webhook.k8s.types.selectors import is_name, parse_selector
from webhook.policies.migration.explanation import FactPermissions, NotThere, few
from webhook.policies.migration.matrix import PlacementMatrix, matrix
from webhook.review.replay import replay
from webhook.server.authorizer import DEADLINE_SECONDS
from webhook.server.explain import ExplainRequest
from webhook.server.page.paging import ROWS, pager
from webhook.server.page.query import PageQuery

_TEMPLATE: Final = "placement.html"


class Places:
    """Answers questions about VMs.

    Args:
        cluster: the source of facts.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster: Final = cluster

    async def show(
        self, path: str, query: PageQuery, permit: Callable[[ExplainRequest], Awaitable[FactPermissions]]
    ) -> tuple[str, dict[str, Any], int]:
        """The template, its values and the HTTP status.

        Args:
            path: the path of this page.
            query: the parameters of the request.
            permit: checks whether the sender may ask about a VM; returns how facts are read.

        Raises:
            Unreadable: something is not known now.
        """
        asked = {name: query.text(name) for name in ("namespace", "name", "node")}
        asked["to"] = ", ".join(query.texts("to"))
        values: dict[str, Any] = {"asked": asked, "problem": "", "it": None, "few": few}
        if not any(asked.values()):
            return _TEMPLATE, values, 200
        try:
            question = _question(query)
            reader = await permit(question)
            it = await self._matrix(question, query.number("first"), reader)
        except NotThere as error:
            return _TEMPLATE, {**values, "problem": str(error)}, 404
        except InputError as error:
            return _TEMPLATE, {**values, "problem": str(error)}, 400
        links = [
            (
                each,
                query.link(path, to=f"{each.key}={each.value}", first=""),
                question.added.get(each.key) == each.value,
            )
            for each in it.selectors
        ]
        without = query.link(path, to="", first="") if question.added else ""
        links_to_rows = pager(query, path, it.first, len(it.rows), it.explanation.total)
        more = {"it": it, "selectors": links, "without": without, "pager": links_to_rows}
        return _TEMPLATE, values | more, 200

    async def _matrix(self, asked: ExplainRequest, first: int, reader: FactPermissions) -> PlacementMatrix:
        def decide(facts: Facts) -> PlacementMatrix:
            subject = (asked.namespace, asked.name, asked.added, facts)
            return matrix(*subject, node=asked.node, first=first, count=ROWS, reader=reader)

        deadline = asyncio.get_running_loop().time() + DEADLINE_SECONDS
        return await replay(decide, self._cluster, Facts(peek=self._cluster.peek), deadline, "the question")


def _question(query: PageQuery) -> ExplainRequest:
    given = {name: query.text(name) for name in ("namespace", "name", "node")}
    for name, value in given.items():
        if not value and name != "node":
            raise InputError("is missing", name, "name a running VM and its namespace")
        if value and not is_name(value):
            raise InputError("is not a valid name", name, "use names as Kubernetes has them")
    return ExplainRequest(given["namespace"], given["name"], parse_selector(query.texts("to"), "to"), given["node"])
