"""Defaults at UPDATE: whatever an owner writes, in whatever way, makes the VM that it would make anew."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders, owners
from tests.builders import AVAILABLE, Json, changed, known, review
from tests.kubevirt import plain
from tests.kubevirt.samples import among
from tests.owners import CLUSTER_WIDE, OF_THE_NAMESPACE, OPTIONS, WAYS, WrittenField, manifest_of, marks_of
from tests.policies.decisions import changes, declaring, evaluate, patched
from tests.policies.instancetypes import world as of_instancetypes
from tests.policies.instancetypes.world import BOTH, IT_MARK, SMALL, WORLD, decide, facts, instancetype, preference, vm
from webhook.admission.reasons import common
from webhook.errors import Unavailable
from webhook.facts import Facts, Key, ListKey, ObjectKey, SchedulerKey
from webhook.kubevirt.config import DEFAULTS
from webhook.policies.common.ownership import LAST_APPLIED
from webhook.policies.instancetypes import reasons as instancetypes
from webhook.policies.instancetypes.settings import InstancetypeSettings

INJECTED_ANNOTATIONS = {
    IT_MARK[2]: of_instancetypes.SMALL_MARK,
    of_instancetypes.PREF_MARK[2]: of_instancetypes.FEDORA_MARK,
}
# Changes that remove a default.
GONE = {("spec", "instancetype"): None, IT_MARK: None}
OURS = vm(annotations=INJECTED_ANNOTATIONS, instancetype=SMALL, preference=of_instancetypes.FEDORA)
PINNED = OURS | {"spec": OURS["spec"] | {"instancetype": {**SMALL, "revisionName": "r1"}}}
OWN = {"kind": "VirtualMachineInstancetype", "name": "own"}
OWN_MARK = "VirtualMachineInstancetype/own"


def declared(obj: Json, *members: str) -> Json:
    """A VM as a server-side apply leaves it that declares members of the instancetype's matcher."""
    return declaring(obj, *(("spec", "instancetype", member) for member in members))


def halted(**more: Any) -> Json:
    return vm(runStrategy="Halted", **more)


def marked(domain: Json | None = None, **template: Any) -> Json:
    """The VM with both defaults as its owner now writes it."""
    return vm(
        domain,
        annotations=INJECTED_ANNOTATIONS,
        template=template or None,
        instancetype=SMALL,
        preference=of_instancetypes.FEDORA,
    )


def expanded(*managers: str, annotations: Json = INJECTED_ANNOTATIONS) -> Json:
    """A VM whose defaults were expanded, as it is stored; managers are those who wrote the guest's memory."""
    sized = {"cpu": {"sockets": 2, "cores": 1, "threads": 1}, "memory": {"guest": "4Gi"}}
    made = declaring(vm(sized, annotations=annotations), ("spec", "template", "spec", "domain", "memory", "guest"))
    (entry,) = made["metadata"]["managedFields"]
    made["metadata"]["managedFields"] = [entry | {"manager": manager, "operation": "Update"} for manager in managers]
    return made


def merged(**matcher: Any) -> Json:
    """A VM with a default of a namespace's kind, and what its owner merged into it."""
    return vm(annotations={IT_MARK[2]: OWN_MARK}, instancetype={**OWN, **matcher})


LARGE = {"memory": {"guest": "8Gi"}}
OLD = merged()
OBJECTS = (instancetype("own", kind="VirtualMachineInstancetype"), instancetype("big"))
OURS_MARK = {IT_MARK[2]: of_instancetypes.SMALL_MARK}
INFERRING = {**SMALL, "inferFromVolume": "root"}
SIZE_MARK: Json = {"annotations": OURS_MARK, "instancetype": SMALL}
SCHEDULED: Json = {
    "annotations": {
        of_instancetypes.PREF_MARK[2]: of_instancetypes.FEDORA_MARK,
        "kubevirt-webhook.github.io/injected-scheduler": "kubevirt",
    },
    "preference": of_instancetypes.FEDORA,
    "template": {"schedulerName": "kubevirt"},
}
LIKED: Json = {
    "annotations": {of_instancetypes.PREF_MARK[2]: of_instancetypes.FEDORA_MARK},
    "preference": of_instancetypes.FEDORA,
}
UNMET = facts([instancetype(), preference(requirements={"cpu": {"guest": 64}})])
PLACED = facts([*WORLD, instancetype("placed", schedulerName="volcano")])
UNCONFIGURED = facts(WORLD, configuration=Unavailable("no answer in time"))
NO_SMALL = facts([preference()], unreadable=[("VirtualMachineClusterInstancetype", "u1.small")])


