"""`make manifests`: webhook configurations, schedulers' ConfigMaps, what kustomize renders, and the Helm chart."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import dropwhile
from pathlib import Path
from textwrap import fill, indent

from webhook.forecast.misplaced import KEYS, key_rows, value_rows
from webhook.install.components import COMPONENTS
from webhook.install.roles import ROLES, Role
from webhook.install.schedulers.render import (
    CONFIGURATION_KEY,
    DIGEST_ANNOTATION,
    VARIANTS,
    SchedulerPlace,
    Variant,
    configuration,
    shipped_stanza,
)
from webhook.names import DOMAIN
from webhook.policies.registry import BY_NAME
from webhook.text import choices_of

ROOT = Path(__file__).resolve().parents[1]
MANIFESTS = ROOT / "manifests"
SCHEDULER = MANIFESTS / "scheduler"
HEADER = "# Printed by `kubevirt-webhook manifests webhooks --config settings.yaml`.\n"
POLICIES = "# Printed by `kubevirt-webhook manifests policies --config settings.yaml`. It needs no server.\n"
WRITTEN = "# Written by `make manifests` from ../{source}.\n"
# Where each component's ConfigMap is, and what its scheduler is for.
PLACES: dict[SchedulerPlace, str] = {
    "second": "kubevirt-scheduler",
    "openshift": "openshift-secondary-scheduler-operator",
}
CONFIG_MAP = """apiVersion: v1
kind: ConfigMap
metadata:
  name: kubevirt-scheduler
  namespace: {namespace}
  labels:
    app.kubernetes.io/name: kubevirt-scheduler
    app.kubernetes.io/part-of: kubevirt-webhook
data:
  {key}: |
{text}"""
# Some of the targets are not there beside the other component, which kustomize allows.
VARIANT = """apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
patches:
{patches}"""
PATCH = """  - target:
      kind: {kind}
      name: kubevirt-scheduler
      namespace: {namespace}
    patch: |
{patch}"""
DATA = """apiVersion: v1
kind: ConfigMap
metadata:
  name: kubevirt-scheduler
data:
  {key}: |
{text}"""
DEPLOYMENT = """apiVersion: apps/v1
kind: Deployment
metadata:
  name: kubevirt-scheduler
  namespace: {namespace}
spec:
  template:
    metadata:
      annotations:
        {annotation}: "{digest}"
"""
DIGEST = """- op: replace
  path: /spec/template/metadata/annotations/kubevirt-webhook.github.io~1configuration-digest
  value: "{digest}"
"""
ACCOUNT = """apiVersion: v1
kind: ServiceAccount
metadata:
  name: kubevirt-webhook
  namespace: kubevirt-webhook
  labels:
    app.kubernetes.io/name: kubevirt-webhook
automountServiceAccountToken: false
"""
ROLE = """apiVersion: rbac.authorization.k8s.io/v1
kind: {kind}
metadata:
  name: {name}{namespace}
  labels:
    app.kubernetes.io/name: kubevirt-webhook
rules:
{rules}---
apiVersion: rbac.authorization.k8s.io/v1
kind: {kind}Binding
metadata:
  name: {name}{namespace}
  labels:
    app.kubernetes.io/name: kubevirt-webhook
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {kind}
  name: {name}
subjects:
  - kind: ServiceAccount
    name: kubevirt-webhook
    namespace: kubevirt-webhook
"""
# Of rules and comments in roles, which stand four columns in.
WIDTH = 116
EMPTY = '""'
# Load-aware schedulers read the usage of nodes from metrics-server.
METRICS = """- op: add
  path: /rules/-
  value:
    apiGroups: [metrics.k8s.io]
    resources: [nodes]
    verbs: [list]
"""


def _output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def digest(text: str) -> str:
    """What changes with a configuration, so that its scheduler is started again."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def config_map(place: SchedulerPlace, namespace: str) -> str:
    """The ConfigMap of a component, which spreads."""
    text = indent(configuration(MANIFESTS, "spread", place), " " * 4)
    header = WRITTEN.format(source="spread.yaml")
    return header + CONFIG_MAP.format(namespace=namespace, key=CONFIGURATION_KEY, text=text)


def scheduler_files() -> dict[Path, str]:
    """What is written of the templates, but for what kustomize renders."""
    files = {SCHEDULER / f"{variant}.yaml": configuration(MANIFESTS, variant) for variant in VARIANTS}
    files[SCHEDULER / "layers.yaml"] = "".join(shipped_stanza(MANIFESTS))
    for place, namespace in PLACES.items():
        files[SCHEDULER / place / "configuration.yaml"] = config_map(place, namespace)
    name = digest(configuration(MANIFESTS, "spread"))
    text = DEPLOYMENT.format(namespace=PLACES["second"], annotation=DIGEST_ANNOTATION, digest=name)
    files[SCHEDULER / "second" / "digest.yaml"] = WRITTEN.format(source="spread.yaml") + text
    for variant in VARIANTS:
        if variant != "spread":
            files[SCHEDULER / "variants" / variant / "kustomization.yaml"] = component(variant)
    return files


def rbac_files() -> dict[Path, str]:
    """The roles of every installation, and those of components."""
    origin = WRITTEN.format(source="../webhook/install/roles.py and the policies' rights")
    files = {MANIFESTS / "base" / "rbac.yaml": origin + "---\n".join([ACCOUNT, *map(role_text, ROLES)])}
    for each in COMPONENTS:
        origin = WRITTEN.format(source="../../webhook/install/components.py")
        files[MANIFESTS / "components" / each.name / "rbac.yaml"] = origin + role_text(each.role)
    return files


