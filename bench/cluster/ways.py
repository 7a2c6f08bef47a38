"""The ways to have the scheduler of VMs written, one after the other in one cluster, and none at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.cluster import documents, kyverno, servers
from bench.cluster.objects import LAUNCHER, MACHINE, ObjectKind, fixed_patches
from bench.cluster.plane import CreationPlane
from bench.placement import webhook
from bench.reviews.servers import ROOT
from tests.e2e.support.processes import Process

OURS: Final = "ours"
# Another version of kubevirt-webhook: a checkout beside this one.
BESIDE: Final = "beside"
NONE: Final = "none"
EMPTY: Final = "empty"
FIXED: Final = "same-patch"
KYVERNO: Final = ("kyverno", "kyverno-cel", "kyverno-reads")
_BOTH: Final = (LAUNCHER, MACHINE)
_POLICIES: Final = Path(__file__).with_name("policies")
# All else is the default, and the patch is that of the others.
_SETTINGS: Final = ROOT / "bench" / "reviews" / "settings.yaml"


@dataclass(frozen=True)
class Programs:
    """What is run beside the control plane.

    Attributes:
        go: directory of the webhooks in Go.
        client: what creates the objects.
        kyverno: directory of its build; None: it is not measured.
        beside: another checkout of kubevirt-webhook, with its environment in .venv; None: no other version is measured.
    """

    go: Path
    client: Path
    kyverno: Path | None = None
    beside: Path | None = None


@dataclass(frozen=True)
class Way:
    """A way.

    Attributes:
        key: what figures are kept under, and the command line calls it.
        title: what tables call it.
        serving: has it for as long as the context lasts; gives its process, if it has one of its own.
        labels: of its namespace.
        writes: whether objects get their scheduler.
        kinds: what it is measured with.
    """

    key: str
    title: str
    serving: Callable[[CreationPlane, Programs], AbstractContextManager[Process | None]]
    labels: Mapping[str, str] = field(default_factory=dict)
    writes: bool = True
    kinds: Sequence[ObjectKind] = _BOTH


@contextmanager
def _none(_plane: CreationPlane, _programs: Programs) -> Iterator[None]:
    yield


@contextmanager
def _policy(plane: CreationPlane, _programs: Programs) -> Iterator[None]:
    with documents.applied(plane, _POLICIES / "admission-policy.yaml"):
        yield


@contextmanager
def _ours(plane: CreationPlane, _programs: Programs) -> Iterator[Process]:
    with webhook.running(plane, settings=_SETTINGS) as process:
        yield process


@contextmanager
def _beside(plane: CreationPlane, programs: Programs) -> Iterator[Process]:
    checkout = programs.beside
    assert checkout
    # Without -P, Python would find this version's package in the working directory.
    program = (str(checkout / ".venv" / "bin" / "python"), "-P", "-m", "webhook")
    with webhook.running(plane, program, _SETTINGS, {"PYTHONPATH": str(checkout)}) as process:
        yield process


def _go(key: str, program: str, *patches: str) -> Callable[[CreationPlane, Programs], AbstractContextManager[Process]]:
    def serving(plane: CreationPlane, programs: Programs) -> AbstractContextManager[Process]:
        return servers.serving(plane, programs.go / program, key, *patches)

    return serving


def _kyverno(policies: str) -> Callable[[CreationPlane, Programs], AbstractContextManager[Process]]:
    @contextmanager
    def serving(plane: CreationPlane, programs: Programs) -> Iterator[Process]:
        assert programs.kyverno
        with (
            kyverno.running(plane, programs.kyverno) as process,
            documents.applied(plane, _POLICIES / policies),
        ):
            yield process

    return serving


def _labels(key: str) -> dict[str, str]:
    return {servers.LABEL: key}


RUNTIME: Final = "controller-runtime"
POLICY: Final = "policy"
KYVERNO_CEL: Final = "kyverno-cel"
# In the order of the first round; every second round has them the other way round.
WAYS: Final[Mapping[str, Way]] = {
    way.key: way
    for way in (
        Way(NONE, "nothing", _none, writes=False),
        Way(OURS, "kubevirt-webhook", _ours, webhook.LABELS),
        Way(BESIDE, "another version", _beside, webhook.LABELS),
        Way(EMPTY, "an empty webhook, Go", _go(EMPTY, "empty"), _labels(EMPTY), writes=False),
        Way(FIXED, "an empty one with the same patch, Go", _go(FIXED, "empty", *fixed_patches()), _labels(FIXED)),
        Way(RUNTIME, "Go, controller-runtime", _go(RUNTIME, "controllerruntime"), _labels(RUNTIME)),
        Way(POLICY, "MutatingAdmissionPolicy", _policy, _labels(POLICY)),
        Way("kyverno", "Kyverno, ClusterPolicy", _kyverno("kyverno-cluster-policy.yaml"), _labels("kyverno")),
        Way(KYVERNO_CEL, "Kyverno, MutatingPolicy", _kyverno("kyverno-mutating-policy.yaml"), _labels("kyverno")),
        Way(
            *("kyverno-reads", "Kyverno, ClusterPolicy that reads the VMI", _kyverno("kyverno-reads-vmi.yaml")),
            labels=_labels("kyverno"),
            kinds=(LAUNCHER,),
        ),
    )
}
