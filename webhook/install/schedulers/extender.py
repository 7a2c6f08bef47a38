"""The stanza of a KubeSchedulerConfiguration that makes kube-scheduler call the extender for image layers."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from webhook.errors import InputError, quote

_PATH: Final = "/v1/layers"
_is_place: Final = re.compile(r"[A-Za-z0-9.-]+:[0-9]+|\[[0-9A-Fa-f:.]+\]:[0-9]+").fullmatch
# Where the Secrets with the certificates are mounted in the scheduler's pod; see docs/layers.md.
_TLS: Final = """    enableHTTPS: true
    tlsConfig:
      # The CA of kubevirt-webhook's certificate. Without it, kube-scheduler does not verify the server.
      caFile: /etc/kubevirt-webhook/ca/ca.crt
      # A certificate of layers.clientCaFile, with one of the names of layers.clientNames.
      certFile: /etc/kubevirt-webhook/client/tls.crt
      keyFile: /etc/kubevirt-webhook/client/tls.key
"""


def stanza(template: str, url: str) -> str:
    """The stanza as YAML, without the comment at its head.

    Args:
        template: the shipped stanza, ``manifests/scheduler/layers.yaml``.
        url: where kube-scheduler reaches the extender: scheme, host and port.

    Raises:
        InputError: the URL is not one.
    """
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(_is_place(parts.netloc) and parts.hostname and parts.port)
    except ValueError:
        is_valid = False
    if not is_valid or parts.path.rstrip("/") not in ("", _PATH) or parts.query:
        raise InputError(f"{quote(url)} is not the URL of an extender", "--layers", "use http://HOST:PORT or https://…")
    lines = [line for line in template.splitlines() if not line.startswith("#")]
    prefix = f"{parts.scheme}://{parts.netloc}{_PATH}"
    written = [f"  - urlPrefix: {prefix}" if "urlPrefix:" in line else line for line in lines]
    return "\n".join(written) + "\n" + (_TLS if parts.scheme == "https" else "")
