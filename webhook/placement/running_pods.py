"""Pods of any kind, of a VM or not, as far as kube-scheduler's filters and scores depend on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from webhook.k8s.resources import Resource
from webhook.k8s.types.core import ContainerRequests, ImageVolumeSource, Pod, PodSpec
from webhook.k8s.types.meta import Object, View
from webhook.placement.demand import COMPUTE, load_of
from webhook.placement.machines import LauncherPod, LauncherPodSpec
from webhook.placement.pod_rules import (
    PodConstraints,
    PodInfo,
    PodPreferences,
    preferences_of,
    rules_of,
    spread_of_services,
)
from webhook.placement.profiles import Profiles, profile_of
from webhook.placement.scores import preferred_terms
from webhook.placement.simulate import SimulatedPod


class _RunningContainer(ContainerRequests, frozen=True):
    image: str | None = None


class _RunningClaim(View, frozen=True):
    claim_name: str | None = None


class _RunningVolume(View, frozen=True):
    name: str | None = None
    image: ImageVolumeSource | None = None
    persistent_volume_claim: _RunningClaim | None = None


class _RunningPodSpec(LauncherPodSpec, frozen=True):
    containers: Sequence[_RunningContainer | None] | None = None
    init_containers: Sequence[_RunningContainer | None] | None = None
    volumes: Sequence[_RunningVolume | None] | None = None
    scheduler_name: str | None = None


class RunningPod(LauncherPod, frozen=True):
    """A Pod (core/v1) with what scores depend on."""

    spec: _RunningPodSpec | None = None

    @property
    def images(self) -> tuple[str, ...]:
        """Those of its containers, as they are written."""
        return _images(self.spec) if self.spec else ()

    @property
    def launcher_image(self) -> str:
        """That of the container in which KubeVirt runs the guest; empty: there is none."""
        containers = (self.spec.containers if self.spec else None) or ()
        return next((each.image or "" for each in containers if each and each.name == COMPUTE), "")

    @property
    def claims(self) -> dict[str, str]:
        """The names of the PersistentVolumeClaims that it mounts, by volume."""
        mounted = (each for each in (self.spec.volumes if self.spec else None) or () if each)
        return {
            each.name or "": each.persistent_volume_claim.claim_name or ""
            for each in mounted
            if each.persistent_volume_claim
        }

    @property
    def image_volumes(self) -> tuple[str, ...]:
        """The images that it mounts as volumes; KubeVirt's containerDisks by its feature gate ImageVolume."""
        return _image_volumes(self.spec) if self.spec else ()


def _images(spec: _RunningPodSpec | PodSpec) -> tuple[str, ...]:
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    return tuple(each.image for each in containers if each and each.image)


def _image_volumes(spec: _RunningPodSpec | PodSpec) -> tuple[str, ...]:
    return tuple(each.image.reference for each in spec.volumes or () if each and each.image and each.image.reference)


class _ServiceSpec(View, frozen=True):
    selector: dict[str, str] | None = None


class Service(Object, frozen=True):
    """A Service (core/v1), by the pods that it selects."""

    spec: _ServiceSpec | None = None

    @property
    def selector(self) -> dict[str, str]:
        """The labels of its pods; empty: it selects none."""
        return (self.spec.selector if self.spec else None) or {}


SERVICES: Final = Resource("", "v1", "services", "Service", True, Service)


def incoming(
    pod: RunningPod | Pod,
    namespaces: Mapping[str, Mapping[str, str]],
    profiles: Profiles,
    services: Iterable[Mapping[str, str]] = (),
) -> SimulatedPod:
    """A pod that waits for its scheduler.

    Args:
        pod: the pod; where it runs does not matter.
        namespaces: the labels of namespaces by name.
        profiles: those of schedulers that are known.
        services: the selectors of the Services of its namespace.
    """
    namespace, labels, spec = pod.meta.namespace or "", pod.meta.labels or {}, pod.spec or _RunningPodSpec()
    spread = spec.topology_spread_constraints
    rules = rules_of(spec.affinity, spread, namespace, labels, namespaces)
    preferences = preferences_of(spec.affinity, spread, namespace, labels, namespaces)
    profile = profile_of(profiles, spec.scheduler_name or "")
    if not spread and profile.spreads_services:
        preferences = spread_of_services(preferences, namespace, labels, services)
    return SimulatedPod(
        PodInfo(namespace, labels, rules, preferences, pod.meta.deletion_timestamp is not None),
        load_of(spec),
        tuple(each for each in spec.tolerations or () if each),
        preferred_terms(spec.affinity),
        _images(spec),
        _image_volumes(spec),
        profile,
    )


def bound_info(pod: LauncherPod, namespaces: Mapping[str, Mapping[str, str]]) -> PodInfo:
    """A pod that has a node, by those of its rules that still count: what it keeps off, and what it pulls."""
    namespace, labels = pod.meta.namespace or "", pod.meta.labels or {}
    is_terminating = pod.meta.deletion_timestamp is not None
    affinity = pod.spec.affinity if pod.spec else None
    if affinity is None or (affinity.pod_anti_affinity is None and affinity.pod_affinity is None):
        return PodInfo(namespace, labels, is_terminating=is_terminating)
    rules = PodConstraints(anti_affinity=rules_of(affinity, (), namespace, labels, namespaces).anti_affinity)
    pulls = preferences_of(affinity, (), namespace, labels, namespaces).pulls
    return PodInfo(namespace, labels, rules, PodPreferences(pulls=pulls), is_terminating)
