"""The objects as pydantic models: what people name in them has a field, everything else is kept."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class PydanticModel(BaseModel):
    """What all models share: Kubernetes' spelling in JSON, and that fields without a name here are kept."""

    model_config = ConfigDict(extra="allow", alias_generator=to_camel, populate_by_name=True)

    def plain(self) -> dict[str, Any]:
        """Plain JSON."""
        return self.model_dump(by_alias=True, exclude_none=True)


class ObjectMetaModel(PydanticModel):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    owner_references: list[dict[str, Any]] = Field(default_factory=list)


class DiskModel(PydanticModel):
    name: str
    disk: dict[str, Any] | None = None
    cdrom: dict[str, Any] | None = None
    lun: dict[str, Any] | None = None


class Interface(PydanticModel):
    name: str
    model: str | None = None
    ports: list[dict[str, Any]] = Field(default_factory=list)


class DevicesModel(PydanticModel):
    disks: list[DiskModel] = Field(default_factory=list)
    interfaces: list[Interface] = Field(default_factory=list)


class ResourcesModel(PydanticModel):
    requests: dict[str, str] = Field(default_factory=dict)
    limits: dict[str, str] = Field(default_factory=dict)


class DomainModel(PydanticModel):
    cpu: dict[str, Any] | None = None
    memory: dict[str, Any] | None = None
    devices: DevicesModel = Field(default_factory=DevicesModel)
    resources: ResourcesModel = Field(default_factory=ResourcesModel)


class NamedModel(PydanticModel):
    name: str


class MachineSpec(PydanticModel):
    """The spec of a VMI, and of a VM's template."""

    domain: DomainModel = Field(default_factory=DomainModel)
    networks: list[NamedModel] = Field(default_factory=list)
    volumes: list[NamedModel] = Field(default_factory=list)
    node_selector: dict[str, str] | None = None
    scheduler_name: str | None = None


class VirtualMachineInstanceModel(PydanticModel):
    metadata: ObjectMetaModel
    spec: MachineSpec


class MatcherModel(PydanticModel):
    name: str
    kind: str | None = None


class TemplateModel(PydanticModel):
    metadata: ObjectMetaModel = Field(default_factory=ObjectMetaModel)
    spec: MachineSpec


class VirtualMachineSpecModel(PydanticModel):
    instancetype: MatcherModel | None = None
    preference: MatcherModel | None = None
    data_volume_templates: list[dict[str, Any]] = Field(default_factory=list)
    template: TemplateModel


class VirtualMachineModel(PydanticModel):
    metadata: ObjectMetaModel
    spec: VirtualMachineSpecModel


class CpuModel(PydanticModel):
    guest: int


class MemoryModel(PydanticModel):
    guest: str
    overcommit_percent: int = 0


class InstancetypeSpecModel(PydanticModel):
    cpu: CpuModel
    memory: MemoryModel


class InstancetypeModel(PydanticModel):
    metadata: ObjectMetaModel
    spec: InstancetypeSpecModel


class PreferenceSpec(PydanticModel):
    cpu: dict[str, Any] = Field(default_factory=dict)
    devices: dict[str, Any] | None = None
    requirements: dict[str, Any] = Field(default_factory=dict)


class Preference(PydanticModel):
    metadata: ObjectMetaModel
    spec: PreferenceSpec


class AdmissionRequestModel(PydanticModel):
    uid: str
    operation: str
    namespace: str | None = None
    object: dict[str, Any]


class AdmissionReviewModel(PydanticModel):
    api_version: str
    kind: str
    request: AdmissionRequestModel
