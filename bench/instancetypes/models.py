"""The objects as pydantic models: what people name in them has a field, everything else is kept."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Model(BaseModel):
    """What all models share: Kubernetes' spelling in JSON, and that fields without a name here are kept."""

    model_config = ConfigDict(extra="allow", alias_generator=to_camel, populate_by_name=True)

    def plain(self) -> dict[str, Any]:
        """Plain JSON."""
        return self.model_dump(by_alias=True, exclude_none=True)


class ObjectMeta(Model):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    owner_references: list[dict[str, Any]] = Field(default_factory=list)


class Disk(Model):
    name: str
    disk: dict[str, Any] | None = None
    cdrom: dict[str, Any] | None = None
    lun: dict[str, Any] | None = None


class Interface(Model):
    name: str
    model: str | None = None
    ports: list[dict[str, Any]] = Field(default_factory=list)


class Devices(Model):
    disks: list[Disk] = Field(default_factory=list)
    interfaces: list[Interface] = Field(default_factory=list)


class Resources(Model):
    requests: dict[str, str] = Field(default_factory=dict)
    limits: dict[str, str] = Field(default_factory=dict)


class Domain(Model):
    cpu: dict[str, Any] | None = None
    memory: dict[str, Any] | None = None
    devices: Devices = Field(default_factory=Devices)
    resources: Resources = Field(default_factory=Resources)


class Named(Model):
    name: str


class MachineSpec(Model):
    """The spec of a VMI, and of a VM's template."""

    domain: Domain = Field(default_factory=Domain)
    networks: list[Named] = Field(default_factory=list)
    volumes: list[Named] = Field(default_factory=list)
    node_selector: dict[str, str] | None = None
    scheduler_name: str | None = None


class VirtualMachineInstance(Model):
    metadata: ObjectMeta
    spec: MachineSpec


class Matcher(Model):
    name: str
    kind: str | None = None


class Template(Model):
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    spec: MachineSpec


class VirtualMachineSpec(Model):
    instancetype: Matcher | None = None
    preference: Matcher | None = None
    data_volume_templates: list[dict[str, Any]] = Field(default_factory=list)
    template: Template


class VirtualMachine(Model):
    metadata: ObjectMeta
    spec: VirtualMachineSpec


class Cpu(Model):
    guest: int


class Memory(Model):
    guest: str
    overcommit_percent: int = 0


class InstancetypeSpec(Model):
    cpu: Cpu
    memory: Memory


class Instancetype(Model):
    metadata: ObjectMeta
    spec: InstancetypeSpec


class PreferenceSpec(Model):
    cpu: dict[str, Any] = Field(default_factory=dict)
    devices: dict[str, Any] | None = None
    requirements: dict[str, Any] = Field(default_factory=dict)


class Preference(Model):
    metadata: ObjectMeta
    spec: PreferenceSpec


class AdmissionRequest(Model):
    uid: str
    operation: str
    namespace: str | None = None
    object: dict[str, Any]


class AdmissionReview(Model):
    api_version: str
    kind: str
    request: AdmissionRequest
