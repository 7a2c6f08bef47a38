"""The second scheduler: its shipped configurations for each place, its objects, its image, and its permissions.

Every minor version of kube-scheduler may read more kinds, and one that may not list one of them waits for it
indefinitely: it runs, places nothing and never takes its Lease. What it reads and writes are the roles that the API
server bootstraps for it. Source: plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from itertools import product
from pathlib import Path
from string import Template
from textwrap import indent
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args
from urllib.parse import urlsplit

import msgspec

from webhook import names
from webhook.cluster.reader import all_of
from webhook.errors import InputError, quote
from webhook.install.plan import shipped
from webhook.install.registration import Manifest, answered
from webhook.install.schedulers.lint import arguments, plugin_names
from webhook.install.shortage import CHECK_SERVER
from webhook.k8s.client.api import UNDECODABLE, Requests, Transport
from webhook.k8s.json_tree import member
from webhook.k8s.paths import object_path
from webhook.k8s.resources import POD_METADATA
from webhook.k8s.types.core import Pod
from webhook.k8s.yaml_documents import parse_documents
from webhook.kubevirt.resources import UNSTRUCTURED_VMIS, UNSTRUCTURED_VMS
from webhook.placement.profiles import profiles_of
from webhook.text import pluralize

Variant = Literal["spread", "pack", "load-aware", "load-aware-pack"]
# A scheduler beside the cluster's own, one that OpenShift's Secondary Scheduler Operator runs, or the cluster's own.
SchedulerPlace = Literal["second", "openshift", "cluster"]
VARIANTS: Final[tuple[Variant, ...]] = get_args(Variant)
# They run plugins that kube-scheduler itself lacks.
LOAD_AWARE: Final[tuple[Variant, ...]] = ("load-aware", "load-aware-pack")
# The key in ConfigMaps.
CONFIGURATION_KEY: Final = "config.yaml"
_HEAD: Final = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
"""
# What a configuration has beside its profiles.
_PROCESS: Final[Mapping[SchedulerPlace, str]] = {
    "second": """leaderElection:
  leaderElect: true
  resourceNamespace: kubevirt-scheduler
  resourceName: kubevirt-scheduler
""",
    # The operator elects by flags of its own.
    "openshift": "",
    # It elects by kubeadm's flags, or by default. A static pod has no service account, and with --config its flag
    # --kubeconfig has no effect.
    "cluster": """clientConnection:
  # As kubeadm has it: the path in the pod of the cluster's scheduler.
  kubeconfig: /etc/kubernetes/scheduler.conf
""",
}
_DEFAULT_PROFILE: Final = """# Without it, every pod in the cluster that names no scheduler stays Pending.
- schedulerName: default-scheduler
"""
# Between a template's comment on all of it, which comes first in a configuration, and what is filled in.
_SEPARATOR: Final = "---\n"
_METRICS_SERVER: Final = "type: KubernetesMetricsServer"
_PROMETHEUS: Final = "Prometheus"
_PATH: Final = "/v1/layers"
# A server in the scheduler's own pod.
_EXTENDER: Final = f"http://127.0.0.1:8446{_PATH}"
_is_place: Final = re.compile(r"[A-Za-z0-9.-]+:[0-9]+|\[[0-9A-Fa-f:.]+\]:[0-9]+").fullmatch
# Where the Secrets with the certificates are mounted in the scheduler's pod; see docs/layers.md.
_TLS: Final = """    enableHTTPS: true
    tlsConfig:
      # The CA of kubevirt-webhook's certificate. Without it, kube-scheduler does not verify the server.
      caFile: /etc/kubevirt-webhook/ca/ca.crt
      # A certificate of layers.clientCaFile, with one of the names of layers.clientNames.
      certFile: /etc/kubevirt-webhook/client/tls.crt
      keyFile: /etc/kubevirt-webhook/client/tls.key
"""
# The schedulerName of the shipped profile.
PROFILE: Final = "kubevirt"
VARIANT_ANNOTATION: Final = f"{names.DOMAIN}/scheduler-variant"
DIGEST_ANNOTATION: Final = f"{names.DOMAIN}/configuration-digest"
_SECONDS: Final = 10.0
# Where the cluster's own scheduler runs, as kubeadm and as OpenShift label it.
_PODS: Final = (
    ("kube-system", "component=kube-scheduler"),
    ("openshift-kube-scheduler", "app=openshift-kube-scheduler"),
)
_VERSION: Final = re.compile(r"v(\d+)\.(\d+)\.\d+")
# Releases of scheduler-plugins are numbered by Kubernetes' minor version: 0.36.1 is kube-scheduler 1.36.
_TAG: Final = re.compile(r":v?[01]\.(\d+)[^/:@]*(?:@.*)?$")
_NO_TAG: Final = re.compile(r"[^:@]*(?::\d+/[^:@]*)?")
# The second is bound to the user of the cluster's own scheduler too.
UPSTREAM_ROLES: Final = ("system:kube-scheduler", "system:volume-scheduler")
# What the component's account and its ClusterRole are called.
NAME: Final = names.SECOND_SCHEDULER
_READS: Final = ("list", "watch")
# What no kube-scheduler with a shipped configuration does, by group and resource, although the roles grant it. An empty
# tuple stands for all verbs. Objects are never read one by one: `get` is left out everywhere.
_UNUSED: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    # The older name of pods/binding, and of replicasets.
    ("", "bindings"): (),
    ("extensions", "replicasets"): (),
    # Of its own namespace alone, where a Role grants them: its Lease, and that it leads.
    ("coordination.k8s.io", "leases"): (),
    ("", "events"): (),
    # The feature gate CoordinatedLeaderElection is off.
    ("coordination.k8s.io", "leasecandidates"): (),
    # It patches.
    ("", "pods/status"): ("update",),
    ("events.k8s.io", "events"): ("update",),
    # It updates.
    ("", "persistentvolumes"): ("patch",),
    ("", "persistentvolumeclaims"): ("patch",),
    ("resource.k8s.io", "resourceclaims"): ("patch",),
    # Of the resource claim controller.
    ("", "pods/finalizers"): (),
    # Nothing can be listed there: it is a subresource.
    ("resource.k8s.io", "resourceclaims/status"): _READS,
}


