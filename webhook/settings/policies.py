"""The settings file's sections of the policies."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from webhook import names
from webhook.settings import snapshot
from webhook.settings.blackout import BlackoutModel
from webhook.settings.section import Section
from webhook.settings.syntax import Pattern, Reference, Requester, SchedulerName, mistake


class SchedulingModel(Section):
    """The scheduling policy: sets schedulerName of VMs whose owners set none."""

    cluster_wide: bool = Field(
        default=False,
        description=f"Also enforce in namespaces without the label {names.policy_label(names.SCHEDULING)}.",
    )
    scheduler_name: SchedulerName = Field(
        default="kubevirt",
        description="Scheduler declared under schedulers, for namespaces without the annotation "
        f"{names.SCHEDULER_NAME_ANNOTATION}. If only one scheduler is declared, it is the default.",
    )
    virtual_machines: bool = Field(
        default=True, description="Also set schedulerName in VirtualMachines when they are created."
    )
    virtual_machine_instances: bool = Field(
        default=False, description="Also set schedulerName in VirtualMachineInstances when they are created."
    )
    spread: names.Spread = Field(
        default="off",
        description="Soft topology spread constraints of launcher pods whose owners set none, for namespaces without "
        f"the annotation {names.SPREAD_ANNOTATION}.",
    )
    spread_virtual_machines: bool = Field(
        default=False, description="Also set the constraints in VirtualMachines when they are created."
    )
    spread_virtual_machine_instances: bool = Field(
        default=False, description="Also set the constraints in VirtualMachineInstances when they are created."
    )


class Fidelity(Section):
    """The fidelity check: it compares running VMs with the result of KubeVirt's rules in kubevirt-webhook."""

    sample: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="Number of VMs in a round; 0 disables the check. It requires permission to list and get "
        "virtualmachines, and to get virtualmachineinstances and controllerrevisions.",
        examples=[20],
    )
    every_minutes: int = Field(default=10, ge=1, le=1440, description="Minutes between rounds.")

    def snapshot(self) -> snapshot.FidelitySettings:
        """The section as the request path reads it."""
        return snapshot.FidelitySettings(sample=self.sample, every_seconds=60.0 * self.every_minutes)


