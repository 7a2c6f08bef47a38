from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import builders
from tests.cluster.fake_apiserver import why
from tests.cluster.files_case import LEASE, cluster, health, made, pod, stuck
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
from webhook.settings.model import SchedulerHealthSettings, SchedulerSettings


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
            (tmp_path / hidden / "a.yaml").write_text("no: object")
        (tmp_path / ".a.yaml").write_text("no: object")
        (tmp_path / "README.md").write_text("no: object")

        assert cluster(tmp_path).get("Node", "", "n1") == made("v1", "Node", "n1")

    def test_one_file_of_any_name(self, tmp_path: Path) -> None:
        path = tmp_path / ".dump"
        path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [made("v1", "Node", "n1")]}))

        assert len(FilesCluster.load(str(path), builders.settings()).objects("Node")) == 1

    def test_linked_files_of_a_mounted_config_map(self, tmp_path: Path) -> None:
        (tmp_path / "..1").mkdir()
        (tmp_path / "..1" / "a.yaml").write_text(yaml.safe_dump(made("v1", "Node", "n1")))
        (tmp_path / "..data").symlink_to("..1")
        (tmp_path / "a.yaml").symlink_to("..data/a.yaml")

        assert len(FilesCluster.load(tmp_path, builders.settings()).objects("Node")) == 1

    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind(self, tmp_path: Path, kind: str) -> None:
        known = KINDS[kind]
        version = "v1beta1" if known.versions.startswith("v[") else "v1"
        namespace = "ns" if known.namespaced else ""
        thing = made(f"{known.group}/{version}".lstrip("/"), kind, "a", namespace)

        found = cluster(tmp_path, thing)

        assert found.objects(kind)[-1:] == [thing]
        assert found.get(kind, namespace, "a") == thing
        assert found.get(kind, namespace, "b") is None

    @pytest.mark.parametrize("version", ["v1", "v1alpha3"])
    def test_both_versions_of_kubevirt(self, tmp_path: Path, version: str) -> None:
        found = cluster(tmp_path, made(f"kubevirt.io/{version}", "VirtualMachine", "vm", "ns"))

        assert len(found.objects("VirtualMachine")) == 1

    def test_other_kinds_are_a_mistake_of_the_program(self, tmp_path: Path) -> None:
        with pytest.raises(KeyError):
            cluster(tmp_path).objects("Service")
        with pytest.raises(KeyError):
            cluster(tmp_path).get("Service", "a", "b")