@pytest.mark.parametrize(
    ("new", "world", "old", "code"),
    [
        # An owner who now says a size means it.
        (vm({"cpu": {"cores": 4}}), facts(WORLD), OURS, instancetypes.SIZED),
        (vm({"memory": {"guest": "1Gi"}}), facts(WORLD), expanded(), instancetypes.SIZED),
        (halted(annotations={"kubevirt-webhook.github.io/instancetypes": "off"}), facts(WORLD), OURS, None),
        # Nothing new is ever added.
        (halted(), facts(WORLD), vm(), common.NOTHING_TO_PRESERVE),
        # Nothing is looked up where nothing that matters changes.
        (OURS, {}, OURS, instancetypes.UNCHANGED),
        (halted(**SIZE_MARK), facts(), vm(**SIZE_MARK), instancetypes.UNCHANGED),
        # An inference beside an owner's own name is left to KubeVirt.
        *(
            (
                vm(annotations=marks, instancetype=INFERRING),
                facts(WORLD),
                vm(annotations=marks, instancetype=SMALL),
                None,
            )
            for marks in ({}, {IT_MARK[2]: "VirtualMachineClusterInstancetype/other"})
        ),
        # What did not fit before is not the owner's doing.
        (marked(terminationGracePeriodSeconds=5), UNMET, OURS, None),
        (marked(terminationGracePeriodSeconds=5), NO_SMALL, OURS, common.LOOKUP_FAILED),
        # The scheduler that the webhook wrote is no conflict.
        (vm(**SCHEDULED, instancetype={"name": "placed"}), PLACED, vm(**SCHEDULED), None),
        # A size that its owner wrote is left alone.
        *(
            (halted(), facts(WORLD), expanded(name, "flux"), instancetypes.UNSIZED)
            for name in ("kubectl-edit", "virt-controller")
        ),
        # While the annotations stay nothing was overwritten.
        (expanded() | {"spec": expanded()["spec"] | {"a": 1}}, facts(WORLD), expanded(), common.NOTHING_TO_PRESERVE),
        # A preference alone was not expanded.
        *(
            (
                new,
                facts(WORLD),
                expanded(annotations={of_instancetypes.PREF_MARK[2]: of_instancetypes.FEDORA_MARK}),
                None,
            )
            for new in (vm({"memory": {"guest": "4Gi"}}), halted())
        ),
        # A default beside a size that stood there before, as a wider scope gave it, stays.
        (halted(domain=LARGE, **LIKED), facts(WORLD), vm(LARGE, **LIKED), instancetypes.UNCHANGED),
        # Without KubeVirt's configuration a size or an inference beside a default is left alone, too.
        *(
            (vm(domain, annotations=OURS_MARK, instancetype=given), UNCONFIGURED, vm(**SIZE_MARK), common.LOOKUP_FAILED)
            for domain, given in ((LARGE, SMALL), (None, INFERRING))
        ),
        # What is no matcher is left to the API server.
        *((merged(name=name), facts(), OLD, common.INVALID_OBJECT) for name in (5, {"a": 1})),
        *(
            (OLD | {"spec": OLD["spec"] | {"instancetype": given}}, facts(), OLD, common.INVALID_OBJECT)
            for given in ["own", [], 5]
        ),
        # Without its annotation a matcher was written again; a revision that is added to a default stays.
        (vm(instancetype={**OWN, "name": "big"}), facts(OBJECTS), OLD, None),
        (
            merged(revisionName="r1"),
            facts([*OBJECTS, of_instancetypes.revision("r1", instancetype("own"))]),
            OLD,
            instancetypes.UNCHANGED,
        ),
    ],
)
def test_what_changes_nothing(new: Json, world: Any, old: Json, code: str | None) -> None:
    decision = decide(new, world, old, **BOTH)
    assert (decision.changes, code in (decision.code, None)) == ((), True)


