from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import CONTROLLER, VMI_UID, Json
from tests.policies.decisions import changes, patched
from tests.policies.groups.world import (
    APART,
    APART_BY_ZONE,
    HOSTS,
    MEMBERS,
    MIGRATED,
    PREFERRED,
    REQUIRED,
    SELECTED,
    TERM,
    TOGETHER,
    affinity,
    after,
    decide,
    member,
    nodes,
    pod,
    recorded,
    section,
)
from webhook import names
from webhook.admission.reasons import common
from webhook.errors import Unavailable
from webhook.facts import KubeVirtKey, NodesKey
from webhook.placement import groups
from webhook.placement.groups import GROUP_LABEL
from webhook.placement.nodes import HOSTNAME, ZONE
from webhook.policies.groups import reasons
from webhook.policies.groups.settings import GroupSettings

LICENSE: Json = {"key": "license", "operator": "In", "values": ["oracle"]}
NODE_TERM: Json = {"matchExpressions": [LICENSE]}
OTHERS: Json = {"matchExpressions": [{"key": "kubevirt.io/created-by", "operator": "NotIn", "values": [VMI_UID]}]}
BY_ZONE: Json = {"labelSelector": SELECTED | OTHERS, "topologyKey": ZONE}
SOFT: Json = {"weight": 100, "podAffinityTerm": TERM}


def soft(rules: Json) -> Json:
    return {kind: {key: value for key, value in rule.items() if key != "required"} for kind, rule in rules.items()}


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (APART, {"podAntiAffinity": {REQUIRED: [TERM]}}),
        (soft(APART), {"podAntiAffinity": {PREFERRED: [SOFT]}}),
        # The source pod of a migration would keep its own target out of the zone.
        (APART_BY_ZONE, {"podAntiAffinity": {REQUIRED: [BY_ZONE]}}),
        # Its first pod meets it by itself, and so has to be meant.
        (TOGETHER, {"podAffinity": {REQUIRED: [TERM]}}),
        (soft(TOGETHER), {"podAffinity": {PREFERRED: [SOFT]}}),
        (HOSTS, {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [NODE_TERM]}}}),
        (soft(HOSTS), {"nodeAffinity": {PREFERRED: [{"weight": 100, "preference": NODE_TERM}]}}),
        (
            {**APART, "together": {"topologyKey": ZONE}, **HOSTS},
            {
                "podAntiAffinity": {REQUIRED: [TERM]},
                "podAffinity": {PREFERRED: [{"weight": 100, "podAffinityTerm": TERM | {"topologyKey": ZONE}}]},
                "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [NODE_TERM]}},
            },
        ),
        (
            {**APART, "namespaces": ["demo", "shop"]},
            {"podAntiAffinity": {REQUIRED: [TERM | {"namespaces": ["demo", "shop"]}]}},
        ),
    ],
)
def test_a_pod_of_a_new_vmi_follows_the_rules(rules: Json, expected: Json) -> None:
    settings = section(rules)
    made = after(pod(recorded(settings)), settings)
    assert made["spec"]["affinity"] == expected
    said = groups.parse(made["metadata"]["annotations"][names.INJECTED_GROUP_ANNOTATION])
    assert said is not None
    assert said.group == "db"


