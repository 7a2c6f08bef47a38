"""The requests of an identity to an API server, as the API server's audit log has them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from itertools import product
from pathlib import Path
from typing import Self

from .kube import Json
from .manifests import Right


class AuditLog:
    """The requests of one user, in a file that an API server with `flags` writes, as it writes those of others."""

    def __init__(self, directory: Path, user: str, *others: str) -> None:
        self._user = user
        self._earlier = 0
        self._log = directory / "audit.log"
        self._policy = directory / "audit-policy.json"
        rules = [{"level": "Metadata", "users": [user, *others], "omitStages": ["RequestReceived"]}, {"level": "None"}]
        self._policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))

    @property
    def flags(self) -> Sequence[str]:
        return [
            f"--audit-policy-file={self._policy}",
            f"--audit-log-path={self._log}",
            "--audit-log-mode=blocking-strict",
        ]

    def from_now_on(self, user: str) -> Self:
        """The requests of one of the users, without those up to now."""
        later = copy.copy(self)
        later._user, later._earlier = user, len(self._lines())
        return later

    def requests(self, user: str = "") -> list[Json]:
        """Requests for resources, up to now: by default the user's, else those of another one."""
        by = user or self._user
        lines = map(json.loads, self._lines()[self._earlier :])
        return [line for line in lines if "objectRef" in line and line["user"]["username"] == by]

    def used(self) -> set[Right]:
        """The permissions that the requests needed, each for the requested name and for any name."""
        return {right for line in self.requests() for right in _needed(line)}

    def refused(self) -> set[Right]:
        lines = [line for line in self.requests() if line.get("responseStatus", {}).get("code") == HTTPStatus.FORBIDDEN]
        return {right for line in lines for right in _needed(line)}

    def _lines(self) -> list[str]:
        written = self._log.read_text() if self._log.exists() else ""
        # Of the last line, there may be a part.
        return written[: written.rfind("\n") + 1].splitlines()


def _needed(line: Json) -> Iterator[Right]:
    about = line["objectRef"]
    verbs = [line["verb"]]
    if line["verb"] == "patch" and line.get("responseStatus", {}).get("code") == HTTPStatus.CREATED:
        verbs.append("create")
    resource = "/".join(about[key] for key in ("resource", "subresource") if key in about)
    yield from product(verbs, [about.get("apiGroup", "")], [resource], {about.get("name", ""), ""})