class TestWhatIsPutBack:
    def test_an_overwrite_by_a_pool_is_repaired_with_what_was_there(self) -> None:
        new = halted(annotations={"pool": "x"})
        decision = decide(new, facts(WORLD), OURS)
        assert (decision.code, changes(decision)) == (instancetypes.DEFAULTS_PRESERVED, of_instancetypes.INJECTED)
        assert patched(new, decision)["metadata"]["annotations"]["pool"] == "x"
        world = facts([*WORLD, of_instancetypes.revision("r1", instancetype())])
        for old, there in ((OURS, SMALL), (PINNED, PINNED["spec"]["instancetype"])):
            decision = decide(halted(), world, old, default_instancetype="u1.large")
            assert changes(decision)["spec", "instancetype"] == there

    def test_a_default_that_is_gone_counts_by_its_revision(self) -> None:
        matchers = {"instancetype": SMALL, "preference": of_instancetypes.FEDORA}
        status = {f"{field}Ref": name | {"controllerRevisionRef": {"name": field}} for field, name in matchers.items()}
        world = facts(
            [
                of_instancetypes.revision("instancetype", instancetype()),
                of_instancetypes.revision("preference", preference()),
            ]
        )
        assert changes(decide(halted(), world, OURS | {"status": status})) == of_instancetypes.INJECTED
        # A preference beside a size stays, whatever the scope is now.
        old = vm(
            {"cpu": {"cores": 2}},
            annotations={of_instancetypes.PREF_MARK[2]: of_instancetypes.FEDORA_MARK},
            preference=of_instancetypes.FEDORA,
        )
        decision = decide(vm({"cpu": {"cores": 4}}), facts(WORLD), old)
        assert changes(decision) == {
            ("spec", "preference"): of_instancetypes.FEDORA,
            of_instancetypes.PREF_MARK: of_instancetypes.FEDORA_MARK,
        }

    @pytest.mark.parametrize(
        ("field", "mark"), [("instancetype", IT_MARK[2]), ("preference", of_instancetypes.PREF_MARK[2])]
    )
    def test_an_owner_who_names_another_or_leaves_the_mark_means_it(self, field: str, mark: str) -> None:
        world = facts([*WORLD, instancetype("other"), preference("other")])
        for new, code in (
            (halted(**{field: {"name": "other"}}), instancetypes.OWNER_CHOSE_INSTANCETYPE),
            (halted(annotations={mark: "x"}), instancetypes.OWNER_REMOVED_INSTANCETYPE),
        ):
            decision = decide(new, world, OURS)
            assert ("spec", field) not in changes(decision)
            assert code in {reason.code for reason in decision.reasons}

    @pytest.mark.control("forged-annotations")
    def test_a_mark_that_does_not_fit_its_matcher_is_not_ours(self) -> None:
        old = OURS | {"spec": OURS["spec"] | {"instancetype": {"name": "chosen-later"}}}
        assert ("spec", "instancetype") not in changes(decide(halted(), facts(WORLD), old))

    @pytest.mark.control("forged-annotations")
    def test_what_kubevirt_would_refuse_is_not_put_back(self) -> None:
        world = facts([instancetype(nodeSelector={"a": "b"}), preference()])
        decision = decide(vm(template={"nodeSelector": {"c": "d"}}), world, OURS)
        assert ("spec", "instancetype") not in changes(decision)
        assert "nodeSelector conflicts" in decision.warnings[1].text
        assert decide(vm(preference=of_instancetypes.FEDORA), facts([of_instancetypes.CRASHING]), vm()).denial


