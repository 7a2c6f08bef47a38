"""A cluster in which everything is well, behind the fake API server, for tests to break."""

from __future__ import annotations

import json
import re
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from aiohttp import web

from bench.placement import launcher
from bench.placement.rows import ROWS
from bench.placement.sizes import draw_sizes
from certs.authority import Authority
from tests import builders
from tests.builders import Json, changed
from tests.cluster.fake_apiserver import FakeApiServer, FakeClock, running, status
from tests.install.schedulers.configurations import configuration
from webhook.cli.inputs import connected
from webhook.cluster.files import FilesCluster
from webhook.cluster.reader import FileReader, Reader
from webhook.doctor.checks import examine
from webhook.doctor.deployment import BUDGETS, FLOW
from webhook.doctor.estimate import Inventory, take
from webhook.doctor.installation import ADMISSION_POLICIES, DEPLOYMENTS, SECRETS, Installation
from webhook.doctor.permissions import CLUSTER_ROLES
from webhook.doctor.report import Report
from webhook.findings import Finding
from webhook.install.plan import shipped
from webhook.install.registration import RegistrationTarget, configurations
from webhook.install.webhooks import CONFIGURATIONS
from webhook.k8s.client.api import NO_QUERY
from webhook.k8s.client.identity import Kubeconfig
from webhook.k8s.resources import CONFIG_MAPS, LEASES, NAMESPACES, NODES_WITH_IMAGES, PODS
from webhook.k8s.types.core import Node, Pod
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.names import DOMAIN
from webhook.settings.model import Settings
from webhook.settings_file import load

Check = Callable[[Installation], Awaitable[list[Finding]]]
Change = Callable[["DoctorWorld"], object]

NS = "kubevirt-webhook"
MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
SAR = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
METRICS = f"/api/v1/namespaces/{NS}/services/{NS}:ops/proxy/metrics"
MUTATING = CONFIGURATIONS["MutatingWebhookConfiguration"]
VALIDATING = CONFIGURATIONS["ValidatingWebhookConfiguration"]
# The configurations of an installation.
CONFIGURED = ((MUTATING, NS), (MUTATING, "zz-kubevirt-webhook"), (VALIDATING, NS))
LAUNCHER_IMAGE = "registry.example/kubevirt/virt-launcher:v1"
PROFILE: Json = {"schedulerName": "kubevirt", "plugins": {"score": {"disabled": [{"name": "ImageLocality"}]}}}
_VARIABLE = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "DATE"),
    (r"localhost:\d{4,5}", "localhost:PORT"),
    (r"\(\w+Error\)", "(ERROR)"),
    (r"clock is \d+s", "clock is SECONDS"),
    (r"within \d+s", "within SECONDS"),
    (r"the served certificate \(.*\)", "the served certificate (REASON)"),
)
WELL = """\
kubevirt_webhook_ca_bundle_match{configuration="a"} 1.0
kubevirt_webhook_panics_total{webhook="a"} 0.0
kubevirt_webhook_scheduler_available{scheduler="kubevirt"} 1.0
"""


def authority(begin: timedelta = timedelta(), life: timedelta = timedelta(days=365)) -> Authority:
    return Authority.new([f"{NS}.{NS}.svc", "localhost"], datetime.now(UTC) - begin, life)


def base64(pem: bytes) -> str:
    return b64encode(pem).decode()


def put(resource: Any, name: str, namespace: str = "", **fields: Any) -> Change:
    return lambda world: world.server.put(resource, name, namespace, **fields)


def remove(resource: Any, name: str, namespace: str = "") -> Change:
    return lambda world: world.server.remove(resource, name, namespace)


def forbid(resource: Any, namespace: str = "", name: str = "") -> Change:
    return lambda world: world.server.fail(resource.path(namespace, name), 403, "Forbidden", times=99)


def both(*changes: Change) -> Change:
    return lambda world: [change(world) for change in changes]


def sets(**attributes: Any) -> Change:
    """Attributes of the world itself, such as ``url`` or ``forbids_reviews``."""
    return lambda world: vars(world).update(attributes)


async def lost(request: Any) -> web.Response:
    """An answer that does not come: the connection breaks."""
    request.transport.abort()
    return web.Response()


class DirectApi:
    """The same API server without HTTP, which property tests have no time for. It grants everything."""

    def __init__(self, server: FakeApiServer) -> None:
        self._server = server

    async def get(self, path: str, query: Mapping[str, str] = NO_QUERY, *, most: int = 0) -> tuple[int, bytes]:
        answer: Any = await self._server._truth(SimpleNamespace(method="GET", path=path, query=query))  # type: ignore[arg-type]
        return answer.status, answer.body

    async def request(self, method: str, path: str, *, body: Any = None, seconds: float = 1) -> tuple[int, bytes]:
        assert (method, seconds > 0) == ("POST" if body else "GET", True)
        return (201, b'{"status": {"allowed": true}}') if body else await self.get(path)

    async def date(self) -> float:
        return self._server.wall()