class TestAnswers:
    def test_namespaces(self, tmp_path: Path) -> None:
        found = cluster(tmp_path, made("v1", "Namespace", "vms", metadata={"labels": {"a": "off"}}))
        namespace = found.peek(NamespaceKey("vms"))

        assert isinstance(namespace, Namespace)
        assert namespace.meta.label("a") == "off"
        assert found.peek(NamespaceKey("vms", fresh=True)) is namespace
        assert found.peek(NamespaceKey("other")) is None

    def test_an_unquoted_off_is_a_label_s_value(self, tmp_path: Path) -> None:
        (tmp_path / "a.yaml").write_text(
            f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: vms\n  labels:\n    {names.DOMAIN}/scheduling: off\n"
        )
        namespace = FilesCluster.load(tmp_path, builders.settings()).peek(NamespaceKey("vms"))

        assert isinstance(namespace, Namespace)
        assert namespace.meta.label(names.policy_label("scheduling")) == "off"

    def test_vmis(self, tmp_path: Path) -> None:
        vmi = made(
            "kubevirt.io/v1", "VirtualMachineInstance", "a", "vms", spec={"schedulerName": "x"}, metadata={"uid": "u"}
        )
        found = cluster(tmp_path, vmi).peek(VmiKey("vms", "a", "u"))

        assert isinstance(found, VirtualMachineInstance)
        assert (found.scheduler_name, found.meta.uid) == ("x", "u")
        # Whether the UID is the right one is the asker's business.
        assert cluster(tmp_path, vmi).peek(VmiKey("vms", "a", "other")) == found
        assert cluster(tmp_path, vmi).peek(VmiKey("vms", "b", "u")) is None

    def test_objects(self, tmp_path: Path) -> None:
        found = cluster(
            tmp_path,
            made(
                "instancetype.kubevirt.io/v1beta1", "VirtualMachineInstancetype", "a", "ns", spec={"schedulerName": "x"}
            ),
            made("instancetype.kubevirt.io/v1beta1", "VirtualMachineClusterInstancetype", "a", spec={}),
        )
        namespaced = found.peek(ObjectKey(INSTANCETYPES, "ns", "a"))
        cluster_wide = found.peek(ObjectKey(CLUSTER_INSTANCETYPES, "", "a"))

        assert isinstance(namespaced, Instancetype)
        assert namespaced.spec is not None
        assert namespaced.spec.scheduler_name == "x"
        assert isinstance(cluster_wide, Instancetype)
        assert found.peek(ObjectKey(CLUSTER_INSTANCETYPES, "ignored", "a")) is cluster_wide
        assert found.peek(ObjectKey(INSTANCETYPES, "other", "a")) is None
        assert found.peek(ObjectKey(VMIS, "ns", "a")) is None

    def test_objects_through_another_view(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        class Strict(Object, frozen=True):
            spec: str | None = None

        found = cluster(tmp_path, pod("p"))
        seen = found.peek(ObjectKey(Resource("", "v1", "pods", "Pod", True, SchedulingPod), "vms", "p"))

        assert type(seen) is SchedulingPod
        assert seen.spec is not None
        assert seen.spec.scheduler_name == "kubevirt"
        assert type(found.peek(ObjectKey(PENDING_PODS, "vms", "p"))) is PendingPod
        refused = found.peek(ObjectKey(Resource("", "v1", "pods", "Pod", True, Strict), "vms", "p"))
        golden(why(refused))

    @pytest.mark.parametrize(("group", "kind"), [("storage.k8s.io", "StorageClass"), ("example.com", "Pod")])
    def test_what_files_can_t_hold_is_not_known(
        self, tmp_path: Path, group: str, kind: str, golden: Callable[[str], None]
    ) -> None:
        key = ObjectKey(Resource(group, "v1", "things", kind, True, Object), "a", "b")

        golden(why(cluster(tmp_path).peek(key)))

    def test_kubevirt(self, tmp_path: Path) -> None:
        assert cluster(tmp_path).peek(KubeVirtKey()) is None
        objects = [made("kubevirt.io/v1", "KubeVirt", "kv", namespace) for namespace in ("a", "b")]

        install: Any = cluster(tmp_path, *objects).peek(KubeVirtKey())
        assert install.namespaces == {"a", "b"}

    def test_other_keys_are_not_known(self, tmp_path: Path) -> None:
        class NewKey(Key[str], frozen=True):
            pass

        assert isinstance(cluster(tmp_path).peek(NewKey()), Unavailable)

    async def test_reading_is_peeking(self, tmp_path: Path) -> None:
        found = cluster(tmp_path, made("v1", "Namespace", "vms"))

        assert await found.read(NamespaceKey("vms"), deadline=0.0) is found.peek(NamespaceKey("vms"))
        assert await found.read(NamespaceKey("x"), deadline=0.0) is None
        assert found.waiting_for() == ()

    def test_migrations_have_the_label_that_kubevirt_gives_them(self, tmp_path: Path) -> None:
        written = [("m1", {"vmiName": "web"}), ("m2", {"vmiName": "db"}), ("m3", 5)]
        kind = "VirtualMachineInstanceMigration"
        found = cluster(tmp_path, *(made("kubevirt.io/v1", kind, name, "x", spec=spec) for name, spec in written))

        listed = found.peek(ListKey(MIGRATIONS, "x", "kubevirt.io/vmi-name=web"))

        assert isinstance(listed, tuple)
        assert [migration.meta.name for migration in listed] == ["m1"]

    def test_lists_of_one_namespace_and_of_all(self, tmp_path: Path) -> None:
        labels = {"app": "web"}
        pods = [made("v1", "Pod", name, namespace) for name, namespace in (("a", "x"), ("b", "x"), ("c", "y"))]
        for labeled in pods[1:]:
            labeled["metadata"]["labels"] = labels
        found = cluster(tmp_path, *pods)

        def names_of(namespace: str, label: str = "") -> list[str | None]:
            listed = found.peek(ListKey(PENDING_PODS, namespace, label))
            assert isinstance(listed, tuple)
            return [pod.meta.name for pod in listed]

        assert (names_of("x"), names_of("x", "app=web")) == (["a", "b"], ["b"])
        assert (names_of(""), names_of("", "app=web"), names_of("z")) == (["a", "b", "c"], ["b", "c"], [])


class TestSchedulers:
    def test_undeclared_ones_have_no_health(self, tmp_path: Path) -> None:
        assert cluster(tmp_path, LEASE).peek(SchedulerKey("other")) is None

    def test_a_held_lease_is_alive_whatever_its_age(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        found = health(cluster(tmp_path, LEASE))
        assert found.state == "available"
        golden(found.why)

    def test_no_lease_is_dead(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        found = health(cluster(tmp_path))
        assert found.state == "unavailable"
        golden(found.why)

    @pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": ""}, {"holderIdentity": None}])
    def test_a_released_lease_is_dead(self, tmp_path: Path, spec: Any, golden: Callable[[str], None]) -> None:
        found = health(cluster(tmp_path, {**LEASE, "spec": spec}))
        assert found.state == "unavailable"
        golden(found.why)

    def test_pods_that_nobody_tries_are_stronger_than_a_lease(
        self, tmp_path: Path, golden: Callable[[str], None]
    ) -> None:
        found = cluster(tmp_path, LEASE, *stuck("east"), *stuck("west"))

        assert health(found).state == "unavailable"
        golden(health(found).why)

    def test_one_namespace_speaks_for_itself(self, tmp_path: Path) -> None:
        found = cluster(tmp_path, LEASE, *stuck("east", "a"), *stuck("east", "b"))

        assert health(found).state == "available"
        assert health(found, namespace="west").state == "available"
        assert health(found, namespace="east").state == "unavailable"

    @pytest.mark.parametrize("missing", [0, 1])
    def test_without_vmi_or_label_pods_are_no_evidence(self, tmp_path: Path, missing: int) -> None:
        west = stuck("west")
        del west[missing]

        assert health(cluster(tmp_path, LEASE, *stuck("east"), *west)).state == "available"

    def test_pods_of_other_schedulers_say_nothing(self, tmp_path: Path) -> None:
        found = cluster(tmp_path, LEASE, *stuck("east", scheduler="batch"), *stuck("west", scheduler="batch"))

        assert health(found).state == "available"
        assert health(found, "batch").state == "unavailable"

    def test_pods_alone_may_be_the_health_check(self, tmp_path: Path) -> None:
        assert health(cluster(tmp_path), "batch") == SchedulerHealth("available", "no pod waits unnoticed")

    def test_without_health_check_all_is_well(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        found = cluster(
            tmp_path, pod("p"), schedulers={"kubevirt": SchedulerSettings("kubevirt", SchedulerHealthSettings("off"))}
        )

        assert health(found).state == "available"
        golden(health(found).why)

    def test_other_settings_can_be_used(self, tmp_path: Path) -> None:
        found = cluster(tmp_path)
        found.use(builders.settings(schedulers={"new": SchedulerSettings("new", SchedulerHealthSettings("off"))}))

        assert found.peek(SchedulerKey("kubevirt")) is None
        assert health(found, "new").state == "available"

    @pytest.mark.parametrize(
        "changes",
        [
            {"created": "2026-01-31T11:59:30Z"},
            {"created": "2026-01-31T12:05:00Z"},
            {"created": None},
            {"status": {"phase": "Running"}},
            {
                "status": {
                    "phase": "Pending",
                    "conditions": [{"type": "Ready"}, {"type": "PodScheduled", "status": "False"}],
                }
            },
            {"metadata": {"deletionTimestamp": "2026-01-31T11:59:59Z"}},
            {"spec": {"nodeName": "n1"}},
        ],
    )
    def test_pods_that_prove_nothing(self, tmp_path: Path, changes: dict[str, Any]) -> None:
        found = cluster(tmp_path, LEASE, *stuck("east", **changes), *stuck("west", **changes))

        assert health(found).state == "available"

    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"created": "2026-01-31T12:59:29+01:00"},
            {"status": {}},
            {"status": None},
            {"status": {"phase": "Pending", "conditions": [{"type": "Ready"}]}},
            {"status": {"phase": ""}},
        ],
    )
    def test_pods_that_prove_that_nobody_is_there(self, tmp_path: Path, changes: dict[str, Any]) -> None:
        found = cluster(tmp_path, LEASE, *stuck("east", **changes), *stuck("west", **changes))

        assert health(found).state == "unavailable"


class TestSummary:
    def test_of_a_whole_cluster(self, tmp_path: Path) -> None:
        label = names.policy_label("scheduling")
        found = cluster(
            tmp_path,
            made("v1", "Node", "n2"),
            *(
                made("v1", "Namespace", f"ns-{mode}", metadata={"labels": {label: mode}})
                for mode in ("enforce", "audit", "off", "x")
            ),
            made("v1", "Namespace", "plain"),
            made("kubevirt.io/v1", "VirtualMachine", "a", "ns"),
            *(made("kubevirt.io/v1", "VirtualMachineInstance", name, "ns") for name in ("a", "b")),
            made("kubevirt.io/v1", "KubeVirt", "kv", "kubevirt"),
            LEASE,
            *stuck("east", scheduler="batch"),
            *stuck("west", scheduler="batch"),
        )

        assert found.summary() == (
            "2 nodes, 7 namespaces (4 opted in), 1 VM, 4 VMIs, KubeVirt in kubevirt, "
            "scheduler kubevirt available, scheduler batch unavailable"
        )

    def test_of_nearly_nothing(self, tmp_path: Path) -> None:
        assert cluster(tmp_path, schedulers={}).summary() == (
            "1 node, 0 namespaces (0 opted in), 0 VMs, 0 VMIs, no KubeVirt"
        )