class TestOldVms:
    """What a group requires never strands a running VM, and what has ended holds none."""

    @pytest.mark.parametrize("rules", [APART, APART_BY_ZONE, TOGETHER, HOSTS])
    @pytest.mark.parametrize("labels", [{}, MIGRATED])
    def test_a_vmi_that_is_older_than_the_rule_prefers_it(self, rules: Json, labels: Json) -> None:
        found = affinity(pod(labels=labels), section(rules))
        assert found
        assert all(PREFERRED in each and REQUIRED not in each for each in found.values())

    @pytest.mark.parametrize("changed", [APART_BY_ZONE, TOGETHER, HOSTS])
    def test_one_with_another_rule_prefers_that_of_now(self, changed: Json) -> None:
        found = affinity(pod(recorded(section(APART))), section(changed))
        assert all(PREFERRED in each and REQUIRED not in each for each in found.values())

    def test_one_that_joined_another_group_meanwhile_prefers_its_rule(self) -> None:
        settings = section(APART, web=APART)
        made = pod(recorded(section(APART)), {GROUP_LABEL: "web"})
        assert REQUIRED not in affinity(made, settings)["podAntiAffinity"]

    def test_one_whose_group_spans_other_namespaces_now_prefers_that(self) -> None:
        spanning = {**APART, "namespaces": ["demo", "shop"]}
        found = affinity(pod(recorded(section(APART))), section(spanning))
        assert REQUIRED not in found["podAntiAffinity"]

    def test_a_rule_that_has_ended_is_not_kept(self) -> None:
        decision = decide(pod(recorded()), GroupSettings())
        assert (decision.code, decision.changes) == (reasons.WITHOUT_RULE, ())

    def test_one_that_is_only_preferred_now_is_not_required(self) -> None:
        assert affinity(pod(recorded()), section(soft(APART))) == {"podAntiAffinity": {PREFERRED: [SOFT]}}

    @pytest.mark.control("groups-across-tenants")
    @pytest.mark.parametrize("text", ["", "{", "3", "[]", '{"group":3}', '{"group":"db","apart":{}}', "[" * 5000])
    def test_a_record_that_nobody_wrote_here_counts_for_nothing(self, text: str) -> None:
        """Any owner may write the annotation into a template."""
        assert REQUIRED not in affinity(pod({names.INJECTED_GROUP_ANNOTATION: text}))["podAntiAffinity"]

    def test_a_forged_one_gets_its_owner_what_the_group_requires(self) -> None:
        forged = '{"group":"db","apart":{"topologyKey":"kubernetes.io/hostname","required":true}}'
        assert affinity(pod({names.INJECTED_GROUP_ANNOTATION: forged})) == {"podAntiAffinity": {REQUIRED: [TERM]}}


class TestTargetPodsOfVmsThatStayTogether:
    """They move one by one: the first one leads, and the others follow."""

    def placed(self, *members: Any, cordoned: tuple[str, ...] = (), rules: Json = TOGETHER) -> Json:
        settings = section(rules)
        facts = {MEMBERS: members, NodesKey(): nodes(*cordoned)}
        return affinity(pod(recorded(settings), MIGRATED), settings, facts)

    @pytest.mark.parametrize("rules", [TOGETHER, {"together": {"topologyKey": ZONE, "required": True}}])
    def test_a_lone_one_may_go_anywhere(self, rules: Json) -> None:
        for others in ((), (member("node-a1", VMI_UID),)):
            assert [*self.placed(*others, rules=rules)["podAffinity"]] == [PREFERRED]

    def test_it_stays_with_those_that_stay(self) -> None:
        found = self.placed(member("node-a2"))
        assert found == {"podAffinity": {REQUIRED: [{"labelSelector": SELECTED | OTHERS, "topologyKey": HOSTNAME}]}}

    def test_the_first_one_that_leaves_a_drained_node_leads(self) -> None:
        assert [*self.placed(member("node-a1"), cordoned=("node-a1",))["podAffinity"]] == [PREFERRED]

    def test_and_the_next_one_follows(self) -> None:
        found = self.placed(member("node-a1", "second"), member("node-a2", "first"), cordoned=("node-a1",))
        assert [*found["podAffinity"]] == [REQUIRED]

    @pytest.mark.parametrize("unknown", [MEMBERS, NodesKey()])
    def test_where_that_is_not_known_it_is_preferred_and_said(self, unknown: Any) -> None:
        settings = section(TOGETHER)
        facts = {MEMBERS: (), NodesKey(): nodes()} | {unknown: Unavailable("forbidden")}
        decision = decide(pod(recorded(settings), MIGRATED), settings, facts)
        assert next(iter(changes(decision)))[-1] == PREFERRED
        assert [warning.code for warning in decision.warnings] == [common.LOOKUP_FAILED]

    @pytest.mark.control("groups-across-tenants")
    def test_others_read_nobody(self) -> None:
        """A pod that starts, and one of a group that stays apart, cost no request."""
        for rules, labels in ((TOGETHER, {}), (APART, MIGRATED), (soft(TOGETHER), MIGRATED)):
            settings = section(rules)
            assert decide(pod(recorded(settings), labels), settings).code == reasons.INJECTED


