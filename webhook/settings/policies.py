"""The settings file's sections of the policies, one each."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from webhook import names
from webhook.settings import snapshot
from webhook.settings.blackout import BlackoutModel
from webhook.settings.section import Section
from webhook.settings.syntax import Pattern, Reference, Requester, SchedulerName, mistake


class SchedulingModel(Section):
    """The scheduling policy: a scheduler's name for VMs whose owners chose none."""

    cluster_wide: bool = Field(
        default=False,
        description=f"Enforce in namespaces without the label {names.policy_label(names.SCHEDULING)} too.",
    )
    scheduler_name: SchedulerName = Field(
        default="kubevirt",
        description="The scheduler, one of those under schedulers, where a namespace has no annotation "
        f"{names.SCHEDULER_NAME_ANNOTATION}; where only one is declared, it is that one.",
    )
    virtual_machines: bool = Field(
        default=True, description="Write the name into VirtualMachines too, when they are created."
    )
    virtual_machine_instances: bool = Field(
        default=False, description="Write the name into VirtualMachineInstances too, when they are created."
    )
    spread: names.Spread = Field(
        default="off",
        description="The soft topology spread constraints that launcher pods get whose owners set none, where a "
        f"namespace has no annotation {names.SPREAD_ANNOTATION}.",
    )
    spread_virtual_machines: bool = Field(
        default=False, description="Write the constraints into VirtualMachines too, when they are created."
    )
    spread_virtual_machine_instances: bool = Field(
        default=False, description="Write the constraints into VirtualMachineInstances too, when they are created."
    )


class Parity(Section):
    """Outside admission, some running VMs are compared with what KubeVirt's rules, as we know them, make of them."""

    sample: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="VMs in a round; 0 switches it off. It needs the rights to list and get virtualmachines and to get "
        "virtualmachineinstances and controllerrevisions.",
        examples=[20],
    )
    every_minutes: int = Field(default=10, ge=1, le=1440, description="From one round to the next.")

    def snapshot(self) -> snapshot.ParitySettings:
        return snapshot.ParitySettings(sample=self.sample, every_seconds=60.0 * self.every_minutes)


class InstancetypesModel(Section):
    """The instancetypes policy: sizes and preferences for VMs whose owners chose none, and clear refusals."""

    cluster_wide: bool = Field(
        default=False,
        description=f"Enforce in namespaces without the label {names.policy_label(names.INSTANCETYPES)} too.",
    )
    default_instancetype: Reference = Field(
        default="",
        description="The instancetype of VMs and VMIs whose owners chose no size, where a namespace has no annotation "
        f"{names.DEFAULT_INSTANCETYPE_ANNOTATION}: NAME (cluster-wide) or KIND/NAME; empty: none.",
        examples=["u1.medium"],
    )
    default_preference: Reference = Field(
        default="",
        description="The preference of VMs and VMIs without one, where a namespace has no annotation "
        f"{names.DEFAULT_PREFERENCE_ANNOTATION}: NAME (cluster-wide) or KIND/NAME; empty: none.",
        examples=["fedora"],
    )
    default_preference_scope: Literal["unsized", "all"] = Field(
        default="unsized",
        description="Whether VMs whose owners chose a size get the default preference too (all), where a namespace has "
        f"no annotation {names.DEFAULT_PREFERENCE_SCOPE_ANNOTATION}.",
    )
    allowed: Annotated[tuple[Pattern, ...], Field(strict=False)] | None = Field(
        default=None,
        description="The only instancetypes that VMs and VMIs may name, where a namespace has no annotation "
        f"{names.ALLOWED_INSTANCETYPES_ANNOTATION}: NAME (cluster-wide) or KIND/NAME, with * for any characters; "
        "absent: all.",
        examples=[["u1.*"]],
    )
    missing: Literal["warn", "deny"] = Field(
        default="warn",
        description="What becomes of a VM that names an instancetype or preference that isn't there. KubeVirt admits "
        "it, and does not start it until they are.",
    )
    expand: bool = Field(
        default=False,
        description="Write what instancetype and preference say into new VMs and remove both, where a namespace has no "
        f"annotation {names.EXPAND_INSTANCETYPES_ANNOTATION}. GitOps tools then see a difference for ever.",
    )
    virtual_machines: bool = Field(default=True, description="Judge VirtualMachines.")
    virtual_machine_instances: bool = Field(
        default=True, description="Fill VirtualMachineInstances that no VirtualMachine stands behind."
    )
    parity: Parity = Field(default=Parity(), description=Parity.__doc__)
    failure_policy: Literal["Ignore", "Fail"] = Field(
        default="Ignore",
        description="What becomes of new VMs, and of changed ones, while kubevirt-webhook is down or cannot tell "
        "whether their instancetype is allowed. Ignore: they are admitted, whatever the list says; Fail: denied.",
    )

    def snapshot(self) -> snapshot.InstancetypeSettings:
        return snapshot.InstancetypeSettings(
            cluster_wide=self.cluster_wide,
            default_instancetype=self.default_instancetype,
            default_preference=self.default_preference,
            preference_scope=self.default_preference_scope,
            allowed=self.allowed,
            missing=self.missing,
            expand=self.expand,
            virtual_machines=self.virtual_machines,
            virtual_machine_instances=self.virtual_machine_instances,
            parity=self.parity.snapshot(),
            failure_policy=self.failure_policy,
        )


