"""KubeVirt's configuration, as far as it decides over nodes."""

from __future__ import annotations

from typing import Final

from webhook.k8s.views import Object, View

_HYPERV_DIRECT: Final = "hyperv-direct"


class Developer(View, frozen=True):
    node_selectors: dict[str, str] | None = None
    feature_gates: list[str] | None = None
    use_emulation: bool | None = None
    cpu_allocation_ratio: int | None = None
    memory_overcommit: int | None = None


class Hypervisor(View, frozen=True):
    name: str | None = None


class PlacementConfiguration(View, frozen=True):
    default_runtime_class: str | None = None
    developer_configuration: Developer | None = None
    hypervisors: list[Hypervisor | None] | None = None


class PlacementKubeVirtSpec(View, frozen=True):
    configuration: PlacementConfiguration | None = None


class PlacementKubeVirt(Object, frozen=True):
    """The KubeVirt object."""

    spec: PlacementKubeVirtSpec | None = None

    @property
    def configuration(self) -> PlacementConfiguration:
        return (self.spec.configuration if self.spec else None) or PlacementConfiguration()

    @property
    def developer(self) -> Developer:
        return self.configuration.developer_configuration or Developer()

    @property
    def needs_kvm(self) -> bool:
        """Whether launcher pods request the device of KVM: not where it is emulated, or by another hypervisor."""
        if self.developer.use_emulation:
            return False
        first = next(iter(self.configuration.hypervisors or ()), None)
        return not (first and first.name == _HYPERV_DIRECT and self.is_enabled("ConfigurableHypervisor"))

    def is_enabled(self, gate: str) -> bool:
        """Whether a feature gate is open."""
        return gate in (self.developer.feature_gates or ())


BUILT_IN: Final = PlacementKubeVirt()
