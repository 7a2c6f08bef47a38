"""The section ``instancetypes`` of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    Field,
)

from webhook import names
from webhook.settings.fields import SUBDOMAIN, Items, Syntax, one_of
from webhook.settings.policy_section import FailurePolicy, PolicySettings
from webhook.settings.section import Section

Reference = Annotated[
    str,
    Syntax("reference to an instancetype or preference", f"(([A-Za-z]+/)?{SUBDOMAIN})?", 317, "use NAME or KIND/NAME"),
]
Pattern = Annotated[
    str, Syntax("instancetype pattern", "([A-Za-z]+/)?[a-z0-9*][-a-z0-9.*]*", 317, "use NAME or KIND/NAME")
]


class FidelitySettings(Section):
    """The fidelity check: it compares running VMs with the result of KubeVirt's rules in kubevirt-webhook."""

    sample: int = Field(
        default=0,
        ge=0,
        le=1000,
        examples=[20],
        description=(
            "Number of VMs in a round; 0 disables the check. It requires permission to list and get virtualmachines,"
            " and to get virtualmachineinstances and controllerrevisions."
        ),
    )
    every_minutes: int = Field(default=10, ge=1, le=1440, description="Minutes between rounds.")


DEFAULT_PREFERENCE_SCOPE_ANNOTATION: Final = f"{names.DOMAIN}/default-preference-scope"


class InstancetypeSettings(PolicySettings):
    """The instancetypes policy: default instancetypes and preferences, an allow-list, and early denials."""

    cluster_wide: bool = Field(
        default=False,
        description="Also enforce in namespaces without the label kubevirt-webhook.github.io/instancetypes.",
    )
    default_instancetype: Reference = Field(
        default="",
        examples=["u1.medium"],
        description=(
            "Instancetype of VMs and VMIs whose owners set no size, for namespaces without the annotation"
            " kubevirt-webhook.github.io/default-instancetype: NAME (cluster-wide) or KIND/NAME. Empty: none."
        ),
    )
    default_preference: Reference = Field(
        default="",
        examples=["fedora"],
        description=(
            "Preference of VMs and VMIs whose owners set none, for namespaces without the annotation"
            " kubevirt-webhook.github.io/default-preference: NAME (cluster-wide) or KIND/NAME. Empty: none."
        ),
    )
    default_preference_scope: Annotated[str, one_of("unsized", "all")] = Field(
        default="unsized",
        description=(
            "VMs that get the default preference: those whose owners set no size (unsized), or all. For namespaces"
            " without the annotation kubevirt-webhook.github.io/default-preference-scope."
        ),
    )
    allowed: Items[Pattern] | None = Field(
        default=None,
        examples=[["u1.*"]],
        description=(
            "Instancetypes that VMs and VMIs may name, for namespaces without the annotation"
            " kubevirt-webhook.github.io/allowed-instancetypes: NAME (cluster-wide) or KIND/NAME, with * for any"
            " characters. Absent: all. A VM that sets CPU and memory itself names none, so the list does not limit it:"
            " the policy sizes does."
        ),
    )
    missing: Literal["warn", "deny"] = Field(
        default="warn",
        description=(
            "Action for a VM that names an instancetype or preference that does not exist. KubeVirt accepts the VM, and"
            " does not start it until they exist."
        ),
    )
    expand: bool = Field(
        default=False,
        description=(
            "Write the values of instancetype and preference into new VMs and remove both, for namespaces without the"
            " annotation kubevirt-webhook.github.io/expand-instancetypes. GitOps tools then report a difference."
        ),
    )
    virtual_machines: bool = Field(default=True, description="Apply the policy to VirtualMachines.")
    virtual_machine_instances: bool = Field(
        default=True, description="Apply the policy to VirtualMachineInstances without a VirtualMachine."
    )
    fidelity_check: FidelitySettings = FidelitySettings()
    failure_policy: FailurePolicy = Field(
        default="Ignore",
        description=(
            "Action for new and changed VMs while kubevirt-webhook is down or cannot determine whether their"
            " instancetype is allowed. Ignore: they are allowed; Fail: they are denied."
        ),
    )

    @property
    def fails_closed(self) -> bool:
        """Whether ``failurePolicy`` is Fail."""
        return self.failure_policy == "Fail"

    def with_annotations(self, annotations: Mapping[str, str]) -> Self:
        """The section with the namespace's own defaults, allow-list and expansion; each replaces the section's."""
        changed: dict[str, Any] = {}
        for name, annotation in _INSTANCETYPE_PARAMETERS.items():
            if annotation in annotations:
                changed[name] = annotations[annotation].strip()
        if names.ALLOWED_INSTANCETYPES_ANNOTATION in annotations:
            listed = annotations[names.ALLOWED_INSTANCETYPES_ANNOTATION].split(",")
            changed["allowed"] = tuple(pattern for entry in listed if (pattern := entry.strip()))
        if names.EXPAND_INSTANCETYPES_ANNOTATION in annotations:
            changed["expand"] = annotations[names.EXPAND_INSTANCETYPES_ANNOTATION].strip() == "true"
        return self.model_copy(update=changed) if changed else self


_INSTANCETYPE_PARAMETERS: Final = {
    "default_instancetype": names.DEFAULT_INSTANCETYPE_ANNOTATION,
    "default_preference": names.DEFAULT_PREFERENCE_ANNOTATION,
    "default_preference_scope": DEFAULT_PREFERENCE_SCOPE_ANNOTATION,
}