class MigrationModel(Section):
    """The migration policy: user migrations with addedNodeSelector as a pure AND, refused early where it can't hold."""

    cluster_wide: bool = Field(
        default=False, description=f"Enforce in namespaces without the label {names.policy_label(names.MIGRATION)} too."
    )
    collision: Literal["deny", "warn", "ignore"] = Field(
        default="deny",
        description="What becomes of a selector that contradicts what the VM requires anyway. ignore: as in KubeVirt "
        "alone, the added value is dropped and the migration goes where the VM itself may.",
    )
    no_eligible_node: Literal["deny", "warn", "ignore"] = Field(
        default="deny",
        description="What becomes of a migration that no node is eligible for now; warn or ignore it where an "
        "autoscaler may add nodes.",
    )
    reserved_keys: Literal["deny", "allow"] = Field(
        default="deny", description="Whether a selector may have keys that KubeVirt itself writes, such as CPU vendors."
    )
    require_right: bool = Field(
        default=False,
        description=f"Users need the verb use on migrationtargets.{names.DOMAIN} in the VM's namespace.",
    )
    via_virtctl: Literal["allow", "deny"] = Field(
        default="allow",
        description="With requireRight: whether virtctl may, behind which KubeVirt hides who asks.",
    )
    max_unfinished: int = Field(
        default=0, ge=0, le=10_000, description="Unfinished user migrations that a namespace may have; 0: any number."
    )
    failure_policy: Literal["Ignore", "Fail"] = Field(
        default="Fail",
        description="What becomes of new migrations with addedNodeSelector while kubevirt-webhook is down or cannot "
        "tell where they may go. Fail: they are denied; Ignore: they are created, and held to nothing.",
    )

    def snapshot(self, kubevirt_namespace: str) -> snapshot.MigrationSettings:
        return snapshot.MigrationSettings(
            cluster_wide=self.cluster_wide,
            collision=self.collision,
            no_eligible_node=self.no_eligible_node,
            reserved_keys=self.reserved_keys,
            require_right=self.require_right,
            via_virtctl=self.via_virtctl,
            max_unfinished=self.max_unfinished,
            failure_policy=self.failure_policy,
            kubevirt_namespace=kubevirt_namespace,
        )


class EvictionModel(Section):
    """The eviction policy: the descheduler's evictions of VMs, vetoed where they could only fail, and paced."""

    cluster_wide: bool = Field(
        default=False, description=f"Enforce in namespaces without the label {names.policy_label(names.EVICTION)} too."
    )
    requesters: Annotated[tuple[Requester, ...], Field(strict=False)] = Field(
        default=("sigs.k8s.io/descheduler",),
        description="Evictions are judged only if their annotation requested-by says one of these; drains have none.",
    )
    cool_down_seconds: int = Field(
        default=300,
        ge=0,
        le=86_400,
        description="How long a VM stays where it is after a migration; doubled with each that follows soon; 0: not.",
    )
    max_cool_down_seconds: int = Field(
        default=3600, ge=0, le=604_800, description="What the doubling ends at; at least coolDownSeconds."
    )
    max_per_namespace: int = Field(
        default=0, ge=0, le=10_000, description="Unfinished evacuations that a namespace may have; 0: any number."
    )
    max_per_cluster: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="Unfinished evacuations that the cluster may have; 0: any number. With it each judged eviction "
        "lists all migrations of the cluster.",
    )
    blackouts: Annotated[tuple[BlackoutModel, ...], Field(strict=False)] = Field(
        default=(), description="Times of the week when the descheduler evicts no VM."
    )

    @field_validator("max_cool_down_seconds")
    @classmethod
    def _is_no_less(cls, longest: int, info: ValidationInfo) -> int:
        shortest = info.data.get("cool_down_seconds", 0)
        if longest < shortest:
            raise mistake(f"{longest} is less than coolDownSeconds ({shortest})", f"write at least {shortest}")
        return longest

    def snapshot(self, kubevirt_namespace: str) -> snapshot.EvictionSettings:
        return snapshot.EvictionSettings(
            cluster_wide=self.cluster_wide,
            requesters=self.requesters,
            cool_down_seconds=self.cool_down_seconds,
            max_cool_down_seconds=self.max_cool_down_seconds,
            max_per_namespace=self.max_per_namespace,
            max_per_cluster=self.max_per_cluster,
            blackouts=tuple(blackout.snapshot() for blackout in self.blackouts),
            kubevirt_namespace=kubevirt_namespace,
        )
