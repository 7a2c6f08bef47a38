"""The settings file's sections about records: audit lines, Events and the background scan."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from webhook.errors import quote
from webhook.settings import snapshot
from webhook.settings.section import Section
from webhook.settings.syntax import mistake

STDOUT: Final = "stdout"


def _check_output(text: str) -> str:
    if text != STDOUT and not text.startswith("/"):
        raise mistake(
            "syntax", f"{quote(text)} is neither {STDOUT} nor an absolute path", f"use {STDOUT} or a path such as /a/b"
        )
    return text


# YAML 1.1 reads an unquoted on as true.
Switch = Annotated[
    Literal["off", "on"],
    BeforeValidator(lambda value: ("on" if value else "off") if isinstance(value, bool) else value),
    WithJsonSchema({"enum": ["off", "on"]}),
]
Output = Annotated[str, AfterValidator(_check_output)]


class Audit(Section):
    """Audit lines: one for every decision. Changes take effect at the next start."""

    output: Output = Field(
        default=STDOUT,
        description="Destination: stdout, or the absolute path of a file in an existing directory. Only one process "
        "may write to a file.",
        examples=["/var/log/kubevirt-webhook/audit.jsonl"],
    )
    max_bytes: int = Field(
        default=104_857_600,
        ge=1_048_576,
        le=10_737_418_240,
        description="Maximum size of the file in bytes; a full file is renamed to FILE.1, and a new one is started.",
    )
    keep: int = Field(default=5, ge=1, le=100, description="Number of renamed files to keep.")

    def snapshot(self) -> snapshot.AuditSettings:
        """The section as the request path reads it."""
        output = "" if self.output == STDOUT else self.output
        return snapshot.AuditSettings(output=output, max_bytes=self.max_bytes, keep=self.keep)


class Drift(Section):
    """The background scan: it looks for objects that differ from what enforce makes of them."""

    every_minutes: int = Field(
        default=0,
        ge=0,
        le=1440,
        description="Minutes between scans, the first one at the start; 0 disables the scan. It requires permission to "
        "list pods, virtualmachines and virtualmachineinstances.",
        examples=[30],
    )
    policy_reports: bool = Field(
        default=True,
        description="Also write the results as PolicyReports, if the cluster serves that kind (wgpolicyk8s.io). It "
        "requires permission to list, create, patch and delete policyreports.",
    )

    def snapshot(self) -> snapshot.DriftSettings:
        """The section as the request path reads it."""
        return snapshot.DriftSettings(every_seconds=60.0 * self.every_minutes, policy_reports=self.policy_reports)
