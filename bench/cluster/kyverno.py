"""Kyverno's admission controller beside a cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from bench.cluster.plane import ENVIRONMENT, CreationPlane
from tests.e2e.support.objects import ensure_namespace, install_crds, obj
from tests.e2e.support.pki import ADMIN
from tests.e2e.support.processes import Process, free_port

NAMESPACE: Final = "kyverno"
_SERVICE: Final = "kyverno-svc"
_ENVIRONMENT: Final[Mapping[str, str]] = {
    **ENVIRONMENT,
    "KYVERNO_NAMESPACE": NAMESPACE,
    "KYVERNO_DEPLOYMENT": "kyverno",
    "KYVERNO_POD_NAME": "kyverno-0",
    "KYVERNO_SERVICEACCOUNT_NAME": "kyverno-admission-controller",
    "KYVERNO_ROLE_NAME": "kyverno:admission-controller",
    "KYVERNO_SVC": _SERVICE,
    "INIT_CONFIG": "kyverno",
    "METRICS_CONFIG": "kyverno-metrics",
}
_WEBHOOKS: Final = tuple(
    f"admissionregistration.k8s.io/v1/{kind}webhookconfigurations" for kind in ("mutating", "validating")
)
_LEASES: Final = "coordination.k8s.io/v1/leases"
_GRACE_SECONDS: Final = 5.0
# Until the API server's watches have seen what was deleted.
_SETTLE_SECONDS: Final = 1.0


def prepare(plane: CreationPlane, directory: Path) -> None:
    """Make what it needs in the cluster and does not make itself.

    Args:
        directory: of the build, with the definitions of its kinds.
    """
    definitions = [yaml.safe_load(path.read_text()) for path in sorted((directory / "crds").rglob("*.yaml"))]
    install_crds(plane.admin, definitions)
    ensure_namespace(plane.admin, NAMESPACE)
    for name in ("kyverno", "kyverno-metrics"):
        plane.admin.make(obj("ConfigMap", name, namespace=NAMESPACE))
    labels = {"app": "kyverno"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "kyverno", "image": "kyverno"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    plane.admin.make(obj("Deployment", "kyverno", namespace=NAMESPACE, spec=spec))


@contextmanager
def running(plane: CreationPlane, directory: Path) -> Iterator[Process]:
    """Run it for as long as the context lasts; at its end the API server calls it no more.

    Its flags are those of its chart where they change what a request costs.
    """
    process = Process("kyverno", _command(plane, directory), plane.directory / "logs" / "kyverno.log", _ENVIRONMENT)
    process.start()
    try:
        # It makes this one as the leader, after all that a policy needs.
        process.wait_ready(lambda: _has_registered(plane))
        yield process
    finally:
        process.stop(_GRACE_SECONDS)
        for kind in _WEBHOOKS:
            for each in plane.admin.list(kind):
                if "kyverno" in each["metadata"]["name"]:
                    plane.admin.delete(kind, each["metadata"]["name"])
        # It does not give the leadership up, and the next one would wait until it runs out.
        plane.admin.delete_all(_LEASES, NAMESPACE)
        time.sleep(_SETTLE_SECONDS)


def _command(plane: CreationPlane, directory: Path) -> list[str]:
    port, metrics = free_port(), free_port()
    return [
        str(directory / "kyverno"),
        f"--kubeconfig={plane.kubeconfig_for(*ADMIN)}",
        f"--serverIP=127.0.0.1:{port}",
        "--webhookServerHost=127.0.0.1",
        f"--webhookServerPort={port}",
        "--metricsHost=127.0.0.1",
        f"--metricsPort={metrics}",
        "--controllerRuntimeMetricsAddress=0",
        f"--caSecretName={_SERVICE}.{NAMESPACE}.svc.kyverno-tls-ca",
        f"--tlsSecretName={_SERVICE}.{NAMESPACE}.svc.kyverno-tls-pair",
        *(
            f"--{which}ServiceAccountName=system:serviceaccount:{NAMESPACE}:kyverno-{which}-controller"
            for which in ("background", "reports")
        ),
        "--disableLogColor=true",
        "--omitEvents=PolicyApplied,PolicySkipped",
    ]


def _has_registered(plane: CreationPlane) -> bool:
    names = {each["metadata"]["name"] for kind in _WEBHOOKS for each in plane.admin.list(kind)}
    return {"kyverno-policy-validating-webhook-cfg", "kyverno-resource-mutating-webhook-cfg"} <= names
