"""Writes the bundle for the Operator Lifecycle Manager (OLM): ``python -m hack.bundle --image IMAGE``.

A bundle of the format registry+v1, as for OperatorHub: a ClusterServiceVersion, the objects that OLM installs beside
it, and what a catalog knows of both. All of it is made of what `install` plans. OLM itself makes the account, the
serving certificate, a Service, and the webhook configurations: one of each entry, with neither namespaceSelector nor
matchConditions, for which it has no fields.
"""

from __future__ import annotations

import argparse
import string
from base64 import b64encode
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Final

from hack.release.version import chart_version
from webhook import __version__, names
from webhook.cli import write
from webhook.install import plan
from webhook.install.registration import Manifest, RegistrationTarget, configurations
from webhook.settings_file import parse

ROOT: Final = Path(__file__).resolve().parents[1]
NAME: Final = "kubevirt-webhook"
DEFAULTS: Final = f"{NAME}-defaults"
# Until 1.0; a stable channel promises upgrades without a look at the changelog.
CHANNEL: Final = "candidate"
# Where OLM, of whatever version, mounts the certificate that it makes for the Service.
CERTIFICATES: Final = "/apiserver.local.config/certificates"
HOME: Final = "https://kubevirt-webhook.github.io"
# The entries are those that any settings can ask for, since OLM does not read them.
_SETTINGS: Final = b'{"events": "on", "scheduling": {"virtualMachineInstances": true}}'
# As kubectl abbreviates them: a label's value has all of an entry's name, in 63 characters.
_SHORT: Final = {
    "virtualmachines": "vm",
    "virtualmachineinstances": "vmi",
    "virtualmachineinstancemigrations": "vmim",
    "pods": "pod",
}
_KINDS: Final = {
    "MutatingWebhookConfiguration": "MutatingAdmissionWebhook",
    "ValidatingWebhookConfiguration": "ValidatingAdmissionWebhook",
}
_KEPT: Final = (
    *("admissionReviewVersions", "failurePolicy", "matchPolicy", "objectSelector", "reinvocationPolicy", "rules"),
    *("sideEffects", "timeoutSeconds"),
)
# Of what `install` plans, what OLM installs from a file of the bundle.
_BESIDE: Final = ("Service", "PodDisruptionBudget", "PriorityClass")
_PREFIX: Final = "operators.operatorframework.io.bundle"
_DESCRIPTION: Final = f"""\
Admission webhooks that place KubeVirt virtual machines where they should run, and write down why: the scheduler of
their pods, default instancetypes and preferences, and migrations that can succeed.

Nothing happens until a namespace opts in, first in mode warn:

```console
$ kubectl label namespace NAMESPACE kubevirt-webhook.github.io/scheduling=warn
```

Settings are the key `settings.yaml` of a ConfigMap `{NAME}` that you create in the operator's namespace; running
replicas take them up. [Installation]({HOME}/installation#with-the-operator-lifecycle-manager)
has what differs from an installation by `kubevirt-webhook install`.
"""


def files(image: str, maintainers: Mapping[str, str], root: Path = ROOT, version: str = __version__) -> dict[str, str]:
    """The files of the bundle by path.

    Args:
        image: what the replicas run.
        maintainers: their addresses by name, which OperatorHub requires.
        root: the tree whose manifests and icon it has.
        version: of the release.
    """
    own = plan.config_map(root / "manifests", "kubernetes")
    text, where = own["data"][plan.SETTINGS_KEY], plan.title(own)
    planned = plan.of(root / "manifests", "kubernetes", text, where, image)
    csv = _service_version(planned, image, maintainers, root, chart_version(version))
    beside = [one for one in planned.before if one["kind"] in _BESIDE]
    # Not the name of the admin's own: what a bundle brings, each upgrade overwrites.
    beside.append({**own, "metadata": {**own["metadata"], "name": DEFAULTS}})
    objects = {f"{NAME}.clusterserviceversion": csv, **{_file(one): _anywhere(one) for one in beside}}
    about = {f"{_PREFIX}.{key}": value for key, value in _ABOUT.items()}
    labels = "".join(f"LABEL {key}={value}\n" for key, value in about.items())
    copied = "".join(f"COPY {place} /{place}/\n" for place in ("manifests", "metadata"))
    return {
        **{f"manifests/{name}.yaml": write.dump([one]) for name, one in objects.items()},
        "metadata/annotations.yaml": write.dump([{"annotations": about}]),
        "bundle.Dockerfile": f"FROM scratch\n{labels}{copied}",
    }


_ABOUT: Final = {
    "mediatype.v1": "registry+v1",
    "manifests.v1": "manifests/",
    "metadata.v1": "metadata/",
    "package.v1": NAME,
    "channels.v1": CHANNEL,
    "channel.default.v1": CHANNEL,
}


def _file(one: Manifest) -> str:
    return f"{one['metadata']['name']}.{one['kind'].lower()}"


def _anywhere(one: Manifest) -> Manifest:
    """An object for the namespace that the admin chooses."""
    metadata = {key: value for key, value in one["metadata"].items() if key != "namespace"}
    return {**one, "metadata": metadata}