def configuration(directory: Path, variant: Variant, place: SchedulerPlace = "second", prometheus: str = "") -> str:
    """A shipped configuration, as YAML with comments.

    Raises:
        InputError: the variant asks no Prometheus, or the URL is none.
    """
    about, template = _template(directory, variant)
    profile = Template(template).substitute(METRIC_PROVIDER=_metric_provider(variant, prometheus))
    profiles = indent((_DEFAULT_PROFILE if place == "cluster" else "") + profile, "  ")
    return f"{about}{_HEAD}{_PROCESS[place]}profiles:\n{profiles}"


def _template(directory: Path, name: str) -> tuple[str, str]:
    """A shipped template: its comment on all of it, and plain YAML in which each parameter is a value, ``$NAME``."""
    about, _, template = (directory / "scheduler" / "templates" / f"{name}.yaml").read_text().partition(_SEPARATOR)
    return about, template


def _metric_provider(variant: Variant, prometheus: str) -> str:
    """Where the plugins of a load-aware variant get the usage of nodes, as YAML on one line."""
    if not prometheus:
        return _METRICS_SERVER
    if variant not in LOAD_AWARE:
        fix = f"leave --prometheus out, or use one of {', '.join(LOAD_AWARE)}"
        raise InputError(f"the variant {variant} reads no metrics", "--prometheus", fix)
    is_url = prometheus.startswith(("http://", "https://"))
    if not is_url or any(each.isspace() or each in "\"'\\" for each in prometheus):
        raise InputError(f"{quote(prometheus)} is not a valid URL", "--prometheus", "start it with http:// or https://")
    return f"{{type: {_PROMETHEUS}, address: {json.dumps(prometheus)}}}"


def prometheus_of(text: str) -> str:
    """The URL of the Prometheus that a configuration names; empty where it names none, or cannot be read."""
    with suppress(InputError):
        for document in parse_documents(text, CONFIGURATION_KEY):
            for _, profile in profiles_of(document.value if isinstance(document.value, dict) else {}):
                for plugin in plugin_names(profile.get("pluginConfig")):
                    provider = arguments(profile, plugin).get("metricProvider")
                    if member(provider, "type") == _PROMETHEUS and isinstance(url := member(provider, "address"), str):
                        return url
    return ""


def shipped_stanza(directory: Path, url: str = _EXTENDER) -> tuple[str, str]:
    """The comment on the stanza of the extender for layers, and the stanza."""
    about, template = _template(directory, "layers")
    return about, Template(template).substitute(URL=url)


