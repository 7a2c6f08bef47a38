"""The reference of labels and annotations: what each means, on which object, and who may set it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import yaml
from packaging.version import Version

from hack.reference.markdown import cell, table
from webhook import names
from webhook.images.objects import IMAGES_ANNOTATION
from webhook.install import plan
from webhook.install.schedulers import render
from webhook.placement.groups import GROUP_LABEL
from webhook.policies.defaults import rows
from webhook.policies.defaults.settings import ANNOTATIONS as DEFAULTS
from webhook.policies.defaults.settings import TEXTS, DefaultsSettings
from webhook.policies.groups.settings import GROUPS_ANNOTATION
from webhook.policies.instancetypes.settings import DEFAULT_PREFERENCE_SCOPE_ANNOTATION
from webhook.policies.registry import BY_NAME
from webhook.policies.sizes.settings import REQUIRE_INSTANCETYPE_ANNOTATION, SIZE_LIMITS_ANNOTATION
from webhook.settings_file import effective

_HEADER: Final = f"""\
# Labels and annotations

Every label and annotation of kubevirt-webhook. All of them begin with `{names.DOMAIN}/`, which the tables leave out.
`kubevirt-webhook doctor` reports unknown ones and invalid values in namespaces.

This page is made from the code by `make docs`.
"""
# A directory for each release, with the keys that it had (`recorded`).
_RELEASES: Final = Path(__file__).resolve().parents[2] / "tests" / "skew"
RECORD: Final = "labels.yaml"
_UNRELEASED: Final = "unreleased"
_MODES: Final = ", ".join(f"`{mode}`" for mode in get_args(names.Mode))
_ADMINS: Final = "users who may change the namespace"
_OWNERS: Final = "the owner"
_PROGRAM: Final = "kubevirt-webhook"
_INSTALLER: Final = "`install`, or the manifests"


class Key(NamedTuple):
    """A row of the page.

    Attributes:
        name: the whole key.
        where: the objects that have it.
        setters: who may set it.
    """

    name: str
    where: str
    values: str
    default: str
    setters: str
    meaning: str

    @property
    def short_name(self) -> str:
        """The name without the domain that all have."""
        return self.name.removeprefix(f"{names.DOMAIN}/")


def _reference(kind: str) -> str:
    return f"`NAME` of a cluster-wide {kind}, or `KIND/NAME`"


LABELS: Final[Sequence[Key]] = (
    *(
        Key(
            names.policy_label(policy),
            "Namespace",
            _MODES,
            f"none: `off`, or `{policy}.clusterWide`",
            _ADMINS,
            f"the mode of the policy [{policy}](../{policy}.md)",
        )
        for policy in sorted(BY_NAME, reverse=True)
    ),
    Key(
        names.policy_label(names.INSTANCETYPES),
        "VM, or VMI without a VM; as an annotation too",
        "`off`",
        "none",
        _OWNERS,
        "opts out of the namespace's [defaults](../vm-owners.md#a-default-instancetype-or-preference)",
    ),
    Key(
        names.policy_label("defaults"),
        "template of a VM, or VMI; as an annotation too",
        "`off`",
        "none",
        _OWNERS,
        "opts out of all [defaults](../defaults.md)",
    ),
    Key(
        GROUP_LABEL,
        "template of a VM, or VMI",
        "the name of a group of the namespace or of the settings",
        "none",
        _OWNERS,
        "the [group](../groups.md) of the VM",
    ),
    Key(
        f"{names.DOMAIN}/metrics",
        "Namespace",
        "`scrape`",
        "none",
        _ADMINS,
        "the [NetworkPolicy](../installation.md#networkpolicy) lets its pods read metrics",
    ),
)
PARAMETERS: Final[Sequence[Key]] = (
    Key(
        names.SCHEDULER_NAME_ANNOTATION,
        "Namespace",
        "a scheduler that the settings declare",
        "`scheduling.schedulerName`",
        _ADMINS,
        "the [scheduler](../scheduling.md#add-a-scheduler) of its VMs",
    ),
    Key(
        names.SPREAD_ANNOTATION,
        "Namespace",
        ", ".join(f"`{each}`" for each in names.SPREADS),
        "`scheduling.spread`",
        _ADMINS,
        "the [constraint](../scheduling.md#spread-vms-with-a-constraint) of its VMs",
    ),
    Key(
        names.SPREAD_ANNOTATION,
        "template of a VM, or VMI",
        ", ".join(f"`{each}`" for each in names.SPREADS),
        "that of the namespace",
        _OWNERS,
        "the constraint of this VM",
    ),
    Key(
        names.DEFAULT_INSTANCETYPE_ANNOTATION,
        "Namespace",
        f"{_reference('instancetype')}; empty: none",
        "`instancetypes.defaultInstancetype`",
        _ADMINS,
        "the instancetype of [VMs without a size](../instancetypes.md#vms)",
    ),
    Key(
        names.DEFAULT_PREFERENCE_ANNOTATION,
        "Namespace",
        f"{_reference('preference')}; empty: none",
        "`instancetypes.defaultPreference`",
        _ADMINS,
        "the preference of VMs that name none",
    ),
    Key(
        DEFAULT_PREFERENCE_SCOPE_ANNOTATION,
        "Namespace",
        "`unsized`, `all`",
        "`instancetypes.defaultPreferenceScope`",
        _ADMINS,
        "`all`: also VMs whose owners chose a size get the preference",
    ),
    Key(
        names.ALLOWED_INSTANCETYPES_ANNOTATION,
        "Namespace",
        "a list, separated by commas; `*` in it stands for any text",
        "`instancetypes.allowed`",
        _ADMINS,
        "the [instancetypes](../instancetypes.md#denials) that VMs may name",
    ),
    Key(
        names.EXPAND_INSTANCETYPES_ANNOTATION,
        "Namespace",
        "`true`, `false`",
        "`instancetypes.expand`",
        _ADMINS,
        "VMs get the [fields](../instancetype-updates.md#expansion) of their instancetype instead of its name",
    ),
    *(
        Key(
            annotation,
            "Namespace",
            f"the {'name' if name in TEXTS else 'field as JSON'}; `off`: none",
            f"`defaults.{DefaultsSettings.model_fields[name].alias}`",
            _ADMINS,
            f"the [default](../defaults.md) {DefaultsSettings.model_fields[name].alias}",
        )
        for name, annotation in DEFAULTS.items()
    ),
    Key(
        GROUPS_ANNOTATION,
        "Namespace",
        "groups by name, as JSON",
        "`groups.rules`",
        _ADMINS,
        "the [groups](../groups.md) of its VMs, beside those of the settings",
    ),
    Key(
        REQUIRE_INSTANCETYPE_ANNOTATION,
        "Namespace",
        "`true`, `false`",
        "`sizes.requireInstancetype`",
        _ADMINS,
        "VMs may set [no size themselves](../sizes.md#require-an-instancetype)",
    ),
    Key(
        SIZE_LIMITS_ANNOTATION,
        "Namespace",
        "JSON of a range of `sizes.limits`, or of a list of them; empty: any size",
        "`sizes.limits`",
        _ADMINS,
        "the [sizes](../sizes.md#limit-sizes) that VMs may set themselves",
    ),
    Key(
        names.INSTANCETYPE_ANNOTATION,
        "VMI without a VM",
        f"{_reference('instancetype')}; empty: none",
        "that of the namespace",
        _OWNERS,
        "the instancetype that [the VMI gets](../instancetypes.md#vmis-without-a-vm)",
    ),
    Key(
        names.PREFERENCE_ANNOTATION,
        "VMI without a VM",
        f"{_reference('preference')}; empty: none",
        "that of the namespace",
        _OWNERS,
        "the preference that the VMI gets",
    ),
    Key(
        f"{names.DOMAIN}/rotate-ca",
        "Secret `tls.secretName`",
        "any",
        "none",
        "users who may change the Secret",
        "requests [another CA](../certificates.md#managed); kubevirt-webhook removes it",
    ),
    Key(
        IMAGES_ANNOTATION,
        "Node",
        "images by digest, separated by spaces",
        "none",
        "users who may change nodes",
        "images that the [node](../layers.md#images-whose-layers-are-unknown) has beside those of its status",
    ),
)
RECORDS: Final[Sequence[Key]] = (
    Key(
        names.INJECTED_SCHEDULER_ANNOTATION,
        "VM and its template, VMI, launcher pod",
        "the scheduler's name",
        "none",
        _PROGRAM,
        "this [`schedulerName`](../scheduling-changes.md) was injected",
    ),
    Key(
        names.INJECTED_SPREAD_ANNOTATION,
        "VM and its template, VMI, launcher pod",
        "a value of `spread`",
        "none",
        _PROGRAM,
        "these constraints were injected",
    ),
    Key(
        names.INJECTED_INSTANCETYPE_ANNOTATION,
        "VM, VMI without a VM",
        "`KIND/NAME`",
        "none",
        _PROGRAM,
        "this [instancetype](../instancetypes.md#vms) was injected, or applied to the VMI",
    ),
    Key(
        names.INJECTED_PREFERENCE_ANNOTATION,
        "VM, VMI without a VM",
        "`KIND/NAME`",
        "none",
        _PROGRAM,
        "this preference was injected, or applied to the VMI",
    ),
    *(
        Key(
            default.annotation,
            "VMI, launcher pod",
            "the value; lists and mappings as JSON",
            "none",
            _PROGRAM,
            "this [default](../defaults.md#where-each-default-stands) was injected, or is recorded for pods",
        )
        for default in rows.ALL
    ),
    Key(
        names.INJECTED_GROUP_ANNOTATION,
        "VMI, launcher pod",
        "rules as JSON",
        "none",
        _PROGRAM,
        "what the VM's [group](../groups.md#vms-that-run) requires, recorded for pods, or set in the pod",
    ),
    Key(
        plan.DIGEST_ANNOTATION,
        "pods of kubevirt-webhook",
        "a digest",
        "none",
        _INSTALLER,
        "changed settings roll the pods out",
    ),
    Key(
        render.DIGEST_ANNOTATION,
        "pods of the second scheduler",
        "a digest",
        "none",
        _INSTALLER,
        "a changed configuration rolls the pods out",
    ),
    Key(
        render.VARIANT_ANNOTATION,
        "ConfigMap of the second scheduler",
        "a [variant](../schedulers.md#variants-of-the-profile)",
        "none",
        "`install`",
        "which variant runs",
    ),
)


def page(releases: Path = _RELEASES) -> str:
    """The whole page, as Markdown.

    Args:
        releases: the directory with what each release had.
    """
    since = _since(releases)
    return "\n".join(
        [
            _HEADER,
            "## Labels\n",
            _table(LABELS, since),
            "## Annotations that users set\n",
            _table(PARAMETERS, since),
            "## Annotations that are written\n",
            "A user who writes one of them changes only what happens to that object of their own.\n",
            _table(RECORDS, since),
            "## What each mode does\n",
            _OF_MODES,
            table(("policy", "`enforce`"), _modes(effective(None))),
        ]
    )


def recorded() -> str:
    """All keys by the objects that have them, as YAML: what a release keeps for the column "since" of later ones."""
    found: dict[str, list[str]] = {}
    for key in (*LABELS, *PARAMETERS, *RECORDS):
        found.setdefault(key.where, []).append(key.short_name)
    return yaml.safe_dump({where: sorted(keys) for where, keys in found.items()})


def _since(releases: Path) -> dict[tuple[str, str], str]:
    """The first release that had a key, by the objects and the name."""
    first: dict[tuple[str, str], str] = {}
    for file in sorted(releases.glob(f"*/{RECORD}"), key=lambda file: Version(file.parent.name)):
        for where, keys in yaml.safe_load(file.read_text()).items():
            for key in keys:
                first.setdefault((where, key), file.parent.name)
    return first


def _table(keys: Sequence[Key], since: dict[tuple[str, str], str]) -> str:
    head = ("name", "object", "values", "default", "who may set it", "meaning", "since")
    rows = (
        (f"`{key.short_name}`", *map(cell, key[1:]), since.get((key.where, key.short_name), _UNRELEASED))
        for key in keys
    )
    return table(head, rows)


_OF_MODES: Final = (
    "With the built-in settings. In mode `warn` nothing of it is done, and whoever sends the request gets a warning"
    " that says what would be set or denied.\nOf launcher pods that is KubeVirt, which shows it to nobody. In mode"
    " `audit` only audit lines, audit annotations and metrics report it.\n"
)


def _modes(settings: Any) -> list[tuple[str, str]]:
    scheduling, instancetypes, eviction = (settings[name] for name in ("scheduling", "instancetypes", "eviction"))
    missing = "warned of" if instancetypes["missing"] == "warn" else "denied"
    enforced = {
        names.SCHEDULING: f"VMs and launcher pods get the scheduler `{scheduling['schedulerName']}`; `spread` is "
        f"`{scheduling['spread']}`",
        names.INSTANCETYPES: f"VMs that KubeVirt would deny are denied; a missing instancetype is {missing}; VMs get a "
        "default if one is named",
        names.MIGRATION: "added selectors that contradict the VM, that no node meets, or whose keys are KubeVirt's are "
        "denied; target pods are held to the others",
        names.EVICTION: "the descheduler's evictions are denied if no node is eligible, and for "
        f"{eviction['coolDownSeconds']} s after a migration",
    }
    # Of others their section says it.
    texts = {
        name: enforced.get(name) or str(policy.settings.__doc__).partition(": ")[2] for name, policy in BY_NAME.items()
    }
    return [(policy, text.removesuffix(".")) for policy, text in texts.items()]