def _service_version(
    planned: plan.Plan, image: str, maintainers: Mapping[str, str], root: Path, version: str
) -> Manifest:
    summary = "Admission webhooks that place KubeVirt virtual machines where they should run, and write down why"
    (role,) = (one for one in planned.before if (one["kind"], one["metadata"]["name"]) == ("ClusterRole", NAME))
    deployment = {"name": NAME, "label": planned.deployment["metadata"]["labels"], "spec": _replicas(planned)}
    permissions = {"serviceAccountName": NAME, "rules": role["rules"]}
    icon = b64encode((root / "docs" / "images" / "icon.svg").read_bytes()).decode()
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{NAME}.v{version}",
            "annotations": {
                "alm-examples": "[]",
                "capabilities": "Basic Install",
                "categories": "Modernization & Migration, OpenShift Optional",
                "containerImage": image,
                "description": summary,
                "operatorframework.io/suggested-namespace": plan.NAMESPACE,
                "support": "The kubevirt-webhook authors",
            },
        },
        "spec": {
            "displayName": "KubeVirt webhook",
            "version": version,
            "minKubeVersion": "1.30.0",
            "maturity": "beta",
            "description": _DESCRIPTION,
            "icon": [{"base64data": icon, "mediatype": "image/svg+xml"}],
            "keywords": ["kubevirt", "admission-webhook", "scheduler", "virtual machines"],
            "links": [{"name": name, "url": f"{HOME}{path}"} for name, path in _LINKS.items()],
            **({"maintainers": _people(maintainers)} if maintainers else {}),
            "provider": {"name": "The kubevirt-webhook authors", "url": HOME},
            # Without KubeVirt there are no such objects; OLM waits for it. It need not be OLM that installs it.
            "nativeAPIs": [{"group": names.KUBEVIRT_GROUP, "version": "v1", "kind": "VirtualMachine"}],
            # OLM 1 accepts webhooks where no other mode is named.
            "installModes": [{"type": "AllNamespaces", "supported": True}],
            "install": {
                "strategy": "deployment",
                "spec": {"clusterPermissions": [permissions], "deployments": [deployment]},
            },
            "webhookdefinitions": webhooks(),
        },
    }


# In the order of texts, one character each.
_PLACES: Final = string.digits + string.ascii_lowercase
_LINKS: Final = {"Documentation": "", "Upgrade notes": "/upgrading", "Runbooks": "/runbooks"}


def _people(maintainers: Mapping[str, str]) -> list[Manifest]:
    return [{"name": name, "email": address} for name, address in maintainers.items()]


def _replicas(planned: plan.Plan) -> Manifest:
    """The Deployment with the certificate of OLM, and with defaults that settings of the admin's own replace."""
    spec: Manifest = deepcopy(planned.deployment["spec"])
    pod = spec["template"]["spec"]
    # On OpenShift the SCC chooses the user; elsewhere it is the image's, which is not root.
    for field in ("runAsUser", "runAsGroup"):
        del pod["securityContext"][field]
    (container,) = pod["containers"]
    container["args"] = [
        *(one for one in container["args"] if one != "--tls=managed"),
        *("--tls=mounted", f"--tls-cert={CERTIFICATES}/apiserver.crt", f"--tls-key={CERTIFICATES}/apiserver.key"),
    ]
    # Of two files of one name, a kubelet takes the later source's.
    sources = [{"configMap": {"name": DEFAULTS}}, {"configMap": {"name": NAME, "optional": True}}]
    pod["volumes"] = [{"name": "settings", "projected": {"sources": sources}}]
    return spec


def webhooks() -> list[Manifest]:
    """The `webhookdefinitions`: of each entry that enforces, what OLM has a field for.

    They are called for every namespace. An endpoint that enforces takes a namespace's mode, whatever it is, from its
    label; one that observes, called for the same objects, would repeat its warnings. An outage must deny nothing where
    nothing has opted in, so every failurePolicy is Ignore. Evictions are left out: OLM would call for those of all pods
    of the cluster, and drains must not wait for kubevirt-webhook. So are namespaces: it would call for every change of
    any.
    """
    result = []
    for configuration in configurations(parse(_SETTINGS, "bundle"), RegistrationTarget(only_ignore=True)):
        place = 0
        for entry in configuration["webhooks"]:
            resource, policy, stage, _ = entry["name"].split(".", 3)
            if stage != names.ENFORCE or policy == names.EVICTION or resource in ("evictions", "namespaces"):
                continue
            place += 1
            # OLM makes a configuration's name of it, and by these names the API server orders what it calls. One more
            # character would be too many for a label's value.
            name = f"{configuration['metadata']['name']}-{_PLACES[place]}-{policy}-{_SHORT[resource]}.{names.DOMAIN}"
            result.append(
                {
                    "type": _KINDS[configuration["kind"]],
                    "generateName": name,
                    "deploymentName": NAME,
                    "containerPort": 8443,
                    "targetPort": 8443,
                    "webhookPath": entry["clientConfig"]["service"]["path"],
                    **{field: entry[field] for field in _KEPT if field in entry},
                }
            )
    return result


def _person(text: str) -> tuple[str, str]:
    name, _, address = text.rpartition("=")
    if not name or "@" not in address:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=EMAIL, for example Ann=ann@example.com")
    return name, address


def main(given: Sequence[str] | None = None) -> None:
    """Write the bundle."""
    parser = argparse.ArgumentParser(prog="python -m hack.bundle", description="Write the bundle for OperatorHub.")
    parser.add_argument("--image", required=True, help="image of the replicas, by digest for a catalog")
    parser.add_argument(
        "--maintainer", type=_person, action="append", default=[], metavar="NAME=EMAIL", help="may be repeated"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / "bundle", metavar="DIR")
    options = parser.parse_args(given)
    for name, text in files(options.image, dict(options.maintainer)).items():
        file = options.output / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        print(file)


if __name__ == "__main__":
    main()