OWN: Json = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": ZONE}
TERMS = st.lists(st.sampled_from([OWN, TERM, BY_ZONE]), max_size=3)
WEIGHTED = st.lists(st.sampled_from([SOFT, {"weight": 1, "podAffinityTerm": OWN}]), max_size=3)
EXPRESSIONS = st.lists(st.sampled_from([LICENSE, {"key": "zone", "operator": "In", "values": ["b"]}]), max_size=2)
NODE_TERMS = st.lists(st.fixed_dictionaries({"matchExpressions": EXPRESSIONS}), max_size=3)
_BETWEEN: Any = {REQUIRED: TERMS | st.none(), PREFERRED: WEIGHTED | st.none()}
_OF_NODES: Any = {REQUIRED: st.fixed_dictionaries({"nodeSelectorTerms": NODE_TERMS}) | st.none()}
AFFINITIES = st.fixed_dictionaries(
    {},
    optional={
        "podAntiAffinity": st.fixed_dictionaries({}, optional=_BETWEEN) | st.none(),
        "podAffinity": st.fixed_dictionaries({}, optional=_BETWEEN) | st.none(),
        "nodeAffinity": st.fixed_dictionaries({}, optional=_OF_NODES) | st.none(),
    },
)
RULES = st.sampled_from(
    [APART, soft(APART), APART_BY_ZONE, TOGETHER, soft(TOGETHER), HOSTS, soft(HOSTS), {**APART, **HOSTS}]
)


@given(AFFINITIES | st.none(), RULES, st.booleans())
def test_whatever_the_owner_wrote_stands_and_twice_is_once(own: Json | None, rules: Json, is_new: bool) -> None:
    settings = section(rules)
    # `decide` applies it twice.
    found = affinity(pod(recorded(settings) if is_new else {}, affinity=own), settings)
    for kind in ("podAntiAffinity", "podAffinity"):
        for how in (REQUIRED, PREFERRED):
            before, now = (((each or {}).get(kind) or {}).get(how) or [] for each in (own, found))
            assert now[: len(before)] == before
            assert len(now) <= len(before) + 1
    before, now = (
        (((each or {}).get("nodeAffinity") or {}).get(REQUIRED) or {}).get("nodeSelectorTerms") for each in (own, found)
    )
    for mine, theirs in zip(before or [], now or [], strict=bool(before)):
        assert theirs["matchExpressions"][: len(mine["matchExpressions"])] == mine["matchExpressions"]
        assert bool(mine["matchExpressions"]) == bool(theirs["matchExpressions"]), "an empty term matches nothing"
    if before and "nodes" in rules and rules["nodes"].get("required") and is_new:
        assert all(LICENSE in each["matchExpressions"] for each in now or () if each["matchExpressions"])


@pytest.mark.parametrize(
    ("body", "user", "facts", "code"),
    [
        (pod(), "mallory", {}, common.NOT_CREATED_BY_KUBEVIRT),
        (pod(), None, {KubeVirtKey(): None}, common.KUBEVIRT_ABSENT),
        (pod(), None, {KubeVirtKey(): Unavailable("forbidden")}, common.LOOKUP_FAILED),
        (pod(nodeName="n1"), None, {}, common.POD_BOUND),
        (pod() | {"metadata": pod()["metadata"] | {"labels": {}}}, None, {}, common.NOT_LAUNCHER),
        (pod(labels={GROUP_LABEL: ""}), None, {}, reasons.NO_GROUP),
        (pod(labels={GROUP_LABEL: "none"}), None, {}, reasons.WITHOUT_RULE),
    ],
)
def test_a_pod_of_others_is_left_alone(body: Json, user: str | None, facts: Any, code: str) -> None:
    decision = decide(body, facts=facts, user=user or CONTROLLER)
    assert (decision.code, decision.changes) == (code, ())
    assert decide(pod(), operation="UPDATE", oldObject=pod()).code == common.OTHER_OPERATION


@pytest.mark.parametrize("migrates", [False, True])
@pytest.mark.parametrize("rules", [APART, APART_BY_ZONE, TOGETHER, HOSTS, soft(APART), soft(HOSTS)])
def test_what_other_modes_report_is_what_enforce_would_make(rules: Json, migrates: bool) -> None:
    """Only ``enforce`` records what a group requires in the VMI. One that migrates would stay without."""
    settings, labels = section(rules), MIGRATED if migrates else {}
    facts = {MEMBERS: (), NodesKey(): nodes()}
    enforced = affinity(pod({} if migrates else recorded(settings), labels), settings, facts)
    body = pod({}, labels)
    observed = patched(body, decide(body, settings, facts, stage="observe"))["spec"]
    assert observed.get("affinity", {}) == enforced
