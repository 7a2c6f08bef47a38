"""A listener whose application gets no request."""

from __future__ import annotations

from webhook.server.edge import Limits, Server
from webhook.server.request import Answer, HttpRequest, Overload


class Unanswering:
    """An application that fails at every request."""

    @classmethod
    def server(cls, limits: Limits | None = None) -> Server:
        return Server(cls(), limits or Limits())

    def refuse(self, request: HttpRequest) -> Answer | None:
        raise AssertionError

    def answer_at_once(self, request: HttpRequest) -> Answer | None:
        raise AssertionError

    async def answer(self, request: HttpRequest) -> Answer:
        raise AssertionError

    def overloaded(self, request: HttpRequest, overload: Overload, prefix: bytes) -> Answer:
        raise AssertionError

    def patience(self, request: HttpRequest) -> float:
        raise AssertionError