class DoctorWorld:
    """A cluster, and the admin who runs the doctor in it.

    The admin may create SubjectAccessReviews unless ``forbids_reviews``; the account that they ask about may do all but
    what is ``denied``, as ``VERB RESOURCE``.
    """

    def __init__(self, server: FakeApiServer, kubeconfig: Path) -> None:
        self.server = server
        # Sleeps cost nothing; the wall clock is the one that certificates, Leases and the API server have.
        self.clock = FakeClock()
        self.clock.wall_offset = time.time() - self.clock.time
        server.wall = self.clock.wall
        self.found: list[Finding] = []
        health_check = builders.scheduling().schedulers["kubevirt"]
        self.settings: Settings = builders.settings(schedulers={"kubevirt": health_check})
        self.url = ""
        self.denied: set[str] = set()
        self.forbids_reviews = False
        self.account = f"system:serviceaccount:{NS}:{NS}"
        self._kubeconfig = kubeconfig
        self.authority = authority()
        self.register()
        self.server.put(SECRETS, "ca", NS, data={"ca.crt": base64(self.authority.pem), "ca.key": "c2VjcmV0"})
        for name in ("kube-system", "kubevirt", NS):
            self.namespace(name)
        self.opt_in("demo", scheduling="enforce")
        self.kubevirt()
        self.deployment()
        for name, node in (("a", "node-a"), ("b", "node-b")):
            self.replica(name, node)
        self.server.put(BUDGETS, NS, NS)
        for resource in FLOW:
            self.server.put(resource, NS)
        self.lease()
        self.scheduler(PROFILE)
        for number in range(3):
            self.node(f"node-{number}", 12)
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        self.server.put(CLUSTER_ROLES, "cluster-admin", rules=[everything])
        for manifest in shipped(MANIFESTS / "rendered" / "kubernetes.yaml"):
            if manifest["kind"] in ADMISSION_POLICIES:
                name = manifest["metadata"]["name"]
                self.server.put(ADMISSION_POLICIES[manifest["kind"]], name, spec=manifest["spec"])
        self.server.put(MUTATING, "virt-api-mutator", webhooks=[])

    # The objects of the cluster.

    def register(self, **target: Any) -> None:
        """Registers the configurations of kubevirt-webhook, with caBundles."""
        pem = self.authority.pem
        for manifest in configurations(self.settings, RegistrationTarget(ca_bundle=pem, url=self.url, **target)):
            resource, metadata = CONFIGURATIONS[manifest["kind"]], manifest["metadata"]
            self.server.put(resource, metadata["name"], metadata=metadata, webhooks=manifest.get("webhooks"))

    def entries(self, name: str = "zz-kubevirt-webhook", resource: Any = MUTATING) -> list[Json]:
        """Of a configuration, to be changed in place."""
        found: list[Json] = self.server.held(resource)["", name]["webhooks"]
        return found

    def foreign(self, name: str, **entry: Any) -> None:
        """Adds another project's mutating configuration with one entry, on pods unless the test says otherwise."""
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        whole = {"name": f"{name}.example.com", "clientConfig": {"url": "https://example.com"}, "rules": [rule]}
        self.server.put(MUTATING, name, webhooks=[whole | entry])

    def namespace(self, name: str, *, labels: Any = None, annotations: Any = None) -> None:
        self.server.put(NAMESPACES, name, metadata={"labels": labels, "annotations": annotations})

    def opt_in(self, name: str, **modes: str) -> None:
        self.namespace(name, labels={f"{DOMAIN}/{policy}": mode for policy, mode in modes.items()})

    def annotate(self, name: str, **values: str) -> None:
        """Namespaces have underscores in place of hyphens in these names."""
        self.namespace(name, annotations={f"{DOMAIN}/{key.replace('_', '-')}": text for key, text in values.items()})

    def kubevirt(self, namespace: str = "kubevirt", version: str = "v1.8.1", **configuration: Any) -> None:
        said = {"phase": "Deployed", "observedKubeVirtVersion": version}
        self.server.put(KUBEVIRTS, "kubevirt", namespace, spec={"configuration": configuration}, status=said)

    def deployment(
        self,
        *,
        replicas: int = 2,
        ready: int = 2,
        scheduler: str = "default-scheduler",
        progress: str = "",
        metadata: Json | None = None,
    ) -> None:
        container = {"image": "kubevirt-webhook:1", "args": ["serve", "--tls=managed"]}
        pod = {"schedulerName": scheduler, "containers": [container]}
        state: dict[str, Any] = {"readyReplicas": ready, "updatedReplicas": ready}
        if progress:
            state["conditions"] = [{"type": "Progressing", "status": "False", "reason": progress}]
        spec = {"replicas": replicas, "template": {"spec": pod}}
        self.server.put(DEPLOYMENTS, NS, NS, metadata=metadata or {}, spec=spec, status=state)

    def replica(self, name: str, node: str, image: str = "kubevirt-webhook:1", **status: Any) -> None:
        """A pod that is ready unless the test gives its status."""
        spec = {"nodeName": node, "containers": [{"image": image}]}
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        metadata = {"labels": {"app.kubernetes.io/name": NS}}
        self.server.put(PODS, f"{NS}-{name}", NS, metadata=metadata, spec=spec, status=status or ready)

    def launcher(
        self,
        name: str,
        scheduler: str = "default-scheduler",
        namespace: str = "demo",
        phase: str = "Running",
        annotations: Any = None,
        **spec: Any,
    ) -> None:
        self._put_launcher(name, namespace, {"schedulerName": scheduler, **spec}, phase, annotations)

    def _put_launcher(
        self, name: str, namespace: str, spec: Json, phase: str = "Running", annotations: Any = None
    ) -> None:
        owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": name, "uid": name}
        labels, owners = {"kubevirt.io": "virt-launcher"}, [owner | {"controller": True}]
        metadata = {"labels": labels, "ownerReferences": owners, "annotations": annotations}
        status = {"phase": phase}
        self.server.put(PODS, f"virt-launcher-{name}", namespace, metadata=metadata, spec=spec, status=status)

    def lease(self, ago: float = 2.0, seconds: int = 15) -> None:
        renewed = datetime.fromtimestamp(self.clock.wall() - ago, UTC).isoformat()
        spec = {"holderIdentity": "one", "leaseDurationSeconds": seconds, "renewTime": renewed}
        self.server.put(LEASES, "kubevirt-scheduler", "kubevirt-scheduler", spec=spec)

    def scheduler(self, *profiles: Json, text: str = "", lease: bool = True, **container: Any) -> None:
        """Its Deployment, and the ConfigMap that it mounts; without ``lease``, that names none."""
        place, config = "kubevirt-scheduler", configuration(*profiles)
        if not lease:
            del config["leaderElection"]
        data = {"notes.txt": "{", "config.yaml": text or json.dumps(config)}
        self.server.put(CONFIG_MAPS, "scheduler", place, data=data)
        volumes = [{"emptyDir": {}}, {"configMap": {"name": "scheduler"}}]
        pod = {"volumes": volumes, "containers": [{"name": "kube-scheduler", **container}]}
        self.server.put(DEPLOYMENTS, "scheduler", place, spec={"template": {"spec": pod}})

    def node(self, name: str, images: int) -> None:
        self.server.put(NODES_WITH_IMAGES, name, status={"images": [{"names": ["x"], "sizeBytes": 1}] * images})

    def vm_node(self, name: str, *, cpus: int = 64, lists: bool = True, zone: str = "") -> None:
        """A node that takes VMs, with the launcher's image or as many others as a kubelet reports."""
        images = [{"names": [LAUNCHER_IMAGE], "sizeBytes": 600_000_000}] if lists else []
        others = [{"names": [f"registry.example/other:{number}"], "sizeBytes": 1} for number in range(50)]
        labels = {"topology.kubernetes.io/zone": zone} if zone else {}
        allocatable = {"cpu": str(cpus), "memory": f"{4 * cpus}Gi", "pods": "250", "devices.kubevirt.io/kvm": "1k"}
        self.server.put(
            NODES_WITH_IMAGES,
            name,
            metadata={"labels": {"kubevirt.io/schedulable": "true", "kubernetes.io/hostname": name, **labels}},
            status={"images": images or others, "allocatable": allocatable},
        )

    def vm(self, name: str, node: str, namespace: str = "demo", **spec: Any) -> None:
        """A VM's launcher pod on a node, of KubeVirt's own small size."""
        requests = {"cpu": "100m", "memory": "430Mi", "devices.kubevirt.io/kvm": "1"}
        sidecar = {"requests": {"cpu": "5m", "memory": "20Mi"}}
        own = {
            # The choice of the owner, so that no other check reports it.
            "schedulerName": "kubevirt",
            "nodeName": node,
            "containers": [{"image": LAUNCHER_IMAGE, "resources": {"requests": requests}}],
            "initContainers": [{"image": LAUNCHER_IMAGE, "restartPolicy": "Always", "resources": sidecar}],
        }
        self._put_launcher(name, namespace, own | spec)

    def metrics(self, text: str) -> None:
        self.server.answer(METRICS, lambda _: web.Response(text=text), times=9)

    def set(self, section: str, **fields: Any) -> None:
        self.settings = changed(self.settings, **{section: changed(getattr(self.settings, section), **fields)})

    # The admin who runs the checks.

    async def run(self, check: Check, *changes: Change) -> list[Finding]:
        for change in changes:
            change(self)
        self.expect_reviews()
        async with connected(Kubeconfig(self.server.kubeconfig(self._kubeconfig))) as transport:
            reader = Reader(transport)
            findings = list(await check(Installation(reader, self.settings, self.url, MANIFESTS, self.clock)))
        self.found += findings
        return findings

    async def told(self, check: Check, *changes: Change) -> list[str]:
        """The same as ``VERDICT SUBJECT: CODE``; the golden files hold the sentences."""
        return outline(await self.run(check, *changes))

    async def problems(self, check: Check, *changes: Change) -> list[str]:
        """Those of them that are not ok."""
        return [line for line in await self.told(check, *changes) if not line.startswith("ok ")]

    async def ask(self, question: Callable[[Installation], Awaitable[Any]], *changes: Change) -> Any:
        answers = []

        async def check(installation: Installation) -> list[Finding]:
            answers.append(await question(installation))
            return []

        await self.run(check, *changes)
        return answers[0]

    async def examine(self, *, given: bool = True) -> Report:
        self.expect_reviews()
        async with connected(Kubeconfig(self.server.kubeconfig(self._kubeconfig))) as transport:
            settings = self.settings if given else None
            return await examine(Reader(transport), settings, MANIFESTS, url=self.url, clock=self.clock)

    def write(self, directory: Path) -> Path:
        """Write every object of the cluster into a file, as ``kubectl get -o yaml`` would."""
        kinds = self.server.save().kinds.values()
        items = [held for _, objects in kinds for held in objects.values()]
        directory.mkdir(exist_ok=True)
        (directory / "all.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        return directory

    async def examine_files(self, directory: Path, *, given: bool = True) -> Report:
        files = FilesCluster.load(directory, self.settings)
        settings = self.settings if given else None
        return await examine(FileReader(files), settings, MANIFESTS, url=self.url, clock=self.clock)

    def follow(self, settings: Path) -> None:
        self.settings = load(settings)
        self.register()

    def expect_reviews(self) -> None:
        self.server.answer(SAR, self._review, times=999)

    async def _review(self, request: web.Request) -> web.Response:
        if self.forbids_reviews:
            return web.json_response(status(403, "Forbidden"), status=403)
        asked = (await request.json())["spec"]
        assert asked["user"] == self.account
        attributes = asked["resourceAttributes"]
        no = f"{attributes['verb']} {attributes['resource']}" in self.denied
        return web.json_response({"status": {"allowed": not no}}, status=201)


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[DoctorWorld]:
    """All is well there; for commands, which have a loop of their own."""
    async with running(FakeApiServer()) as server:
        world = DoctorWorld(server, directory / "kubeconfig")
        world.metrics(WELL)
        yield world


def outline(findings: Iterable[Finding]) -> list[str]:
    """Findings as ``VERDICT SUBJECT: CODE``."""
    return [f"{finding.verdict} {finding.subject}: {finding.code}" for finding in findings]


def lines(findings: Iterable[Finding]) -> str:
    """Findings as a golden file holds them: without the parts that differ in every run."""
    text = "".join(
        f"{one.verdict} {one.check} {one.code}\n  {one.subject}: {one.found}\n"
        + (f"  → {one.todo}\n" if one.todo else "")
        for one in findings
    )
    for pattern, shown in _VARIABLE:
        text = re.sub(pattern, shown, text)
    return text


def measured_cluster(key: str) -> Inventory:
    """A cluster whose spread kube-scheduler has shown: a row of the benchmark, by its key, with all VMs on one node."""
    (row,) = (each for each in ROWS if each.key == key)
    made = row.make_nodes()
    nodes = [node.object(row.devices) for node in made]
    loads = [(node.name, pod) for node in made if (pod := node.load_pod())]
    pods = [_bound(pod, name, "load") for name, pod in loads]
    for at, size in enumerate(draw_sizes(row.sizes, row.vms, 1)):
        metadata = {"name": f"{at}", "uid": f"{at}"}
        vmi = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata}
        pods.append(_bound(launcher.pod(vmi, size), made[0].name, row.namespace_names[at % row.namespaces]))
        # One after the other.
        pods[-1]["metadata"]["creationTimestamp"] = f"2026-01-01T00:{at // 60 % 60:02}:{at % 60:02}Z"
    return take([msgspec.convert(each, Node) for each in nodes], [msgspec.convert(each, Pod) for each in pods])


def _bound(pod: Json, node: str, namespace: str) -> Json:
    """A pod that runs on a node."""
    status = {"status": {"phase": "Running"}, "spec": pod["spec"] | {"nodeName": node}}
    return {**pod, **status, "metadata": pod["metadata"] | {"namespace": namespace}}