def stanza(directory: Path, url: str) -> str:
    """The shipped stanza as YAML, without the comment at its head; an `InputError` where the URL is invalid."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(_is_place(parts.netloc) and parts.hostname and parts.port)
    except ValueError:
        is_valid = False
    if not is_valid or parts.path.rstrip("/") not in ("", _PATH) or parts.query:
        raise InputError(
            f"{quote(url)} is not the URL of an extender", "--layers", "use for example http://192.0.2.1:8080"
        )
    _, written = shipped_stanza(directory, f"{parts.scheme}://{parts.netloc}{_PATH}")
    return written + (_TLS if parts.scheme == "https" else "")


class Scheduler(msgspec.Struct, frozen=True):
    """The second scheduler of an installation.

    Attributes:
        prometheus: the URL that a load-aware variant asks for metrics; empty: metrics-server.
    """

    variant: Variant
    image: str
    prometheus: str = ""


T = TypeVar("T", bound=msgspec.Struct)


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str = ""


class _SchedulerPods(msgspec.Struct, frozen=True):
    items: list[Pod] = []


def objects(directory: Path, scheduler: Scheduler | None = None, *, is_openshift: bool = False) -> tuple[Manifest, ...]:
    """The objects of the component in the directory of the manifests, the Deployment last; on OpenShift without a user.

    Raises:
        InputError: the variant has no use for the Prometheus.
    """
    variant: Variant = scheduler.variant if scheduler else "spread"
    manifests = shipped(directory / "rendered" / f"scheduler-{variant}.yaml")
    manifests.sort(key=lambda one: one["kind"] == "Deployment")
    if scheduler is None:
        return tuple(manifests)
    text = configuration(directory, variant, prometheus=scheduler.prometheus)
    for one in manifests:
        if one["kind"] == "ConfigMap":
            one["metadata"]["annotations"] = {VARIANT_ANNOTATION: variant}
            one["data"] = {CONFIGURATION_KEY: text}
    template = manifests[-1]["spec"]["template"]
    # kube-scheduler reads its configuration once.
    template["metadata"]["annotations"][DIGEST_ANNOTATION] = hashlib.sha256(text.encode()).hexdigest()[:16]
    template["spec"]["containers"][0]["image"] = scheduler.image
    if is_openshift:
        # The SCC restricted-v2 gives the pods a user of the namespace's range, and denies any other.
        template["spec"]["securityContext"].pop("runAsUser")
        template["metadata"]["annotations"]["openshift.io/required-scc"] = "restricted-v2"
    return tuple(manifests)


def with_permissions(
    objects: tuple[Manifest, ...], upstream: Sequence[Manifest]
) -> tuple[tuple[Manifest, ...], list[Permission]]:
    """The objects with what a newer kube-scheduler must list by the cluster's rules for its own, and that."""
    (role,) = (one for one in objects if one["kind"] == "ClusterRole")
    added = missing_reads(upstream, role["rules"])
    verbs: dict[tuple[str, str], list[str]] = {}
    for each in added:
        verbs.setdefault((each.group, each.resource), []).append(each.verb)
    rules = [{"apiGroups": [group], "resources": [resource], "verbs": own} for (group, resource), own in verbs.items()]
    return tuple({**role, "rules": [*role["rules"], *rules]} if one is role else one for one in objects), added


def of_live(deployment: Manifest | None, config_map: Manifest | None) -> Scheduler | None:
    """The scheduler of an earlier `install`, by its live objects; None: there is none, or another tool applied it."""
    annotations = (config_map or {}).get("metadata", {}).get("annotations") or {}
    variant = annotations.get(VARIANT_ANNOTATION)
    # The component of kustomize has no such annotation.
    if deployment is None or config_map is None or variant not in VARIANTS:
        return None
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    text = (config_map.get("data") or {}).get(CONFIGURATION_KEY, "")
    return Scheduler(variant, image, prometheus_of(text))


def is_ours(manifest: Manifest) -> bool:
    """Whether a live object belongs to an installation of kubevirt-webhook."""
    return (manifest["metadata"].get("labels") or {}).get("app.kubernetes.io/part-of") == "kubevirt-webhook"


