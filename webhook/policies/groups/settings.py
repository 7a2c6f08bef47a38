"""The section ``groups`` of the settings, and the annotation of a namespace with more groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from webhook import names
from webhook.errors import InputError
from webhook.placement.nodes import HOSTNAME
from webhook.settings.annotations import read_json
from webhook.settings.fields import Items, LabelKey, LabelValue, Namespace, Syntax, mistake
from webhook.settings.policy_section import PolicySettings
from webhook.settings.section import Section

GROUPS: Final = "groups"
# Of a namespace: its groups, as JSON.
GROUPS_ANNOTATION: Final = f"{names.DOMAIN}/group-rules"
# Of VMIs and launcher pods: the rules of their group, as `GroupPlacement.text` writes them.
INJECTED_ANNOTATION: Final = names.INJECTED_GROUP_ANNOTATION
# Every launcher pod of a group has the list in its affinity.
_MOST_NAMESPACES: Final = 64

GroupName = Annotated[
    str,
    Syntax("group name", "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", 63, "use a name that can be a label's value"),
]


class PodRule(Section):
    """A rule about where the VMs of a group are in relation to each other."""

    topology_key: LabelKey = Field(
        default=HOSTNAME,
        examples=["topology.kubernetes.io/zone"],
        description="Label of nodes whose values are the places: by default nodes, with this example zones.",
    )
    required: bool = Field(
        default=False, description="Whether a VM rather waits than runs against the rule; else it is preferred."
    )


class NodeRule(Section):
    """A rule about which nodes the VMs of a group run on."""

    labels: Mapping[LabelKey, LabelValue] = Field(
        examples=[{"license": "oracle"}], description="Labels, all of which such a node has."
    )
    required: bool = Field(
        default=False, description="Whether a VM rather waits than runs elsewhere; else these nodes are preferred."
    )

    @model_validator(mode="after")
    def _check_labels(self) -> NodeRule:
        if not self.labels:
            raise mistake("empty-rule", "a rule about nodes names no label", "name a label of the nodes", "labels")
        return self


class GroupRules(Section):
    """What holds for the VMs of a group; at least one rule."""

    apart: PodRule | None = Field(default=None, description="The VMs of the group are in different places.")
    together: PodRule | None = Field(default=None, description="The VMs of the group are in one place.")
    nodes: NodeRule | None = Field(default=None, description="The VMs of the group are on certain nodes.")

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        apart, together = self.apart, self.together
        if not (apart or together or self.nodes):
            raise mistake("group-without-rule", "a group has no rule", "write apart, together or nodes")
        # On one node, nothing can be in two places.
        if apart and together and together.topology_key in (apart.topology_key, HOSTNAME):
            what = f"VMs that are together by {together.topology_key} cannot be apart by {apart.topology_key}"
            raise mistake("contradiction", what, "have them apart by node and together by zone, or remove one")
        return self


class ClusterGroup(GroupRules):
    """A group of the settings."""

    namespaces: Items[Namespace] = Field(
        default=(),
        examples=[["shop", "billing"]],
        description=(
            "The namespaces that the group spans: its VMs in all of them are one group, and VMs elsewhere cannot join"
            " it. Empty: each namespace has a group of its own."
        ),
    )

    @model_validator(mode="after")
    def _check_namespaces(self) -> Self:
        if len(self.namespaces) > _MOST_NAMESPACES:
            what = f"a group spans {len(self.namespaces)} namespaces (limit {_MOST_NAMESPACES})"
            raise mistake("too-long", what, "name fewer namespaces", "namespaces")
        return self


class _Annotation(Section):
    rules: Mapping[GroupName, GroupRules] = {}


class GroupSettings(PolicySettings):
    """The groups policy: VMs that stay apart or together, or on certain nodes."""

    cluster_wide: bool = Field(
        default=False, description="Also enforce in namespaces without the label kubevirt-webhook.github.io/groups."
    )
    rules: Mapping[GroupName, ClusterGroup] = Field(
        default={},
        examples=[{"database": {"apart": {"required": True}}}],
        description=(
            "Groups by name; a VM joins one by the label kubevirt-webhook.github.io/group of its template. The"
            " annotation kubevirt-webhook.github.io/group-rules of a namespace adds groups, and replaces those that"
            " span no namespaces."
        ),
    )

    def with_annotations(self, annotations: Mapping[str, str]) -> Self:
        """The section with the namespace's own groups."""
        return self.replace_by(annotations, {GROUPS_ANNOTATION: self._with_groups})

    def _with_groups(self, text: str) -> Mapping[str, Mapping[str, ClusterGroup]]:
        """The rules with those of an annotation, JSON of groups by name; an empty one adds none.

        Raises:
            InputError: what is wrong with it.
        """
        if not text.strip():
            return {}
        found: Mapping[str, GroupRules] = read_json(text, _Annotation, "rules", '{"db": {"apart": {}}}')
        if spanning := sorted(name for name in found if name in self.rules and self.rules[name].namespaces):
            # Its VMs in other namespaces count those here.
            raise InputError(f"the group {spanning[0]} of the settings spans namespaces", fix="choose another name")
        own = {name: ClusterGroup(**dict(rules)) for name, rules in found.items()}
        return {"rules": {**self.rules, **own}}

    def group(self, name: str | None, namespace: str) -> ClusterGroup | None:
        """The group of this name for VMs of a namespace; None: there is none."""
        found = self.rules.get(name or "")
        return None if found is None or (found.namespaces and namespace not in found.namespaces) else found