def role_text(role: Role) -> str:
    """A role, with a comment above each rule that says what it is for, and its binding."""
    rules = ""
    for right in role.rights:
        rule = indent(rule_text(right.rule), " " * 4).replace("   ", "  -", 1)
        rules += indent(comment(right.why), "  ") + rule
    place = "\n  namespace: kubevirt-webhook" if role.namespaced else ""
    return comment(role.about) + ROLE.format(kind=role.kind, name=role.name, namespace=place, rules=rules)


def rule_text(rule: Mapping[str, Sequence[str]]) -> str:
    """The fields of a rule, each on a line where it fits."""
    fields = []
    for field, values in rule.items():
        line = f"{field}: [{', '.join(value or EMPTY for value in values)}]\n"
        fields.append(line if len(line) <= WIDTH else f"{field}:\n" + "".join(f"  - {value}\n" for value in values))
    return "".join(fields)


def comment(text: str) -> str:
    """A clause or sentences as a comment; nothing where there is nothing to say."""
    if not text:
        return ""
    sentence = text[0].upper() + text[1:] + ("" if text[-1] in ".?" else ".")
    return fill(sentence, WIDTH, initial_indent="# ", subsequent_indent="# ") + "\n"


def validation_file() -> tuple[Path, str]:
    """What the API server lets in of labels and annotations of namespaces, with the names that policies have."""
    file = MANIFESTS / "base" / "validation.yaml"
    text = file.read_text()
    # Lists, since a map of CEL's has no order.
    for kind in KEYS:
        text = _with_variable(text, f"{kind.lower()}Keys", str(key_rows(kind)))
        text = _with_variable(text, f"{kind.lower()}Values", str(value_rows(kind)))
    annotations = (key.removeprefix(f"{DOMAIN}/") for policy in BY_NAME.values() for key in policy.annotations)
    for variable, names in (("policies", BY_NAME), ("parameters", annotations)):
        listed = ", ".join(f"'{name}'" for name in names)
        text = _with_variable(text, variable, f"[{listed}].map(name, '{DOMAIN}/' + name)")
    rows = [
        [[key.removeprefix(f"{DOMAIN}/"), choices_of(values)], [*values]]
        for policy in BY_NAME.values()
        for key, values in policy.annotations.items()
        if values
    ]
    return file, _with_variable(text, "annotationValues", str(rows))


def _with_variable(text: str, variable: str, expression: str) -> str:
    """A file of ValidatingAdmissionPolicies with another expression of a variable."""
    begin = f"    - name: {variable}\n      expression: >-\n"
    before, _, after = text.partition(begin)
    # Up to the next line that is not of the expression.
    rest = "".join(dropwhile(lambda line: line.startswith(" " * 8), after.splitlines(keepends=True)))
    return before + begin + indent(fill(expression, 110, break_on_hyphens=False), " " * 8) + "\n" + rest


def component(variant: Variant) -> str:
    """The component that has another one's scheduler be a variant."""
    patches = []
    for place, namespace in PLACES.items():
        text = indent(configuration(MANIFESTS, variant, place), " " * 4)
        patch = indent(DATA.format(key=CONFIGURATION_KEY, text=text), " " * 6)
        patches.append(PATCH.format(kind="ConfigMap", namespace=namespace, patch=patch))
    name = digest(configuration(MANIFESTS, variant))
    patch = indent(DIGEST.format(digest=name), " " * 6)
    patches.append(PATCH.format(kind="Deployment", namespace=PLACES["second"], patch=patch))
    if variant.startswith("load-aware"):
        target = "  - target:\n      kind: ClusterRole\n      name: kubevirt-scheduler\n    patch: |\n"
        patches.append(target + indent(METRICS, " " * 6))
    header = WRITTEN.format(source=f"../{variant}.yaml") + "# It goes with ../../second or ../../openshift.\n"
    return header + VARIANT.format(patches="".join(patches))


def _render_scheduler(kubectl: Path, variant: Variant) -> None:
    """What kustomize makes of the second scheduler, for `install --with scheduler`."""
    components = ["second"] if variant == "spread" else ["second", f"variants/{variant}"]
    with tempfile.TemporaryDirectory(dir=SCHEDULER) as own:
        lines = [f"  - ../{component}\n" for component in components]
        kind = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
        (Path(own) / "kustomization.yaml").write_text(f"{kind}components:\n{''.join(lines)}")
        made = _output(kubectl, "kustomize", own)
    (MANIFESTS / "rendered" / f"scheduler-{variant}.yaml").write_text(made)


def main() -> None:
    """Write all files that are made of others."""
    binaries = Path(_output(sys.executable, "-m", "hack.controlplane.build").strip())
    for file, text in rbac_files().items():
        file.write_text(text)
    validation, text = validation_file()
    validation.write_text(text)
    for overlay in sorted((MANIFESTS / "overlays").iterdir()):
        settings = f"--config={overlay / 'settings.yaml'}"
        printed = _output(sys.executable, "-m", "webhook", "manifests", "webhooks", settings)
        (overlay / "webhooks.yaml").write_text(HEADER + printed)
        printed = _output(sys.executable, "-m", "webhook", "manifests", "policies", settings)
        (MANIFESTS / "policies" / f"{overlay.name}.yaml").write_text(POLICIES + printed)
        rendered = MANIFESTS / "rendered" / f"{overlay.name}.yaml"
        rendered.write_text(_output(binaries / "kubectl", "kustomize", overlay))
        print(f"{overlay.relative_to(ROOT)} and {rendered.relative_to(ROOT)}")
    for file, text in scheduler_files().items():
        file.write_text(text)
    for variant in VARIANTS:
        _render_scheduler(binaries / "kubectl", variant)
        print(f"{SCHEDULER.relative_to(ROOT)}: {variant}")
    print(_output(sys.executable, "-m", "hack.chart").strip())


if __name__ == "__main__":
    main()
