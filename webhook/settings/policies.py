"""The settings file's sections of the policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationInfo, field_validator

from webhook import names
from webhook.settings import snapshot
from webhook.settings.syntax import Pattern, Reference, Requester, SchedulerName, Section, Syntax, mistake


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
        fields = self.fields(snapshot.InstancetypeSettings) | {"parity": self.parity.snapshot()}
        return snapshot.InstancetypeSettings(**fields, preference_scope=self.default_preference_scope)


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


Day = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
DAYS: Final[tuple[Day, ...]] = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

_DAY: Final = 24 * 60

_WRITE_TIME: Final = "use HH:MM, from 00:00 to 24:00"
TimeOfDay = Annotated[str, Syntax("time of day", "([01][0-9]|2[0-3]):[0-5][0-9]|24:00", 5, _WRITE_TIME)]
# Zones are UTC or a fixed offset: a named zone changes with daylight saving time, and would make the decision depend on
# the zone data of the machine.
Zone = Annotated[
    str,
    Syntax(
        "time zone",
        "UTC|[-+](0[0-9]|1[0-4]):[0-5][0-9]",
        40,
        "use UTC or an offset such as +02:00; zone names are not supported",
    ),
]


class BlackoutModel(Section):
    """A time of the week."""

    days: Annotated[tuple[Day, ...], Field(strict=False)] = Field(
        default=DAYS, description="Days on which it begins. Absent: every day."
    )
    begin: TimeOfDay = Field(alias="from", description="Begin, as HH:MM.", examples=["08:00"])
    end: TimeOfDay = Field(
        alias="to", description="End, as HH:MM; on the next day if it is earlier than the begin.", examples=["18:00"]
    )
    time_zone: Zone = Field(
        default="UTC", description="Time zone: UTC or an offset such as +02:00. Zone names are not supported."
    )

    @field_validator("end")
    @classmethod
    def _check_end(cls, end: str, info: ValidationInfo) -> str:
        if end == info.data.get("begin"):
            raise mistake("empty-time", f"begin and end are equal ({end})", "for whole days use 00:00 to 24:00")
        return end

    def snapshot(self) -> snapshot.Blackout:
        """The blackout in minutes of a week in UTC."""
        days = [day for day in DAYS if day in self.days]
        name = "every day" if len(days) == len(DAYS) else ", ".join(days)
        text = f"{name} from {self.begin} to {self.end} {self.time_zone}"
        return snapshot.Blackout(text, tuple(sorted(self._spans())))

    def _spans(self) -> Iterator[tuple[int, int]]:
        begin, end = _minutes(self.begin), _minutes(self.end)
        lasts = end - begin if end > begin else end - begin + _DAY
        zone = self.time_zone
        ahead = 0 if zone == "UTC" else int(f"{zone[0]}1") * _minutes(zone[1:])
        for day in self.days:
            start = (DAYS.index(day) * _DAY + begin - ahead) % snapshot.WEEK
            yield start, min(start + lasts, snapshot.WEEK)
            if start + lasts > snapshot.WEEK:
                yield 0, start + lasts - snapshot.WEEK


def _minutes(text: str) -> int:
    hours, _, minutes = text.partition(":")
    return int(hours) * 60 + int(minutes)


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
        fields = self.fields(snapshot.EvictionSettings)
        fields["blackouts"] = tuple(blackout.snapshot() for blackout in self.blackouts)
        return snapshot.EvictionSettings(**fields, kubevirt_namespace=kubevirt_namespace)
