"""Texts that look like secrets, each with a canary in it: none of them may be shown anywhere."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from typing import Final

CANARY: Final = "hunter2canary"

_CLOUD_CONFIG: Final = f"#cloud-config\npassword: {CANARY}\nchpasswd: {{expire: false}}\n"


def _base64(data: str | bytes) -> str:
    return b64encode(data.encode() if isinstance(data, str) else data).decode()


_JWT: Final = f"{_base64(json.dumps({'alg': 'RS256', 'typ': 'JWT'})).rstrip('=')}.eyJzdWIiOiJtZSJ9.{CANARY}"
_KUBECONFIG: Final = json.dumps({"kind": "Config", "users": [{"name": "me", "user": {"token": CANARY}}]})
_PEM: Final = f"-----BEGIN EC PRIVATE KEY-----\n{CANARY}\n-----END EC PRIVATE KEY-----"

LOOKS: Final = {
    "private key": _PEM,
    "ssh key": f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5{CANARY} me@home",
    "crypt": f"$6$rounds=4096$salt${CANARY}",
    "userinfo": f"https://me:{CANARY}@example.com/disk.img",
    "userinfo with a slash": f"https://me:{CANARY}/x@example.com/disk.img",
    "userinfo alone": f"https://{CANARY}@example.com/repository.git",
    "presigned S3": f"https://b.s3.amazonaws.com/d.img?X-Amz-Credential=AKIA&X-Amz-Signature={CANARY}",
    "presigned GCS": f"https://storage.googleapis.com/b/d.img?X-Goog-Signature={CANARY}",
    "shared access signature": f"https://a.blob.core.windows.net/c/d.vhd?sv=2022-11-02&sig={CANARY}%3D&se=2030",
    "token in a query": f"https://example.com/d.img?token={CANARY}",
    "fragment": f"https://example.com/#access_token={CANARY}",
    "presigned without scheme": f"b.s3.amazonaws.com/d.img?X-Amz-Signature={CANARY}",
    "basic": f"Authorization: Basic {CANARY}",
    "bearer": f"Bearer {CANARY}",
    "JWT": _JWT,
    "AWS": f"aws_access_key_id=AKIAABCDEFGHIJKLMNOP aws_secret_access_key={CANARY}",
    "GitHub": f"ghp_{CANARY}0123456789abcdefghijkl",
    "GitLab": f"glpat-{CANARY}0123456789",
    "Slack": f"xoxb-123456789012-{CANARY}",
    "assignment": f"password={CANARY}",
    "flag": f"--password={CANARY}",
    "two words": f"--token {CANARY}",
    "YAML": f"password: {CANARY}",
    "JSON": json.dumps({"a": 1, "apiKey": CANARY}),
    "JSON in JSON": json.dumps(json.dumps({"password": f"a {CANARY}"})),
    "cookie": f"Cookie: session={CANARY}",
    "kubeconfig": _KUBECONFIG,
    "kubeconfig's key": f"client-key-data: {_base64(_PEM)}",
    "kernel arguments": f"quiet rootpw={CANARY} console=ttyS0",
    "cloud-init": _CLOUD_CONFIG,
    "cloud-init in base64": _base64(_CLOUD_CONFIG),
    "cloud-init in base64 with line feeds": "\n".join((_base64(_CLOUD_CONFIG)[:60], _base64(_CLOUD_CONFIG)[60:])),
    "cloud-init in base64 twice": _base64(_base64(_CLOUD_CONFIG)),
    "cloud-init compressed": _base64(gzip.compress(_CLOUD_CONFIG.encode(), mtime=0)),
    "script in base64": _base64(f"#!/bin/sh\nexport DB_PASSWORD={CANARY}\n"),
    "ignition": json.dumps({"ignition": {"version": "3.4.0"}, "note": CANARY}),
    "unattend": f"<unattend><wcm:AutoLogon><Value>{CANARY}</Value></wcm:AutoLogon></unattend>",
}

# The parts that tests search for in an output: the encoded text identifies a secret in base64.
TRACES: Final = (CANARY, *(text for name, text in LOOKS.items() if "base64" in name or "compressed" in name))
