"""The settings file's section about the webhook configurations that are installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from webhook.settings.section import Section
from webhook.settings.syntax import LabelKey, LabelValue, Namespace, ServiceName, mistake


class Service(Section):
    """The Service that the API server calls."""

    namespace: Namespace = Field(
        default="kubevirt-webhook",
        description="Namespace of the Service and of kubevirt-webhook, which no webhook matches.",
    )
    name: ServiceName = Field(default="kubevirt-webhook", description="Name of the Service.")
    port: int = Field(default=443, ge=1, le=65535, description="Port of the Service.")


class MatchExpression(Section):
    """A requirement on a namespace's labels."""

    key: LabelKey = Field(description="Label key.", examples=["kubernetes.io/metadata.name"])
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="Relation of the label to the values.", examples=["NotIn"]
    )
    values: Annotated[tuple[LabelValue, ...], Field(strict=False)] = Field(
        default=(), description="At least one value for In and NotIn, none for Exists and DoesNotExist."
    )

    @field_validator("values")
    @classmethod
    def _check_operator(cls, values: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        operator = info.data.get("operator")
        if operator in ("In", "NotIn") and not values:
            raise mistake("values-missing", f"{operator} requires values", "add values, or use Exists or DoesNotExist")
        if operator in ("Exists", "DoesNotExist") and values:
            raise mistake("values-excluded", f"{operator} excludes values", "remove them, or use In or NotIn")
        return values

    def snapshot(self) -> Mapping[str, Any]:
        """The expression as a webhook configuration has it."""
        base = {"key": self.key, "operator": self.operator}
        return {**base, "values": list(self.values)} if self.values else base


class NamespaceSelector(Section):
    """Namespaces that webhooks match at all, in addition to the policies' labels."""

    match_expressions: Annotated[tuple[MatchExpression, ...], Field(strict=False)] = Field(
        default=(), description="Requirements on namespaces' labels; all must be met."
    )


class Webhooks(Section):
    """The webhook configurations that are installed."""

    service: Service = Field(default=Service(), description=Service.__doc__)
    timeout_seconds: int = Field(
        default=3,
        ge=1,
        le=3,
        description="How long the API server waits for an answer; it can delay every request by that long.",
    )
    namespace_selector: NamespaceSelector = Field(default=NamespaceSelector(), description=NamespaceSelector.__doc__)