class TestGivingWay:
    """A default that stands in the way of what its owner writes leaves in the same request."""

    def test_a_size(self) -> None:
        for scope, gone in (
            ("unsized", GONE | {("spec", "preference"): None, of_instancetypes.PREF_MARK: None}),
            ("all", GONE),
        ):
            decision = decide(marked(LARGE), facts(WORLD), OURS, default_preference_scope=scope)
            assert (decision.code, changes(decision)) == (instancetypes.DEFAULT_WITHDRAWN, gone)
            assert len(decision.warnings) == 1
        # What cannot be read keeps only the rest.
        world = facts(unreadable=[("VirtualMachineClusterPreference", "fedora")])
        decision = decide(marked(LARGE), world, OURS, default_preference_scope="all")
        assert changes(decision) == GONE
        assert "no answer in time" in decision.warnings[0].text

    def test_a_cpu_alone_leaves_no_memory_which_is_said_first(self) -> None:
        decision = decide(marked({"cpu": {"sockets": 2}}), facts(WORLD), OURS)
        assert ("spec", "instancetype") in changes(decision)
        assert [warning.code for warning in decision.warnings] == [
            instancetypes.UNSIZED,
            instancetypes.DEFAULT_WITHDRAWN,
        ]
        # A preset that has a CPU alone gives no memory.
        labelled = marked({"cpu": {"sockets": 2}})
        labelled["spec"]["template"]["metadata"] = {"labels": {"size": "large"}}
        for preset, warnings in ((of_instancetypes.preset(cpu={"cores": 2}), 2), (of_instancetypes.preset(), 1)):
            assert len(decide(labelled, facts(WORLD, presets=[preset]), OURS).warnings) == warnings

    def test_what_conflicts_without_being_a_size(self) -> None:
        world = facts([instancetype(nodeSelector={"zone": "b"}), preference()])
        decision = decide(marked(nodeSelector={"zone": "a"}), world, OURS)
        assert changes(decision) == GONE
        assert "nodeSelector" in decision.warnings[1].text
        assert decision.warnings[0].code == instancetypes.UNSIZED

    def test_an_inference_that_was_merged_into_our_default_wins_and_what_a_manifest_declares_stays(self) -> None:
        decision = decide(vm(annotations=INJECTED_ANNOTATIONS, instancetype=INFERRING), facts(WORLD), OURS)
        assert decision.code == instancetypes.DEFAULT_WITHDRAWN
        assert changes(decision) == {("spec", "instancetype"): {"inferFromVolume": "root"}, IT_MARK: None}
        new, old = (declared(copy.deepcopy(obj), "name") for obj in (marked(LARGE), OURS))
        assert ("spec", "instancetype") not in changes(decide(new, facts(WORLD), old))


class TestSize:
    """An owner who removes the only size of a VM gets a warning."""

    def test_it_warns(self) -> None:
        sizes: list[Json] = [{"memory": {"guest": "1Gi"}}, {"resources": {"limits": {"memory": "1Gi"}}}]
        for old in (vm(instancetype=SMALL), *map(vm, sizes), vm({"memory": {"hugepages": {"pageSize": "2Mi"}}})):
            decision = decide(vm({"cpu": {"cores": 2}}), facts(WORLD), old)
            assert (decision.code, decision.changes, len(decision.warnings)) == (instancetypes.UNSIZED, (), 1)

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (vm({"cpu": {"cores": 2}}), vm()),
            (vm({"memory": {"guest": "1Gi"}}), vm(instancetype=SMALL)),
            (vm(instancetype=SMALL), vm({"memory": {"guest": "1Gi"}})),
            (vm({"memory": {"guest": "1Gi"}}), vm({"resources": {"requests": {"memory": "1Gi"}}})),
        ],
    )
    def test_where_there_was_none_or_is_another_it_does_not(self, old: Json, new: Json) -> None:
        assert not decide(new, facts(WORLD), old).warnings
        by_preset = vm()
        by_preset["spec"]["template"]["metadata"] = {"labels": {"size": "large"}}
        assert not decide(by_preset, facts(WORLD, presets=[of_instancetypes.preset()]), vm(instancetype=SMALL)).warnings


