"""The replicas: ready, alike, on several nodes, not placed by a scheduler that they hand VMs to, and within reach."""

from __future__ import annotations

from typing import Final, TypeAlias

from webhook.doctor.installation import Deployment, Installation
from webhook.errors import Unavailable
from webhook.findings import Finding, check, failure, ok, readable, unknown, unreadable, warning
from webhook.install.shortage import REMEDY, StartProblem, Unproxied, denied_pods, why_unreachable, worst_problem
from webhook.install.stored_settings import NAME
from webhook.k8s.client.proxies import goes_through_proxy
from webhook.k8s.resources import PODS, Resource
from webhook.k8s.types.core import Pod
from webhook.k8s.types.meta import Object
from webhook.policies.scheduling.settings import SchedulingSettings
from webhook.text import abbreviate, pluralize

BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, Object)
FLOW: Final = tuple(
    Resource("flowcontrol.apiserver.k8s.io", "v1", f"{kind.lower()}s", kind, False, Object)
    for kind in ("PriorityLevelConfiguration", "FlowSchema")
)
_DEPLOYMENT: Final = "deployment"
_PENDING: Final = "when that scheduler is unavailable, new replicas stay pending"
_SELECTOR: Final = {"labelSelector": f"app.kubernetes.io/name={NAME}"}
# As a static pod, which kubeadm and OpenShift make of an API server.
_APISERVER: Final = "kube-apiserver"
_APISERVER_NAMESPACES: Final = ("kube-system", "openshift-kube-apiserver")
_Pods: TypeAlias = tuple[Pod, ...] | Unavailable


@check(_DEPLOYMENT)
async def check_deployment(installation: Installation) -> list[Finding]:
    """Check the Deployment, its pods, and the objects that protect them."""
    pods = await installation.reader.all(PODS, installation.namespace, _SELECTOR)
    findings = [*await _check_deployment(installation, pods), *_check_pods(installation, pods)]
    findings += await _check_present(installation, BUDGETS, "a drain can stop all replicas at once")
    for resource in FLOW:
        consequence = "the requests of kubevirt-webhook can wait behind requests that wait for kubevirt-webhook"
        findings += await _check_present(installation, resource, consequence)
    return findings


@check(_DEPLOYMENT)
async def _check_deployment(installation: Installation, pods: _Pods) -> list[Finding]:
    subject = f"Deployment {installation.namespace}/{NAME}"
    live = readable(subject, await installation.deployment())
    if live is not None:
        problem = None if isinstance(pods, Unavailable) else worst_problem(pods)
        findings, name = [_check_replicas(subject, live, problem)], live.spec.template.spec.scheduler_name or ""
        if name in installation.settings.of(SchedulingSettings).schedulers:
            what = f'its pods use the scheduler "{name}", which kubevirt-webhook hands VMs to; {_PENDING}'
            todo = "set its schedulerName to default-scheduler"
            findings.append(failure("placed-by-declared-scheduler", subject, what, todo))
        return findings
    if installation.url:
        return [ok("not-needed", subject, f"does not exist; the server runs at {installation.url}")]
    return [failure("missing", subject, "does not exist", await installation.remedy())]


def _check_replicas(subject: str, live: Deployment, problem: StartProblem | None) -> Finding:
    desired = 1 if live.spec.replicas is None else live.spec.replicas
    ready, updated = live.status.ready_replicas or 0, live.status.updated_replicas or 0
    conditions = live.status.conditions or ()
    denied = denied_pods(conditions)
    why = f": {problem.text if problem else denied}" if problem or denied else ""
    look = "check its pods and their log"
    if why:
        command = problem.command if problem else f"kubectl -n {live.meta.namespace} describe deployment {NAME}"
        look = f'repair the cause, which "{command}" shows'
    if not ready:
        return failure("none-ready", subject, f"0/{desired} replicas are ready, so no request is evaluated{why}", look)
    counts = f"{ready}/{desired} replicas are ready"
    if ready < desired or updated < desired:
        counts += f", {updated}/{desired} are updated"
        # A pod has failed to start or cannot be created, or the Deployment controller has given up.
        is_late = any(condition.reason == "ProgressDeadlineExceeded" for condition in conditions)
        if denied or is_late or (problem and problem.failed):
            return failure("rollout-stuck", subject, f"the rollout is stuck: {counts}{why}", look)
        return warning("some-not-ready", subject, counts, "check its pods, or wait for the rollout")
    if desired == 1:
        what = "1/1 replica is ready; while it moves to another node, no request is evaluated"
        return warning("single-replica", subject, what, "run two or more replicas")
    return ok("ready", subject, counts)


