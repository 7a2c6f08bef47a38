"""The section ``scheduling`` of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import BeforeValidator, Field

from webhook import names
from webhook.settings.fields import Derived, SchedulerName, derived, one_of
from webhook.settings.policy_section import PolicySettings
from webhook.settings.schedulers import SchedulerSettings, undeclared


class SchedulingSettings(PolicySettings):
    """The scheduling policy: sets schedulerName of VMs whose owners set none."""

    cluster_wide: bool = Field(
        default=False, description="Also enforce in namespaces without the label kubevirt-webhook.github.io/scheduling."
    )
    scheduler_name: SchedulerName = Field(
        default="kubevirt",
        description=(
            "Scheduler declared under schedulers, for namespaces without the annotation"
            " kubevirt-webhook.github.io/scheduler-name. If only one scheduler is declared, it is the default."
        ),
    )
    virtual_machines: bool = Field(
        default=True, description="Also set schedulerName in VirtualMachines when they are created."
    )
    virtual_machine_instances: bool = Field(
        default=False, description="Also set schedulerName in VirtualMachineInstances when they are created."
    )
    # A test's settings stand among objects, where `off` without quotes is a boolean, as to kubectl.
    spread: Annotated[
        str, one_of(*names.SPREADS), BeforeValidator(lambda value: "off" if value is False else value)
    ] = Field(
        default="off",
        description=(
            "Soft topology spread constraints of launcher pods whose owners set none, for namespaces without the"
            " annotation kubevirt-webhook.github.io/spread."
        ),
    )
    spread_virtual_machines: bool = Field(
        default=False, description="Also set the constraints in VirtualMachines when they are created."
    )
    spread_virtual_machine_instances: bool = Field(
        default=False, description="Also set the constraints in VirtualMachineInstances when they are created."
    )
    # The only names that may be written, by name.
    schedulers: Derived[Mapping[str, SchedulerSettings]] = derived({})

    @property
    def watched_schedulers(self) -> Mapping[str, SchedulerSettings]:
        """All that it may name."""
        return self.schedulers

    def with_annotations(self, annotations: Mapping[str, str]) -> Self:
        """The section with the namespace's own choices, whether or not they can be followed."""
        scheduler_name = annotations.get(names.SCHEDULER_NAME_ANNOTATION) or self.scheduler_name
        spread = (annotations.get(names.SPREAD_ANNOTATION) or self.spread).strip()
        if scheduler_name == self.scheduler_name and spread == self.spread:
            return self
        return self.model_copy(update={"scheduler_name": scheduler_name, "spread": spread})

    def checked(self, schedulers: Mapping[str, SchedulerSettings]) -> Self:
        """The section with the only declared scheduler where it names none."""
        is_named = "scheduler_name" in self.model_fields_set
        if len(schedulers) == 1 and not is_named:
            return self.model_copy(update={"scheduler_name": next(iter(schedulers))})
        # Topology spread constraints do not require a declared scheduler.
        if (schedulers or is_named) and self.scheduler_name not in schedulers:
            raise undeclared(self.scheduler_name, schedulers)
        return self

    def completed(self, kubevirt_namespace: str, schedulers: Mapping[str, SchedulerSettings]) -> Self:
        """The section with the schedulers that it may name."""
        own = {"kubevirt_namespace": kubevirt_namespace, "schedulers": schedulers}
        return self.model_copy(update=own)