class TestExpanded:
    """A default that KubeVirt or the webhook has expanded survives the overwrite of a pool all the same."""

    @pytest.mark.parametrize(
        ("old", "put_back"),
        [
            *((old, of_instancetypes.INJECTED) for old in (expanded(), expanded("virt-controller"))),
            (expanded(annotations=OURS_MARK), {("spec", "instancetype"): SMALL, IT_MARK: of_instancetypes.SMALL_MARK}),
        ],
    )
    def test_what_was_there_is_put_back(self, old: Json, put_back: Any) -> None:
        decision = decide(halted(), facts(WORLD), old)
        assert (decision.code, changes(decision)) == (instancetypes.DEFAULTS_PRESERVED, put_back)
        assert not decision.warnings

    @pytest.mark.control("forged-ownership")
    def test_a_mark_that_names_nothing_is_none(self) -> None:
        old = expanded(annotations={IT_MARK[2]: "any thing"})
        assert decide(vm(), facts(WORLD), old).code == instancetypes.UNSIZED


STORED = (
    instancetype("u1.small", memory={"guest": "2Gi"}, cpu={"guest": 1}),
    instancetype("u1.medium", memory={"guest": "4Gi"}, cpu={"guest": 1}),
    instancetype("u1.nano", memory={"guest": "512Mi"}, cpu={"guest": 1}),
    instancetype("own", kind="VirtualMachineInstancetype", memory={"guest": "2Gi"}),
    instancetype("placed", kind="VirtualMachineInstancetype", memory={"guest": "2Gi"}, schedulerName="volcano"),
    preference("fedora", requirements={"memory": {"guest": "2Gi"}}),
    preference("alpine", requirements={"memory": {"guest": "512Mi"}}),
    preference("own", kind="VirtualMachinePreference"),
)


class Refused(Exception):  # noqa: N818 - an answer
    """The API server denied a request."""


class ApiServer:
    """A model of what an API server, this server and KubeVirt make of an owner's manifests, as far as VMs go.

    VMs by their names in one namespace, in which both policies enforce. Admission comes after the merge and after the
    owners of fields were computed, as in the real one.

    Args:
        settings: of the instancetypes policy.
    """

    def __init__(self, objects: Iterable[Json] = STORED, **settings: Any) -> None:
        self._objects = {(found["kind"], found["metadata"]["name"]): found for found in objects}
        self._get = among(objects)
        self._settings = changed(InstancetypeSettings(), **settings)
        self._stored: dict[str, Json] = {}
        self._applied: dict[str, Json] = {}

    def write(self, way: str, after: Json, before: Json | None = None) -> Json:
        """The VM as it is stored after an owner has written a manifest.

        Args:
            before: the manifest that was written last; None: the VM does not exist yet.

        Raises:
            `Refused`: the API server or a policy denied the manifest.
        """
        name = after["metadata"]["name"]
        old = self._stored.get(name)
        changed = _WRITERS[way](self, name, old, after, before)
        changed["metadata"]["namespace"] = "demo"
        changed["metadata"]["managedFields"] = [_entry(self._applied[name])] if name in self._applied else []
        stored = self._admitted(changed, old)
        self._stored[name] = stored
        return copy.deepcopy(stored)

    def _apply_client_side(self, name: str, old: Json | None, after: Json, before: Json | None) -> Json:
        manifest = copy.deepcopy(after)
        manifest["metadata"]["annotations"] = {LAST_APPLIED: json.dumps(after)}
        if old is None:
            return manifest
        last = json.loads(old["metadata"]["annotations"][LAST_APPLIED])
        merged: Json = owners.merge(owners.merge(old, manifest), _only_removed(owners.merge_patch(last, after)))
        return merged

    def _apply_server_side(self, name: str, old: Json | None, after: Json, before: Json | None) -> Json:
        declared = {"spec": after["spec"]}
        merged = copy.deepcopy(after) if old is None else owners.merge(old, after)
        if name in self._applied:
            for path in _leaves(self._applied[name]) - _leaves(declared):
                _remove(merged, path)
        self._applied[name] = declared
        return merged

    def _replace(self, name: str, old: Json | None, after: Json, before: Json | None) -> Json:
        return copy.deepcopy(after)

    def _patch(self, name: str, old: Json | None, after: Json, before: Json | None) -> Json:
        return copy.deepcopy(after) if old is None else owners.merge(old, owners.merge_patch(before, after))

    def _patch_json(self, name: str, old: Json | None, after: Json, before: Json | None) -> Json:
        if old is None:
            return copy.deepcopy(after)
        patched: Json = jsonpatch.apply_patch(old, jsonpatch.make_patch(before, after))
        return patched

    def _admitted(self, vm: Json, old: Json | None) -> Json:
        # The API server does not call the webhook for requests that change neither the spec nor what manifests declare.
        if old is None or old["spec"] != vm["spec"] or _records(old) != _records(vm):
            for policy in ("instancetypes", "scheduling"):
                vm = self._mutated(policy, vm, old)
        mutated = plain.mutate_vm(vm, self._get, lambda: "u", DEFAULTS, old)
        for answer in (mutated, plain.validate_vm(vm, self._get, DEFAULTS)):
            if not answer.is_allowed:
                raise Refused(answer.message)
        return vm

    def _mutated(self, policy: str, vm: Json, old: Json | None) -> Json:
        body = review(vm, user="owner", operation="UPDATE" if old else "CREATE", oldObject=old)
        settings = self._settings if policy == "instancetypes" else builders.scheduling()
        decision = evaluate(f"/mutate/{policy}/virtualmachines/enforce", body, Facts(peek=self._peek), settings)
        if decision.denial:
            raise Refused(decision.denial.message)
        return patched(vm, decision)

    def _peek(self, key: Key[Any]) -> object:
        if isinstance(key, ObjectKey):
            found = self._objects.get((key.resource.kind, key.name))
            return None if found is None else msgspec.convert(found, key.resource.view)
        if isinstance(key, ListKey):
            return ()
        facts: dict[Key[Any], object] = {SchedulerKey("kubevirt"): AVAILABLE, **known()}
        return facts[key]


