"""The shipped configurations of kube-scheduler, for each place in which one can run."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, get_args

from webhook.errors import InputError, quote

Variant = Literal["spread", "pack", "load-aware", "load-aware-pack"]
# A scheduler beside the cluster's own, one that OpenShift's Secondary Scheduler Operator runs, or the cluster's own.
Place = Literal["second", "openshift", "cluster"]

VARIANTS: Final[tuple[Variant, ...]] = get_args(Variant)
# They run plugins that kube-scheduler itself lacks.
LOAD_AWARE: Final[tuple[Variant, ...]] = ("load-aware", "load-aware-pack")
# The key in ConfigMaps.
CONFIGURATION_KEY: Final = "config.yaml"

_ELECTION: Final = "leaderElection:\n"
_PROFILES: Final = "profiles:\n"
# A static pod has no service account, and with --config its flag --kubeconfig has no effect.
_CLUSTER: Final = """clientConnection:
  # As kubeadm has it: the path in the pod of the cluster's scheduler.
  kubeconfig: /etc/kubernetes/scheduler.conf
"""
_DEFAULT_PROFILE: Final = """  # Without it, every pod in the cluster that names no scheduler stays Pending.
  - schedulerName: default-scheduler
"""
_METRICS_SERVER: Final = "type: KubernetesMetricsServer"


def configuration(directory: Path, variant: Variant, place: Place = "second", prometheus: str = "") -> str:
    """A shipped configuration, as YAML with comments.

    Args:
        directory: the directory of the manifests.
        variant: which one.
        place: where the scheduler runs.
        prometheus: the URL of the Prometheus that a load-aware variant asks; empty: metrics-server.

    Raises:
        InputError: the variant asks no Prometheus, or the URL is none.
    """
    text = (directory / "scheduler" / f"{variant}.yaml").read_text()
    if place != "second":
        # The operator elects by flags of its own; the cluster's own scheduler has kubeadm's, or the defaults.
        text = _without_election(text)
    if place == "cluster":
        text = text.replace(_PROFILES, f"{_CLUSTER}{_PROFILES}{_DEFAULT_PROFILE}", 1)
    return _with_prometheus(text, variant, prometheus) if prometheus else text


def _without_election(text: str) -> str:
    before, _, after = text.partition(_ELECTION)
    return before + after[after.index(_PROFILES) :]


def _with_prometheus(text: str, variant: Variant, url: str) -> str:
    if variant not in LOAD_AWARE:
        fix = f"leave --prometheus out, or use one of {', '.join(LOAD_AWARE)}"
        raise InputError(f"the variant {variant} reads no metrics", "--prometheus", fix)
    if not url.startswith(("http://", "https://")) or any(
        character.isspace() or character in "\"'\\" for character in url
    ):
        raise InputError(f"{quote(url)} is not a valid URL", "--prometheus", "start it with http:// or https://")
    before, _, after = text.partition(_METRICS_SERVER)
    indent = before.rpartition("\n")[2]
    return f'{before}type: Prometheus\n{indent}address: "{url}"{after}'
