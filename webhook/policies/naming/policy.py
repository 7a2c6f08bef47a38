"""The naming policy as a value."""

from __future__ import annotations

from typing import Final

from webhook.kubevirt.resources import UNSTRUCTURED_VMS
from webhook.policies.naming.checks import check_names
from webhook.policies.naming.reasons import REASONS
from webhook.policies.naming.settings import NamingSettings
from webhook.policies.naming.virtualmachines import NamedVm, of_long_names, validate_name
from webhook.policy import Policy, both_stages

NAMING: Final = "naming"

POLICY: Final = Policy(
    name=NAMING,
    settings=NamingSettings,
    reasons=REASONS,
    shared_reasons=(),
    endpoints=both_stages(
        "validate",
        NAMING,
        UNSTRUCTURED_VMS.decoded_as(NamedVm),
        validate_name,
        match_conditions=of_long_names,
        # A name is there for good: what is older than the rule stays as it is.
        operations=("CREATE",),
    ),
    checks=(check_names,),
    judges_captured=True,
)