async def find_image(api: Requests, image: str, variant: Variant) -> str:
    """The image of the scheduler: of the cluster's minor version, and from where the cluster has its own.

    What the admin gives may lack the tag, or be empty. Variants that know load need an image of their own, whose tag is
    not the cluster's version.

    Raises:
        InputError: the image has another minor version than the cluster, or it cannot be found out.
    """
    text = (await _get(api, "/version", {}, _Version)).git_version
    match = _VERSION.match(text)
    if match is None:
        fix = "name an image with a digest: --scheduler-image IMAGE@sha256:…"
        raise InputError(f"the API server's version {quote(text)} is not known", "the cluster", fix)
    # Such as v1.36.3, and 1.36.
    tag, minor = match[0], f"{match[1]}.{match[2]}"
    if image:
        tagged = _TAG.search(image)
        if tagged and f"1.{tagged[1]}" != minor:
            what = f"{quote(image)} is kube-scheduler 1.{tagged[1]}, but the cluster is {tag}"
            raise InputError(what, "--scheduler-image", f"use an image of version {minor}")
        if tagged or not _NO_TAG.fullmatch(image):
            return image
        if variant in LOAD_AWARE:
            what = f"{quote(image)} has no tag, and that of the cluster's version is none of scheduler-plugins"
            raise InputError(what, "--scheduler-image", f"name a release 0.{match[2]} of scheduler-plugins")
        return f"{image}:{tag}"
    if variant in LOAD_AWARE:
        what = f"the variant {variant} needs the image of kube-scheduler that the project scheduler-plugins publishes"
        fix = f"name it with --scheduler-image, a release 0.{match[2]} for Kubernetes {minor}"
        raise InputError(what, "--scheduler-variant", fix)
    for namespace, selector in _PODS:
        query = {"labelSelector": selector, "limit": "1"}
        pods = (await _get(api, object_path("v1", "pods", namespace), query, _SchedulerPods)).items
        containers = [container for pod in pods for container in pod.spec.containers or ()]
        if images := [each.image for each in containers if each.name == "kube-scheduler" and each.image]:
            return images[0]
    what = "the cluster shows no pod of its own scheduler, whose image could be used"
    raise InputError(what, "--with scheduler", f"name it: --scheduler-image REGISTRY/kube-scheduler:{tag}")


async def _get(api: Requests, path: str, query: dict[str, str], view: type[T]) -> T:
    """The answer; an empty one where it is an error, or cannot be decoded."""
    status, body = await answered(api.request("GET", path, query, seconds=_SECONDS), "the cluster", CHECK_SERVER)
    if status == 200:
        with suppress(*UNDECODABLE):
            return msgspec.json.decode(body, type=view)
    return view()


async def count_users(api: Transport, scheduler: str) -> str:
    """How many VMs (by their templates), VMIs that exist and pods that wait for a node name a scheduler; empty: none.

    Raises:
        InputError: the objects cannot be listed.
    """
    counts: Counter[str] = Counter()
    for noun, resource, path in (
        ("VM", UNSTRUCTURED_VMS, "template.spec.schedulerName"),
        ("VMI", UNSTRUCTURED_VMIS, "schedulerName"),
    ):
        async with aclosing(all_of(api, resource)) as machines:
            async for one in machines:
                # A VM's template has no schema.
                counts[noun] += member(one.spec, path) == scheduler
    waiting = {"fieldSelector": f"spec.schedulerName={scheduler},spec.nodeName=,status.phase=Pending"}
    async with aclosing(all_of(api, POD_METADATA, query=waiting)) as present:
        async for _ in present:
            counts["waiting pod"] += 1
    vms, vmis, pods = (pluralize(counts[noun], noun) for noun in ("VM", "VMI", "waiting pod"))
    return f"{vms}, {vmis} and {pods}" if counts.total() else ""


class Permission(NamedTuple):
    """A verb on a resource of a group, in all namespaces."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")


def granted(rules: Iterable[Mapping[str, Any]]) -> set[Permission]:
    """What the rules of a ClusterRole grant on every object of a resource, as plain JSON names it."""
    return {
        Permission(*each)
        for rule in rules
        if not rule.get("resourceNames")
        for each in product(*(rule.get(key) or () for key in ("apiGroups", "resources", "verbs")))
    }


def needed(rules: Iterable[Mapping[str, Any]]) -> set[Permission]:
    """What a kube-scheduler needs of the rules of ``UPSTREAM_ROLES``; a wildcard that an admin added is left out."""
    unused = {(*of, verb) for of, verbs in _UNUSED.items() for verb in verbs}
    left_out = {of for of, verbs in _UNUSED.items() if not verbs}
    permissions = (each for each in granted(rules) if "*" not in each and each.verb != "get" and each not in unused)
    return {each for each in permissions if (each.group, each.resource) not in left_out}


def missing_reads(upstream: Iterable[Mapping[str, Any]], own: Iterable[Mapping[str, Any]]) -> list[Permission]:
    """What a scheduler must list and watch before it places a pod, and may not; Secrets of a cluster never count."""
    missing = needed(upstream) - granted(own)
    return sorted(each for each in missing if each.verb in _READS and each.resource != "secrets")
