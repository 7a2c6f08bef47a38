"""A KubeVirt that is newer than the known ones: nothing is denied because it has fields or gates that are not known."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policies.instancetypes.world import FEDORA, SMALL, decide, facts, instancetype, preference, vm, vmi
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.releases.capabilities import parse_version
from webhook.kubevirt.releases.release import release_of
from webhook.kubevirt.rules import rules_of

Json = dict[str, Any]

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
UNKNOWN = st.dictionaries(st.sampled_from(["brandNew", "brandNewer"]), _VALUES, max_size=2)
DOMAINS = st.fixed_dictionaries(
    {},
    optional={
        "memory": st.fixed_dictionaries({}, optional={"guest": st.just("2Gi"), "brandNew": _VALUES}),
        "cpu": st.fixed_dictionaries({}, optional={"cores": st.integers(1, 4), "brandNew": _VALUES}),
        "brandNew": _VALUES,
    },
)


def without_unknown(value: Any) -> Any:
    if isinstance(value, list):
        return [without_unknown(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: without_unknown(each) for name, each in value.items() if not name.startswith("brandNew")}


@settings(deadline=None)
@given(
    version=st.sampled_from(["1.10.0", "1.12.1", "2.0.0"]),
    gates=st.lists(st.text(max_size=8), max_size=3),
    domain=DOMAINS,
    sized=st.booleans(),
    of_type=UNKNOWN,
    of_preference=UNKNOWN,
    of_machine=UNKNOWN,
    make=st.sampled_from([vm, vmi]),
)
def test_what_the_newest_known_release_allows_is_never_denied(
    version: str,
    gates: list[str],
    domain: Json,
    sized: bool,
    of_type: Json,
    of_preference: Json,
    of_machine: Json,
    make: Any,
) -> None:
    parsed = parse_version(version)
    assert parsed
    matchers: Json = {"instancetype": SMALL, "preference": FEDORA} if sized and make is vm else {}
    sent = make(domain, **matchers)
    sent["spec"] |= of_machine
    objects = [instancetype(**of_type), preference(**of_preference)]
    developer = {"featureGates": gates, "disabledFeatureGates": gates, "brandNew": 1}
    newer = ClusterConfig.of({"developerConfiguration": developer}, rules=rules_of(release_of(parsed)))

    for verb in ("mutate", "validate") if make is vm else ("mutate",):
        known = decide(
            without_unknown(sent), facts(without_unknown(objects)), verb=verb, default_instancetype=SMALL["name"]
        )
        decision = decide(sent, facts(objects, configuration=newer), verb=verb, default_instancetype=SMALL["name"])
        assert (decision.denial is None) or known.denial, decision.denial