def _check_pods(installation: Installation, read: _Pods) -> list[Finding]:
    subject = f"Pods of {installation.namespace}/{NAME}"
    if isinstance(read, Unavailable):
        return [unreadable(subject, read)]
    pods = [pod for pod in read if pod.status.phase not in ("Succeeded", "Failed")]
    if not pods:
        return []
    findings = []
    images = sorted({container.image or "" for pod in pods for container in (pod.spec.containers or ())[:1]})
    if len(images) > 1:
        what = f"run {len(images)} different images: {abbreviate(images)}"
        findings.append(warning("images-differ", subject, what, "wait for the rollout, or find out why it stopped"))
    nodes = {pod.spec.node_name or "" for pod in pods}
    if len(pods) > 1 and len(nodes) == 1 and "" not in nodes:
        what = f"all {len(pods)} run on node {next(iter(nodes))}; if it fails, no request is evaluated"
        findings.append(warning("same-node", subject, what, "add nodes, so that the scheduler can spread the replicas"))
    what = f"run {abbreviate(images)} on {pluralize(len(nodes), 'node')}"
    return findings or [ok("spread", subject, what)]


@check(_DEPLOYMENT)
async def _check_present(installation: Installation, resource: Resource[Object], consequence: str) -> list[Finding]:
    namespace = installation.namespace if resource.namespaced else ""
    subject = f"{resource.kind} {namespace}/{NAME}" if namespace else f"{resource.kind} {NAME}"
    live = readable(subject, await installation.reader.get(resource, namespace, NAME))
    if live is None and not (installation.url and resource is BUDGETS):
        return [warning("missing", subject, f"does not exist, so {consequence}", await installation.remedy())]
    return []


@check("reach")
async def check_reach(installation: Installation) -> list[Finding]:
    """Have the API server send a request to a replica through the Service."""
    service = installation.settings.webhooks.service
    if installation.url:
        return []  # The server is not behind the Service.
    findings = await _check_proxies(installation, f"{service.name}.{service.namespace}.svc", str(service.port))
    subject = f"Service {service.namespace}/{service.name}"
    if isinstance(installation.reader.api, Unavailable):
        return [*findings, unreadable(subject, installation.reader.api)]
    why = await why_unreachable(installation.reader.api, service.namespace, service.name)
    if isinstance(why, Unavailable):
        if not isinstance(why, Unproxied):
            return findings  # Other checks name what is missing: a permission, the Service, or the API server.
        what = f"not known whether the API server reaches a replica: its proxy for Services answers with {why.why}"
        look = f"kubectl -n {service.namespace} get endpointslices -l kubernetes.io/service-name={service.name}"
        todo = f'look with "{look}" whether the Service has an endpoint'
        return [*findings, unknown("reach-unknown", subject, what, todo)]
    if why:
        what = f"the API server does not reach a replica at port webhooks, so requests may not be evaluated: {why}"
        return [*findings, failure("unreachable", subject, what, REMEDY)]
    return [*findings, ok("reachable", subject, "the API server reaches a replica at port webhooks")]


async def _check_proxies(installation: Installation, host: str, port: str) -> list[Finding]:
    """Whether an API server sends reviews through a proxy, by the environment of its pod.

    What `why_unreachable` tries does not show it: its request is for the address of a pod, and a review is for the name
    of the Service. Since Kubernetes 1.37 it is for the address of the Service, which NO_PROXY may have by its range.
    """
    findings = []
    for namespace in _APISERVER_NAMESPACES:
        pods = await installation.reader.all(PODS, namespace)
        for pod in () if isinstance(pods, Unavailable) else pods:
            for container in pod.spec.containers or ():
                environment = {each.name or "": each.value or "" for each in container.env or ()}
                if container.name == _APISERVER and goes_through_proxy(host, port, environment):
                    what = f"has a proxy in its environment and no {host} in NO_PROXY, so before Kubernetes 1.37 it"
                    what += " sends reviews to the proxy"
                    todo = "add .svc, and the range of Services, to NO_PROXY of every API server"
                    findings.append(warning("proxied", f"Pod {namespace}/{pod.meta.name}", what, todo))
    return findings
