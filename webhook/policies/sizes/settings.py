"""The section ``sizes`` of the settings, and the limits that a namespace's annotation has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Self

from pydantic import Field, ValidationInfo, field_validator

from webhook import names
from webhook.errors import InputError
from webhook.k8s import quantity
from webhook.settings.annotations import parse_json
from webhook.settings.fields import Derived, Items, derived, form, mistake
from webhook.settings.mistakes import validate_field
from webhook.settings.policy_section import FailurePolicy, PolicySettings
from webhook.settings.section import Section

REQUIRE_INSTANCETYPE_ANNOTATION: Final = f"{names.DOMAIN}/require-instancetype"
SIZE_LIMITS_ANNOTATION: Final = f"{names.DOMAIN}/size-limits"
_MOST_CPUS: Final = 100_000


def _is_amount(text: str) -> bool:
    try:
        return not text or quantity.parse(text).value > 0
    except InputError:
        return False


Amount = Annotated[str, form(_is_amount, "is not an amount of memory", "use for example 512Mi or 16Gi")]


def amount(text: str) -> int:
    """The bytes of an `Amount`; 0: it is empty."""
    return quantity.parse(text).value if text else 0


def _check_range(most: str, info: ValidationInfo) -> str:
    least = info.data.get("min", "")
    if most and amount(most) < amount(least):
        raise mistake("too-small", f"{most} is less than min ({least})", f"use {least} or more")
    return most


class CpuLimits(Section):
    """How many vCPUs a VM may have."""

    min: int = Field(default=1, ge=1, le=_MOST_CPUS, description="Fewest vCPUs.")
    max: int = Field(
        default=0, ge=0, le=_MOST_CPUS, examples=[16], description="Most vCPUs, and CPUs that are requested; 0: any."
    )
    step: int = Field(default=1, ge=1, le=_MOST_CPUS, description="The number of vCPUs is a multiple of this.")

    @field_validator("max")
    @classmethod
    def _check_max(cls, most: int, info: ValidationInfo) -> int:
        least = info.data.get("min", 0)
        if 0 < most < least:
            raise mistake("too-small", f"{most} is less than min ({least})", f"use {least} or more, or 0 for any")
        return most


class MemoryLimits(Section):
    """How much memory a guest may have."""

    min: Amount = Field(default="", examples=["1Gi"], description="Least memory of the guest. Empty: any.")
    max: Amount = Field(
        default="", examples=["64Gi"], description="Most memory of the guest, and that is requested. Empty: any."
    )
    step: Amount = Field(
        default="", examples=["512Mi"], description="The guest's memory is a multiple of this. Empty: any amount."
    )

    _check_max = field_validator("max")(_check_range)


class RatioLimits(Section):
    """How much memory a guest may have for each of its vCPUs."""

    min: Amount = Field(default="", examples=["1Gi"], description="Least memory for each vCPU. Empty: any.")
    max: Amount = Field(default="", examples=["8Gi"], description="Most memory for each vCPU. Empty: any.")

    _check_max = field_validator("max")(_check_range)


class SizeLimits(Section):
    """A range of sizes."""

    cpu: CpuLimits = CpuLimits()
    memory: MemoryLimits = MemoryLimits()
    memory_per_cpu: RatioLimits = RatioLimits()

    @property
    def text(self) -> str:
        """The range for people; empty: it holds every size."""
        return ", ".join(self._parts())

    def _parts(self) -> Iterator[str]:
        cpu, memory, ratio = self.cpu, self.memory, self.memory_per_cpu
        cpus = _range(str(cpu.min) if cpu.min > 1 or cpu.max else "", str(cpu.max or ""))
        if cpus or cpu.step > 1:
            steps = f" in steps of {cpu.step}" if cpu.step > 1 else ""
            yield f"{cpus or 'any number of'} vCPUs{steps}"
        amounts = _range(memory.min, memory.max)
        if amounts or memory.step:
            yield f"{amounts or 'any'} memory{f' in steps of {memory.step}' if memory.step else ''}"
        if amounts := _range(ratio.min, ratio.max):
            yield f"{amounts} memory per vCPU"


def _range(least: str, most: str) -> str:
    if least and most:
        return least if least == most else f"{least} to {most}"
    return f"{least} or more" if least else f"up to {most}" if most else ""


class _Annotation(Section):
    several: Items[SizeLimits] = ()
    one: SizeLimits = SizeLimits()


class SizeSettings(PolicySettings):
    """The sizes policy: VMs need an instancetype, or set only sizes within limits."""

    cluster_wide: bool = Field(
        default=False, description="Also enforce in namespaces without the label kubevirt-webhook.github.io/sizes."
    )
    require_instancetype: bool = Field(
        default=False,
        description=(
            "VMs and VMIs may not set CPU and memory themselves, for namespaces without the annotation"
            " kubevirt-webhook.github.io/require-instancetype. What they may name says instancetypes.allowed."
        ),
    )
    limits: Items[SizeLimits] = Field(
        default=(),
        description=(
            "Ranges of the sizes that VMs and VMIs may set themselves, each for the numbers of vCPUs that it says; a"
            " size has to be in one of them. For namespaces without the annotation"
            " kubevirt-webhook.github.io/size-limits. Empty: any size."
        ),
    )
    failure_policy: FailurePolicy = Field(
        default="Ignore",
        description=(
            "Action for VMs and VMIs with a new size while kubevirt-webhook is down or cannot evaluate it. Ignore: they"
            " are allowed; Fail: they are denied."
        ),
    )
    # The instancetypes that the namespace's own list allows, for a text; empty: it has no list.
    allowed_instancetypes: Derived[str] = derived("")

    @property
    def fails_closed(self) -> bool:
        """Whether ``failurePolicy`` is Fail."""
        return self.failure_policy == "Fail"

    def with_annotations(self, annotations: Mapping[str, str]) -> Self:
        """The section with the namespace's own limits and rule; each replaces the section's, if it can be read."""
        return self.replace_by(
            annotations,
            {
                REQUIRE_INSTANCETYPE_ANNOTATION: lambda text: {"require_instancetype": text.strip() == "true"},
                SIZE_LIMITS_ANNOTATION: lambda text: {"limits": read_limits(text)},
                names.ALLOWED_INSTANCETYPES_ANNOTATION: lambda text: {"allowed_instancetypes": text.strip()},
            },
        )


def read_limits(text: str) -> tuple[SizeLimits, ...]:
    """The limits in a namespace's annotation: JSON of one range, or of a list of them; empty: none.

    Raises:
        InputError: what is wrong with it.
    """
    if not text.strip():
        return ()
    value = parse_json(text, '{"cpu": {"max": 8}}')
    if isinstance(value, list):
        several: tuple[SizeLimits, ...] = validate_field(value, _Annotation, "several")
        return several
    return (validate_field(value, _Annotation, "one"),)
