"""Allow-lists, and kubectl as their users run it."""

from __future__ import annotations

import json
import subprocess

from .kube import Json
from .tenant import Tenant
from .webhook_server import DOMAIN

ALLOWED = f"{DOMAIN}/allowed-instancetypes"


def kubectl(tenant: Tenant, obj: Json, verb: str = "create") -> subprocess.CompletedProcess[str]:
    return tenant.server.access.kubectl(
        verb, f"--namespace={tenant.namespace}", "--filename=-", stdin=json.dumps(obj), check=False
    )
