"""A cluster out of files: what is read, what it answers, and the health of its schedulers."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import builders
from tests.cluster.fake_apiserver import why
from tests.cluster.files_case import INSTANCETYPES as TYPES
from tests.cluster.files_case import LEASE, cluster, health, kubevirts, made, opted_in, stuck
from tests.golden_files import Golden
from webhook import names
from webhook.cluster.directory import KINDS
from webhook.cluster.files import FilesCluster
from webhook.errors import Unavailable
from webhook.facts import Key, KubeVirtKey, ListKey, NamespaceKey, ObjectKey, SchedulerHealth, SchedulerKey, VmiKey
from webhook.k8s.resources import PENDING_PODS, Resource
from webhook.k8s.types.core import PendingPod, SchedulingPod
from webhook.k8s.types.meta import Namespace, Object
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES, INSTANCETYPES, VMIS
from webhook.kubevirt.types.views import Instancetype, VirtualMachineInstance
from webhook.placement.machines import MIGRATIONS
from webhook.settings.schedulers import SchedulerSettings

NODE = made("v1", "Node", "n1")


def off(name: str) -> dict[str, SchedulerSettings]:
    return {name: builders.scheduler(name)}


class TestReading:
    def test_every_file_below_the_directory_in_order(self, tmp_path: Path) -> None:
        (tmp_path / "b").mkdir()
        nodes = {"z.yaml": "n1", "b/a.yml": "n2", "a.json": "n3", "b/c.yaml.gz": "n4", "c.json.gz": "n5"}
        for file, name in nodes.items():
            data = json.dumps(made("v1", "Node", name)).encode()
            (tmp_path / file).write_bytes(gzip.compress(data) if file.endswith(".gz") else data)
        found = FilesCluster.load(tmp_path, builders.settings()).objects("Node")
        assert [node["metadata"]["name"] for node in found] == ["n3", "n2", "n4", "n5", "n1"]

    def test_hidden_and_other_files_are_passed_over(self, tmp_path: Path) -> None:
        for hidden in (".git", "..data"):
            (tmp_path / hidden).mkdir()
        for name in (".git/a.yaml", "..data/a.yaml", ".a.yaml", "README.md"):
            (tmp_path / name).write_text("no: object")
        assert cluster(tmp_path).objects("Node") == [NODE]

    def test_one_file_of_any_name_and_linked_files_of_a_mounted_config_map(self, tmp_path: Path) -> None:
        (tmp_path / ".dump").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [NODE]}))
        assert len(FilesCluster.load(str(tmp_path / ".dump"), builders.settings()).objects("Node")) == 1
        (tmp_path / "..1").mkdir()
        (tmp_path / "..1" / "a.yaml").write_text(yaml.safe_dump(NODE))
        (tmp_path / "..data").symlink_to("..1")
        (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
        assert len(FilesCluster.load(tmp_path, builders.settings()).objects("Node")) == 1

    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind(self, tmp_path: Path, kind: str) -> None:
        known = KINDS[kind]
        version = next(one for one in ("v1", "v1beta1", "v1alpha1") if re.fullmatch(known.versions, one))
        namespace = "ns" if known.namespaced else ""
        thing = made(f"{known.group}/{version}".lstrip("/"), kind, "a", namespace)
        found = cluster(tmp_path, thing)
        assert found.objects(kind)[-1:] == [thing]

    @pytest.mark.parametrize("version", ["v1", "v1alpha3"])
    def test_both_versions_of_kubevirt(self, tmp_path: Path, version: str) -> None:
        found = cluster(tmp_path, made(f"kubevirt.io/{version}", "VirtualMachine", "vm", "ns"))
        assert len(found.objects("VirtualMachine")) == 1

    def test_other_kinds_are_a_mistake_of_the_program(self, tmp_path: Path) -> None:
        with pytest.raises(KeyError):
            cluster(tmp_path).objects("Endpoints")


class TestAnswers:
    def test_namespaces(self, tmp_path: Path) -> None:
        (tmp_path / "a.yaml").write_text(
            "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: vms\n"
            f"  labels:\n    {names.DOMAIN}/scheduling: 'off'\n"
        )
        found = FilesCluster.load(tmp_path, builders.settings())
        namespace = found.peek(NamespaceKey("vms"))
        assert isinstance(namespace, Namespace)
        assert namespace.meta.label(names.policy_label("scheduling")) == "off"
        assert found.peek(NamespaceKey("vms", uncached=True)) is namespace
        assert found.peek(NamespaceKey("other")) is None

    def test_vmis(self, tmp_path: Path) -> None:
        vmi = kubevirts("VirtualMachineInstance", "a", spec={"schedulerName": "x"}, metadata={"uid": "u"})
        answers = cluster(tmp_path, vmi)
        found = answers.peek(VmiKey("ns", "a", "u"))
        assert isinstance(found, VirtualMachineInstance)
        assert (found.scheduler_name, found.meta.uid) == ("x", "u")
        # Whether the UID is the right one is the asker's business.
        assert answers.peek(VmiKey("ns", "a", "other")) == found
        assert answers.peek(VmiKey("ns", "b", "u")) is None

    def test_objects(self, tmp_path: Path) -> None:
        found = cluster(
            tmp_path,
            made(TYPES, "VirtualMachineInstancetype", "a", "ns", spec={"schedulerName": "x"}),
            made(TYPES, "VirtualMachineClusterInstancetype", "a", spec={}),
        )
        namespaced = found.peek(ObjectKey(INSTANCETYPES, "ns", "a"))
        assert isinstance(namespaced, Instancetype) and namespaced.spec and namespaced.spec.scheduler_name == "x"
        cluster_wide = found.peek(ObjectKey(CLUSTER_INSTANCETYPES, "", "a"))
        assert isinstance(cluster_wide, Instancetype)
        assert found.peek(ObjectKey(CLUSTER_INSTANCETYPES, "ignored", "a")) is cluster_wide
        for missing in (ObjectKey(INSTANCETYPES, "other", "a"), ObjectKey(VMIS, "ns", "a")):
            assert found.peek(missing) is None

    def test_objects_through_another_view(self, tmp_path: Path, golden: Golden) -> None:
        class Strict(Object, frozen=True):
            spec: str | None = None

        def pods(view: type[Any]) -> ObjectKey[Any]:
            return ObjectKey(Resource("", "v1", "pods", "Pod", True, view), "vms", "p")

        found = cluster(tmp_path, made("v1", "Pod", "p", "vms", spec={"schedulerName": "kubevirt"}))
        seen = found.peek(pods(SchedulingPod))
        assert type(seen) is SchedulingPod and seen.spec and seen.spec.scheduler_name == "kubevirt"
        assert type(found.peek(ObjectKey(PENDING_PODS, "vms", "p"))) is PendingPod
        golden(why(found.peek(pods(Strict))))

    @pytest.mark.parametrize(("group", "kind"), [("storage.k8s.io", "CSINode"), ("example.com", "Pod")])
    def test_what_files_can_t_hold_is_not_known(self, tmp_path: Path, group: str, kind: str, golden: Golden) -> None:
        golden(why(cluster(tmp_path).peek(ObjectKey(Resource(group, "v1", "things", kind, True, Object), "a", "b"))))

    def test_kubevirt(self, tmp_path: Path) -> None:
        assert cluster(tmp_path).peek(KubeVirtKey()) is None
        install: Any = cluster(tmp_path, *(kubevirts("KubeVirt", "kv", each) for each in "ab")).peek(KubeVirtKey())
        assert install.namespaces == {"a", "b"}

    async def test_reading_is_peeking(self, tmp_path: Path) -> None:
        class NewKey(Key[str], frozen=True):
            pass

        found = cluster(tmp_path, made("v1", "Namespace", "vms"))
        assert await found.read(NamespaceKey("vms"), deadline=0.0) is found.peek(NamespaceKey("vms"))
        assert await found.read(NamespaceKey("x"), deadline=0.0) is None
        assert found.waiting_for() == ()
        assert isinstance(found.peek(NewKey()), Unavailable)

    def test_lists_of_one_namespace_and_of_all(self, tmp_path: Path) -> None:
        pods = [made("v1", "Pod", name, namespace) for name, namespace in (("a", "x"), ("b", "x"), ("c", "y"))]
        for labeled in pods[1:]:
            labeled["metadata"]["labels"] = {"app": "web"}
        # Migrations have the label that KubeVirt gives them.
        written = [("m1", {"vmiName": "web"}), ("m2", {"vmiName": "db"}), ("m3", 5)]
        migrations = [kubevirts("VirtualMachineInstanceMigration", name, "x", spec=spec) for name, spec in written]
        found = cluster(tmp_path, *pods, *migrations)
        for key, expected in (
            *((ListKey(PENDING_PODS, "x"), ["a", "b"]), (ListKey(PENDING_PODS, "x", "app=web"), ["b"])),
            *((ListKey(PENDING_PODS, ""), ["a", "b", "c"]), (ListKey(PENDING_PODS, "", "app=web"), ["b", "c"])),
            *((ListKey(PENDING_PODS, "z"), []), (ListKey(MIGRATIONS, "x", "kubevirt.io/vmi-name=web"), ["m1"])),
        ):
            listed = found.peek(key)
            assert isinstance(listed, tuple)
            assert [each.meta.name for each in listed] == expected


PROVE_NOTHING: list[dict[str, Any]] = [
    *({"metadata": {"creationTimestamp": time}} for time in ("2026-01-31T11:59:30Z", "2026-01-31T12:05:00Z", None)),
    *({"metadata": {"deletionTimestamp": "2026-01-31T11:59:59Z"}}, {"spec": {"nodeName": "n"}}),
    {"status": {"phase": "Pending", "nominatedNodeName": "n"}},
    *({"status": {"phase": "Running"}}, {"status": {"conditions": [{"type": "Ready"}, {"type": "PodScheduled"}]}}),
]
PROVE_THAT_NOBODY_IS_THERE: list[dict[str, Any]] = [
    *({}, {"metadata": {"creationTimestamp": "2026-01-31T12:59:29+01:00"}}, {"status": {}}, {"status": None}),
    *({"status": {"phase": "Pending", "conditions": [{"type": "Ready"}]}}, {"status": {"phase": ""}}),
]


class TestSchedulers:
    def test_undeclared_ones_have_no_health_and_other_settings_can_be_used(self, tmp_path: Path) -> None:
        found = cluster(tmp_path, LEASE)
        assert found.peek(SchedulerKey("other")) is None
        found.use(builders.settings(schedulers=off("new")))
        assert found.peek(SchedulerKey("kubevirt")) is None
        assert health(found, "new").state == "available"

    @pytest.mark.parametrize(
        ("objects", "state"),
        [
            *(([LEASE], "available"), ([], "unavailable"), ([LEASE, *stuck("east"), *stuck("west")], "unavailable")),
            *(([LEASE | {"spec": spec}], "unavailable") for spec in (None, {}, {"holderIdentity": ""})),
        ],
        ids=["held whatever its age", "none", "pods that nobody tries", "without spec", "without holder", "released"],
    )
    def test_a_lease_and_what_waits(self, tmp_path: Path, objects: list[Any], state: str, golden: Golden) -> None:
        found = health(cluster(tmp_path, *objects))
        assert found.state == state
        golden(found.why)

    def test_one_namespace_speaks_for_itself(self, tmp_path: Path) -> None:
        found = cluster(tmp_path, LEASE, *stuck("east", "a"), *stuck("east", "b"))
        states = {where: health(found, namespace=where).state for where in ("", "west", "east")}
        assert states == {"": "available", "west": "available", "east": "unavailable"}

    @pytest.mark.parametrize("missing", [0, 1])
    def test_without_vmi_or_label_pods_are_no_evidence(self, tmp_path: Path, missing: int) -> None:
        west = stuck("west")
        del west[missing]
        assert health(cluster(tmp_path, LEASE, *stuck("east"), *west)).state == "available"

    def test_pods_alone_may_be_the_health_check(self, tmp_path: Path) -> None:
        assert health(cluster(tmp_path), "batch") == SchedulerHealth("available", "no pod waits unnoticed")
        batch: dict[str, Any] = {"spec": {"schedulerName": "batch"}}
        found = cluster(tmp_path, LEASE, *stuck("east", **batch), *stuck("west", **batch))
        assert (health(found).state, health(found, "batch").state) == ("available", "unavailable")

    def test_without_health_check_all_is_well(self, tmp_path: Path, golden: Golden) -> None:
        found = health(cluster(tmp_path, *stuck("east"), schedulers=off("kubevirt")))
        assert found.state == "available"
        golden(found.why)

    @pytest.mark.parametrize("changes", PROVE_NOTHING + PROVE_THAT_NOBODY_IS_THERE)
    def test_what_waiting_pods_prove(self, tmp_path: Path, changes: dict[str, Any]) -> None:
        found = cluster(tmp_path, LEASE, *stuck("east", **changes), *stuck("west", **changes))
        assert health(found).state == ("available" if changes in PROVE_NOTHING else "unavailable")


def test_a_summary_of_a_whole_cluster_and_of_nearly_nothing(tmp_path: Path) -> None:
    batch: dict[str, Any] = {"spec": {"schedulerName": "batch"}}
    found = cluster(
        tmp_path,
        made("v1", "Node", "n2"),
        *(opted_in(f"ns-{mode}", mode) for mode in ("enforce", "audit", "off", "x")),
        made("v1", "Namespace", "plain"),
        kubevirts("VirtualMachine", "a"),
        *(kubevirts("VirtualMachineInstance", name) for name in ("a", "b")),
        kubevirts("KubeVirt", "kv", "kubevirt"),
        LEASE,
        *stuck("east", **batch),
        *stuck("west", **batch),
    )
    assert found.summary() == (
        "2 nodes, 7 namespaces (4 opted in), 1 VM, 4 VMIs, KubeVirt in kubevirt, "
        "scheduler kubevirt available, scheduler batch unavailable"
    )
    nothing = cluster(tmp_path, schedulers={}).summary()
    assert nothing == "1 node, 0 namespaces (0 opted in), 0 VMs, 0 VMIs, no KubeVirt"
