"""What an identity asks of an API server, as the API server itself writes it down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from .kube import Json
from .manifests import Right


class AuditLog:
    """The requests of one user, in a file that an API server with `flags` writes.

    Args:
        directory: that exists.
        user: whose requests.
    """

    def __init__(self, directory: Path, user: str) -> None:
        self._log = directory / "audit.log"
        self._policy = directory / "audit-policy.json"
        rules = [{"level": "Metadata", "users": [user], "omitStages": ["RequestReceived"]}, {"level": "None"}]
        self._policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))

    @property
    def flags(self) -> Sequence[str]:
        """Of the API server."""
        return [
            f"--audit-policy-file={self._policy}",
            f"--audit-log-path={self._log}",
            "--audit-log-mode=blocking-strict",
        ]

    def requests(self) -> list[Json]:
        """Requests for resources, up to now."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [line for line in map(json.loads, lines) if "objectRef" in line]

    def used(self) -> set[Right]:
        """The rights that were needed for them."""
        return {
            (line["verb"], line["objectRef"].get("apiGroup", ""), line["objectRef"]["resource"])
            for line in self.requests()
        }

    def refused(self) -> set[Right]:
        """Those that were missing."""
        return {
            (line["verb"], line["objectRef"].get("apiGroup", ""), line["objectRef"]["resource"])
            for line in self.requests()
            if line.get("responseStatus", {}).get("code") == 403
        }
