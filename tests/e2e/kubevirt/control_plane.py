"""A real KubeVirt: virt-api and virt-controller as virt-operator would have installed them. Nodes are played.

Its webhooks and its aggregated API are reached through a Service, as in a cluster; the Service's name is resolved to
this machine, since no kube-proxy is here to lead anywhere.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from hack.controlplane.build import version_of
from tests.e2e.support.kube import Json, KubeObject, eventually
from tests.e2e.support.objects import CRDS, create_once, established, has_condition, obj
from tests.e2e.support.pki import KUBEVIRT_APISERVER, KUBEVIRT_CONTROLLER, Pki
from tests.e2e.support.plane import WITH_ACCOUNTS, ControlPlane
from tests.e2e.support.processes import LOOPBACK, Process, free_port
from tests.e2e.support.workloads import PODS, VMIS, VMS, vm
from webhook.kubevirt.releases.capabilities import parse_version
from webhook.kubevirt.releases.release import release_of

from .nodes import PlayedNodes

NAMESPACE = "kubevirt"
KUBEVIRTS = "kubevirt.io/v1/kubevirts"
SERVICE = "virt-api.kubevirt.svc"
FRONT_PROXY = "front-proxy"
POOL = "VirtualMachinePool"
REPLICA_SETS = "kubevirt.io/v1/virtualmachineinstancereplicasets"
ENDPOINT_SLICES = "discovery.k8s.io/v1/endpointslices"
API_SERVICES = "apiregistration.k8s.io/v1/apiservices"
ZONES = {"node-1": "a", "node-2": "a", "node-3": "b", "node-4": "b"}


def aggregation(front: Pki) -> list[str]:
    """What lets an API server pass requests on to virt-api: ``front`` vouches for it, not the authority of clients."""
    pem = front.client(FRONT_PROXY)
    return [
        f"--requestheader-client-ca-file={front.ca}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pem}",
        f"--proxy-client-key-file={pem}",
        # KubeVirt takes a pod without a token's volume for one with other hotplugged volumes, and replaces it.
        WITH_ACCOUNTS,
    ]


class RunningKubeVirt:
    """KubeVirt at work on a plane that was started with `aggregation` and has no KubeVirt kinds yet, in a context.

    ``configuration`` is the KubeVirt object's ``spec.configuration``; ``nodes`` play those of `ZONES`. ``address``
    is one of this machine, where the API server itself calls endpoints of Services (``--enable-aggregator-routing``).
    """

    def __init__(
        self,
        plane: ControlPlane,
        binaries: Path,
        configuration: Mapping[str, Any],
        nodes: type[PlayedNodes] = PlayedNodes,
        address: str = "",
    ) -> None:
        self.plane = plane
        self._address: Final = address
        self.nodes = nodes(plane, ZONES)
        self._configuration = configuration
        self.version: Final = version_of(binaries)
        parsed = parse_version(self.version)
        assert parsed, self.version
        self.release: Final = release_of(parsed)
        self._port = free_port()
        shown = subprocess.run([binaries / "virt-operator-objects", NAMESPACE], check=True, capture_output=True)
        self._objects: dict[str, list[Json]] = json.loads(shown.stdout)
        self._serving = plane.pki.serving("virt-api", ("localhost", LOOPBACK, SERVICE))
        self._binaries = binaries
        self._virt_api = self._process(
            *("virt-api", f"--port={self._port}", f"--console-server-port={free_port()}"),
            f"--kubeconfig={plane.kubeconfig_for(*KUBEVIRT_APISERVER)}",
            *(f"--{whose}-{what}-file={self._serving}" for whose in ("tls", "handler") for what in ("cert", "key")),
        )
        self._virt_controller = self._controller("v1")

    @property
    def definitions(self) -> list[Json]:
        """The CustomResourceDefinitions that virt-operator installs."""
        return self._objects["customresourcedefinitions"]

    def __enter__(self) -> Self:
        try:
            self._install()
            self.nodes.start()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.nodes.stop()
        self._kill()

    @property
    def pools(self) -> str:
        """The resource of pools, in the version that this release stores."""
        pools = next(one for one in self._objects["customresourcedefinitions"] if one["spec"]["names"]["kind"] == POOL)
        stored = next(version["name"] for version in pools["spec"]["versions"] if version["storage"])
        return f"pool.kubevirt.io/{stored}/virtualmachinepools"

    def names(self, resource: str) -> list[str]:
        """Of the ``instancetypes`` or ``preferences`` that KubeVirt ships."""
        return [shipped["metadata"]["name"] for shipped in self._objects[resource]]

    def configure(self, **changed: Any) -> None:
        change = {"spec": {"configuration": changed}}
        self.plane.admin.patch(KUBEVIRTS, "kubevirt", change, NAMESPACE)

    def update_by(self, strategy: Mapping[str, Any] | None) -> None:
        self.plane.admin.patch(KUBEVIRTS, "kubevirt", {"spec": {"workloadUpdateStrategy": strategy}}, NAMESPACE)

    def update(self, tag: str) -> None:
        """Has virt-controller make launchers of another image, so that those that run are outdated."""
        self._virt_controller.stop()
        self._virt_controller = self._controller(tag)
        self._virt_controller.start()

    @contextmanager
    def without_controller(self) -> Iterator[None]:
        """virt-controller does not run meanwhile."""
        self._virt_controller.stop()
        try:
            yield
        finally:
            self._virt_controller.start()

    def empty(self) -> None:
        """Deletes all VMs, and what would make others of them; they end a moment later."""
        for resource in (self.pools, REPLICA_SETS, VMS, VMIS):
            for namespace in {found["metadata"]["namespace"] for found in self.plane.admin.list(resource)}:
                self.plane.admin.delete_all(resource, namespace)

    def is_empty(self) -> bool:
        """Whether no VM is on any node, nor about to be."""
        return not self.plane.admin.list(VMIS) and not self.plane.admin.list(PODS)

    def call(self, namespace: str, vm: str, what: str, body: Mapping[str, Any] | None = None) -> str:
        """What `virtctl` does to a VM (``start``, ``stop``, ``migrate``): empty, or what the user reads."""
        path = f"/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachines/{vm}/{what}"
        done = self.plane.kubectl("replace", "--raw", path, "-f", "-", stdin=json.dumps(body or {}), check=False)
        return done.stderr.strip()

    def revive(self) -> None:
        """Starts what has ended by itself, as a kubelet does."""
        for process in (self._virt_api, self._virt_controller):
            if not process.running:
                process.kill()
                process.start()

    def kill(self) -> None:
        """Ends virt-api and virt-controller at once, until they are revived."""
        self._kill()

    # -- how it is done ------------------------------------------------------------------------------------------------

    def _install(self) -> None:
        for definition in self._objects["customresourcedefinitions"]:
            self._create(CRDS, definition)
        names = {definition["metadata"]["name"] for definition in self._objects["customresourcedefinitions"]}
        eventually(lambda: names <= established(self.plane.admin), what="KubeVirt's kinds to be established")
        for role in self._objects["rbac"]:
            self._create(self.plane.admin.resource_of(role), role)
        bundle = {"ca-bundle": self.plane.pki.ca.read_text()}
        self._create("v1/configmaps", obj("ConfigMap", "kubevirt-ca", namespace=NAMESPACE, data=bundle))
        self._create_service()
        self._create_kubevirt()
        self._virt_api.start()
        self._virt_controller.start()
        for service in self._objects["apiservices"]:
            service["spec"]["caBundle"] = self._ca
            service["spec"]["service"]["port"] = self._port
            self._create(API_SERVICES, service)
        eventually(self._served, what=f"virt-api to serve (see {self._virt_api.log})")
        for configuration in self._objects["webhooks"]:
            for entry in configuration["webhooks"]:
                entry["clientConfig"]["caBundle"] = self._ca
                entry["clientConfig"]["service"]["port"] = self._port
            self._create(self.plane.admin.resource_of(configuration), configuration)
        for resource in ("instancetypes", "preferences"):
            for shipped in self._objects[resource]:
                self._create(f"instancetype.kubevirt.io/v1beta1/virtualmachinecluster{resource}", shipped)
        eventually(self._mutates, what="the API server to call virt-api")

    def _create_service(self) -> None:
        """That of virt-api, as the API server resolves it."""
        ports = [{"port": self._port}]
        if not self._address:
            resolved = {"type": "ExternalName", "externalName": "localhost", "ports": ports}
            self._create("v1/services", obj("Service", "virt-api", namespace=NAMESPACE, spec=resolved))
            return
        self._create("v1/services", obj("Service", "virt-api", namespace=NAMESPACE, spec={"ports": ports}))
        endpoints = obj("EndpointSlice", "virt-api", "discovery.k8s.io/v1", namespace=NAMESPACE)
        endpoints["metadata"]["labels"] = {"kubernetes.io/service-name": "virt-api"}
        ready = {"addresses": [self._address], "conditions": {"ready": True}}
        self._create(ENDPOINT_SLICES, endpoints | {"addressType": "IPv4", "ports": ports, "endpoints": [ready]})

    def _create_kubevirt(self) -> None:
        spec = {"configuration": self._configuration}
        made = self.plane.admin.create(KUBEVIRTS, obj("KubeVirt", "kubevirt", namespace=NAMESPACE, spec=spec))
        # As virt-operator leaves it; virt-api takes the architecture of VMs that name none from here.
        versions = dict.fromkeys(("observedKubeVirtVersion", "targetKubeVirtVersion"), self.version)
        made["status"] = {"phase": "Deployed", "defaultArchitecture": "amd64", **versions}
        self.plane.admin.replace(KUBEVIRTS, made, subresource="status")

    def _served(self) -> bool:
        services = [self.plane.admin.get(API_SERVICES, one["metadata"]["name"]) for one in self._objects["apiservices"]]
        return all(has_condition(service, "Available") for service in services)

    def _mutates(self) -> bool:
        probe: KubeObject = self.plane.admin.create(VMS, vm("probe", runStrategy="Halted"), "default", dryRun="All")
        return "architecture" in probe["spec"]["template"]["spec"]

    @property
    def _ca(self) -> str:
        return base64.b64encode(self.plane.pki.ca.read_bytes()).decode()

    def _create(self, resource: str, written: Mapping[str, Any]) -> None:
        create_once(self.plane.admin, resource, {name: value for name, value in written.items() if name != "status"})

    def _controller(self, tag: str) -> Process:
        return self._process(
            *("virt-controller", f"--port={free_port()}"),
            f"--kubeconfig={self.plane.kubeconfig_for(*KUBEVIRT_CONTROLLER)}",
            f"--launcher-image=registry.example/virt-launcher:{tag}",
            "--exporter-image=registry.example/virt-exportserver:v1",
            *(f"--prom-{what}-file={self._serving}" for what in ("cert", "key")),
        )

    def _process(self, name: str, *arguments: str) -> Process:
        command = [f"{self._binaries}/{name}", f"--listen={self._address or LOOPBACK}", "-v=2", *arguments]
        return Process(name, command, self.plane.directory / "logs" / f"{name}.log")

    def _kill(self) -> None:
        for process in (self._virt_controller, self._virt_api):
            process.kill()