class InstancetypesModel(Section):
    """The instancetypes policy: default instancetypes and preferences, an allow-list, and early denials."""

    cluster_wide: bool = Field(
        default=False,
        description=f"Also enforce in namespaces without the label {names.policy_label(names.INSTANCETYPES)}.",
    )
    default_instancetype: Reference = Field(
        default="",
        description="Instancetype of VMs and VMIs whose owners set no size, for namespaces without the annotation "
        f"{names.DEFAULT_INSTANCETYPE_ANNOTATION}: NAME (cluster-wide) or KIND/NAME. Empty: none.",
        examples=["u1.medium"],
    )
    default_preference: Reference = Field(
        default="",
        description="Preference of VMs and VMIs whose owners set none, for namespaces without the annotation "
        f"{names.DEFAULT_PREFERENCE_ANNOTATION}: NAME (cluster-wide) or KIND/NAME. Empty: none.",
        examples=["fedora"],
    )
    default_preference_scope: Literal["unsized", "all"] = Field(
        default="unsized",
        description="VMs that get the default preference: those whose owners set no size (unsized), or all. For "
        f"namespaces without the annotation {names.DEFAULT_PREFERENCE_SCOPE_ANNOTATION}.",
    )
    allowed: Annotated[tuple[Pattern, ...], Field(strict=False)] | None = Field(
        default=None,
        description="Instancetypes that VMs and VMIs may name, for namespaces without the annotation "
        f"{names.ALLOWED_INSTANCETYPES_ANNOTATION}: NAME (cluster-wide) or KIND/NAME, with * for any characters. "
        "Absent: all.",
        examples=[["u1.*"]],
    )
    missing: Literal["warn", "deny"] = Field(
        default="warn",
        description="Action for a VM that names an instancetype or preference that does not exist. KubeVirt accepts "
        "the VM, and does not start it until they exist.",
    )
    expand: bool = Field(
        default=False,
        description="Write the values of instancetype and preference into new VMs and remove both, for namespaces "
        f"without the annotation {names.EXPAND_INSTANCETYPES_ANNOTATION}. GitOps tools then report a difference.",
    )
    virtual_machines: bool = Field(default=True, description="Apply the policy to VirtualMachines.")
    virtual_machine_instances: bool = Field(
        default=True, description="Apply the policy to VirtualMachineInstances without a VirtualMachine."
    )
    parity: Fidelity = Field(default=Fidelity(), description=Fidelity.__doc__)
    failure_policy: Literal["Ignore", "Fail"] = Field(
        default="Ignore",
        description="Action for new and changed VMs while kubevirt-webhook is down or cannot determine whether their "
        "instancetype is allowed. Ignore: they are allowed; Fail: they are denied.",
    )

    def snapshot(self) -> snapshot.InstancetypeSettings:
        """The section as the request path reads it."""
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
    """The migration policy: enforces addedNodeSelector, and denies migrations that cannot meet it."""

    cluster_wide: bool = Field(
        default=False,
        description=f"Also enforce in namespaces without the label {names.policy_label(names.MIGRATION)}.",
    )
    collision: Literal["deny", "warn", "ignore"] = Field(
        default="deny",
        description="Action for a selector that contradicts the VM's own requirements. ignore: KubeVirt drops the "
        "added value, and the migration goes to a node that the VM itself permits.",
    )
    no_eligible_node: Literal["deny", "warn", "ignore"] = Field(
        default="deny",
        description="Action for a migration without an eligible node. Use warn or ignore with an autoscaler.",
    )
    reserved_keys: Literal["deny", "allow"] = Field(
        default="deny",
        description="Action for a selector with keys that KubeVirt itself sets, for example CPU vendors.",
    )
    require_right: bool = Field(
        default=False,
        description=f"Require the verb use on migrationtargets.{names.DOMAIN} in the VM's namespace.",
    )
    via_virtctl: Literal["allow", "deny"] = Field(
        default="allow",
        description="With requireRight: action for migrations by virtctl, whose user KubeVirt does not pass on.",
    )
    max_unfinished: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="Maximum number of unfinished user migrations in a namespace; 0: no limit.",
    )
    failure_policy: Literal["Ignore", "Fail"] = Field(
        default="Fail",
        description="Action for new migrations with addedNodeSelector while kubevirt-webhook is down or cannot "
        "determine their nodes. Fail: they are denied; Ignore: they are allowed, and not enforced.",
    )

    def snapshot(self, kubevirt_namespace: str) -> snapshot.MigrationSettings:
        """The section as the request path reads it.

        Args:
            kubevirt_namespace: the namespace where KubeVirt runs; empty: wherever a KubeVirt object is.
        """
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
    """The eviction policy: denies evictions by the descheduler that cannot succeed, and limits their rate."""

    cluster_wide: bool = Field(
        default=False, description=f"Also enforce in namespaces without the label {names.policy_label(names.EVICTION)}."
    )
    requesters: Annotated[tuple[Requester, ...], Field(strict=False)] = Field(
        default=("sigs.k8s.io/descheduler",),
        description="Values of the annotation requested-by of evictions to evaluate; drains have no such annotation.",
    )
    cool_down_seconds: int = Field(
        default=300,
        ge=0,
        le=86_400,
        description="How long a VM is not evicted after a migration; doubled by each further migration. 0: off.",
    )
    max_cool_down_seconds: int = Field(
        default=3600, ge=0, le=604_800, description="Maximum of the doubled time; at least coolDownSeconds."
    )
    max_per_namespace: int = Field(
        default=0, ge=0, le=10_000, description="Maximum number of unfinished evacuations in a namespace; 0: no limit."
    )
    max_per_cluster: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="Maximum number of unfinished evacuations in the cluster; 0: no limit. With a limit, each "
        "evaluated eviction lists all migrations of the cluster.",
    )
    blackouts: Annotated[tuple[BlackoutModel, ...], Field(strict=False)] = Field(
        default=(), description="Times of the week when the descheduler evicts no VM."
    )

    @field_validator("max_cool_down_seconds")
    @classmethod
    def _is_no_less(cls, longest: int, info: ValidationInfo) -> int:
        shortest = info.data.get("cool_down_seconds", 0)
        if longest < shortest:
            raise mistake(
                "too-short", f"{longest} is less than coolDownSeconds ({shortest})", f"use {shortest} or more"
            )
        return longest

    def snapshot(self, kubevirt_namespace: str) -> snapshot.EvictionSettings:
        """The section as the request path reads it.

        Args:
            kubevirt_namespace: the namespace where KubeVirt runs; empty: wherever a KubeVirt object is.
        """
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
