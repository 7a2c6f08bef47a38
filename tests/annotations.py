"""Annotations of namespaces: values that their policies can read, and mistakes; tests say what is missing here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from webhook import names
from webhook.policies.defaults.settings import ANNOTATIONS as DEFAULTS
from webhook.policies.groups.settings import GROUPS_ANNOTATION
from webhook.policies.instancetypes.settings import DEFAULT_PREFERENCE_SCOPE_ANNOTATION
from webhook.policies.sizes.settings import REQUIRE_INSTANCETYPE_ANNOTATION, SIZE_LIMITS_ANNOTATION

_TERM: Final = '{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}'
# By the key; an annotation with a list of values has all of them. The fuzzer takes the first ones.
VALID: Final[Mapping[str, tuple[str, ...]]] = {
    names.SCHEDULER_NAME_ANNOTATION: ("kubevirt",),
    names.SPREAD_ANNOTATION: tuple(reversed(names.SPREADS)),
    names.DEFAULT_INSTANCETYPE_ANNOTATION: ("u1.medium",),
    names.DEFAULT_PREFERENCE_ANNOTATION: ("VirtualMachinePreference/linux",),
    DEFAULT_PREFERENCE_SCOPE_ANNOTATION: ("unsized", "all"),
    names.ALLOWED_INSTANCETYPES_ANNOTATION: ("u1.*, o1.*",),
    names.EXPAND_INSTANCETYPES_ANNOTATION: ("true", "false"),
    REQUIRE_INSTANCETYPE_ANNOTATION: ("true", "false", " false"),
    SIZE_LIMITS_ANNOTATION: ("", '\n{"cpu": {"max": 8}}', "[{}]"),
    DEFAULTS["tolerations"]: ('[{"operator": "Exists"}]', "off"),
    DEFAULTS["node_selector"]: ('{"pool": "vms"}', "{}"),
    DEFAULTS["node_affinity"]: (
        f'{{"preferredDuringSchedulingIgnoredDuringExecution": [{{"weight": 1, "preference": {_TERM}}}]}}',
    ),
    DEFAULTS["priority_class_name"]: (" vms\n",),
    DEFAULTS["eviction_strategy"]: ("LiveMigrate",),
    DEFAULTS["termination_grace_period_seconds"]: ("30",),
    DEFAULTS["cpu_model"]: ("Skylake-Server",),
    GROUPS_ANNOTATION: ('{"db": {"apart": {}}}', "{}"),
}


class Mistake(NamedTuple):
    """An annotation of a policy with a mistake.

    Attributes:
        valid: a value that the policy can read.
        wrong: one that it cannot read.
        said: a part of what is said of the wrong one.
    """

    annotation: str
    valid: str
    wrong: str
    said: str


# For each policy that validates annotations (`webhook.policies.common.namespace_annotations`) one of its own.
MISTAKES: Final[Mapping[str, Mistake]] = {
    "sizes": Mistake(SIZE_LIMITS_ANNOTATION, '{"cpu": {"max": 8}}', '{"cpu":\n {"max" 8}}', "line 2, column 9"),
    "groups": Mistake(GROUPS_ANNOTATION, '{"db": {"apart": {}}}', '{"db": {}}', "db: a group has no rule"),
    "defaults": Mistake(
        DEFAULTS["tolerations"],
        '[{"key": "gpu", "operator": "Exists"}]',
        '[{"key": "gpu"}]',
        "operator: required setting is missing",
    ),
}