def _records(vm: Json) -> list[Any]:
    """What says which fields manifests declare."""
    metadata = vm["metadata"]
    return [metadata.get("managedFields"), (metadata.get("annotations") or {}).get(LAST_APPLIED)]


_Writer = Callable[[ApiServer, str, Json | None, Json, Json | None], Json]
_WRITERS: Mapping[str, _Writer] = {
    "client-side apply": ApiServer._apply_client_side,
    "server-side apply": ApiServer._apply_server_side,
    "replace": ApiServer._replace,
    "merge patch": ApiServer._patch,
    "JSON patch": ApiServer._patch_json,
}


def _only_removed(patch: Json) -> Json:
    """The fields that a merge patch removes."""
    inner = {key: _only_removed(value) for key, value in patch.items() if isinstance(value, dict)}
    removed = {key: None for key, value in patch.items() if value is None}
    return {key: value for key, value in inner.items() if value} | removed


def _leaves(value: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The paths that an applier owns; lists count as a whole."""
    if not isinstance(value, dict) or not value:
        return {path}
    return {leaf for key, item in value.items() for leaf in _leaves(item, (*path, key))}


def _remove(root: Json, path: tuple[str, ...]) -> None:
    """Takes a leaf out, and the maps that become empty by that."""
    if len(path) > 1:
        inner = root.get(path[0])
        if not isinstance(inner, dict):
            return
        _remove(inner, path[1:])
        if inner:
            return
    root.pop(path[0], None)


def _entry(declared: Json) -> Json:
    def fields(value: Any) -> Json:
        return {f"f:{key}": fields(item) for key, item in value.items()} if isinstance(value, dict) else {}

    return {"manager": "flux", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": fields(declared)}


CHOICES: Any = st.fixed_dictionaries({part: st.sampled_from(options) for part, options in OPTIONS.items()})


def written(server: ApiServer, way: str, after: Json, before: Json | None = None) -> Json | None:
    try:
        return server.write(way, after, before)
    except Refused:
        return None


@given(
    first=CHOICES,
    second=CHOICES,
    way=st.sampled_from(WAYS),
    defaults=st.sampled_from([CLUSTER_WIDE, OF_THE_NAMESPACE]),
    scope=st.sampled_from(["unsized", "all"]),
)
def test_the_second_manifest_makes_the_vm_that_it_would_make_anew(
    first: Json, second: Json, way: str, defaults: tuple[str, str], scope: str
) -> None:
    server = ApiServer(default_instancetype=defaults[0], default_preference=defaults[1], default_preference_scope=scope)
    before, after = manifest_of(first), manifest_of(second)
    there = written(server, way, before)
    if there is None:
        return
    stored = written(server, way, after, before)
    created = written(server, way, manifest_of(second, "new"))
    assert list(WrittenField(way, after, there, stored, created).surprises()) == []
    if stored is not None:
        again = written(server, way, after, after)
        assert again is not None
        assert (again["spec"], marks_of(again)) == (stored["spec"], marks_of(stored))


class TestMerging:
    """The policy distinguishes what an applier or a patch merged into an injected default from that default."""

    def test_a_declared_name_comes_without_our_kind(self) -> None:
        decision = decide(declared(merged(name="big"), "name"), facts(OBJECTS), OLD)
        assert (decision.code, decision.warnings) == (instancetypes.DEFAULT_WITHDRAWN, ())
        assert changes(decision) == {("spec", "instancetype"): {"name": "big"}, IT_MARK: None}
        # An annotation that a manifest declares stays.
        new = declaring(merged(name="big"), ("spec", "instancetype", "name"), IT_MARK)
        assert IT_MARK not in changes(decide(new, facts(OBJECTS), OLD))
        # The revision of a default goes with its name.
        world, pinned = (
            facts([*OBJECTS, of_instancetypes.revision("r1", instancetype("own"))]),
            merged(revisionName="r1"),
        )
        named = decide(declared(merged(name="big", revisionName="r1"), "name"), world, pinned)
        assert changes(named)["spec", "instancetype"] == {"name": "big"}

    @pytest.mark.parametrize(("members", "left"), [(("name",), {"name": "own"}), (("name", "kind"), OWN)])
    def test_of_the_default_what_is_declared_stays(self, members: tuple[str, ...], left: Json) -> None:
        new = declared(merged(), *members)
        # Whether or not the same apply changes something else.
        for spec in ({}, {"runStrategy": "Halted"}):
            new["spec"] |= spec
            after = patched(new, decide(new, facts(), OLD))
            assert (after["spec"]["instancetype"], after["metadata"]["annotations"]) == (left, {})
        assert changes(decide(declared(merged(), "kind"), facts(), OLD)) == {}

    @pytest.mark.parametrize(
        ("objects", "expected"),
        [
            ([instancetype("big")], {"name": "big"}),
            ([instancetype("big", kind="VirtualMachineInstancetype")], {**OWN, "name": "big"}),
            ([instancetype("big"), instancetype("big", kind="VirtualMachineInstancetype")], {**OWN, "name": "big"}),
            ([], {"name": "big"}),
        ],
    )
    def test_of_a_patched_name_the_objects_that_there_are_decide(self, objects: list[Json], expected: Json) -> None:
        kinds = {"VirtualMachineInstancetype", "VirtualMachineClusterInstancetype"}
        missing = [(kind, "big") for kind in kinds - {found["kind"] for found in objects}]
        new = merged(name="big")
        decision = decide(new, facts(objects, missing), OLD)
        assert (patched(new, decision)["spec"]["instancetype"], len(decision.warnings)) == (expected, 1)

    def test_a_cluster_wide_kind_of_ours_goes_without_a_question(self) -> None:
        ours: Json = {"annotations": {IT_MARK[2]: of_instancetypes.SMALL_MARK}}
        explicit = {"kind": "VirtualMachineClusterInstancetype", **SMALL}
        new, old = (vm(**ours, instancetype=given) for given in ({**explicit, "name": "big"}, explicit))
        decision = decide(new, facts([instancetype("big")]), old)
        assert (changes(decision)["spec", "instancetype"], decision.warnings) == ({"name": "big"}, ())

    def test_what_is_left_of_ours_without_a_name_is_nothing(self) -> None:
        left = vm(annotations={IT_MARK[2]: OWN_MARK}, instancetype={"kind": "VirtualMachineInstancetype"})
        for new in (left, merged(name=None)):
            decision = decide(new, facts(), OLD)
            assert changes(decision) == {("spec", "instancetype"): None}
            assert decision.reasons[0].code == instancetypes.OWNER_REMOVED_INSTANCETYPE
