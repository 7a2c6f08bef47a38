"""A listener whose application gets no request."""

from __future__ import annotations

from webhook.server.edge import Application, Limits, Server


class Unanswering(Application):
    """An application that fails at every request."""

    @classmethod
    def server(cls, limits: Limits | None = None) -> Server:
        return Server(cls(), limits or Limits())
