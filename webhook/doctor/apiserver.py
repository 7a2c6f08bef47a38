"""The API server: what Kubernetes 1.37 and newer can do for the policies, and what no object shows."""

from __future__ import annotations

import re
from typing import Final

from webhook.cluster.reader import SECONDS
from webhook.doctor.installation import Installation
from webhook.errors import Unavailable
from webhook.findings import Finding, check, ok, readable, unknown, unreadable, warning
from webhook.k8s.client.api import Forbidden, await_answer
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object
from webhook.text import abbreviate, pluralize

METRICS_PATH: Final = "/metrics"
EVICTION_REQUESTS: Final = Resource("lifecycle.k8s.io", "v1alpha1", "evictionrequests", "EvictionRequest", True, Object)
_SUBJECT: Final = "API server"
# The metrics of k8s.io/component-base (metrics/prometheus/feature) and of k8s.io/apiserver
# (pkg/admission/plugin/manifest/metrics).
_ENABLED: Final = re.compile(rb'^kubernetes_feature_enabled\{name="(\w+)",stage="\w*"\} 1$', re.MULTILINE)
_FROM_FILES: Final = re.compile(
    rb'^apiserver_manifest_admission_config_controller_last_config_info\{[^}\n]*plugin="(\w+)"', re.MULTILINE
)


@check("api-server")
async def check_api_server(installation: Installation) -> list[Finding]:
    """Look at the feature gates and the files of an API server that is new enough to have them."""
    if readable(_SUBJECT, await installation.kubernetes_version()) < (1, 37):
        return []
    api = readable(_SUBJECT, installation.reader.api)
    status, metrics = readable(_SUBJECT, await await_answer(api.get(METRICS_PATH), SECONDS))
    if status == 403:
        why = f"the API server denied the request (403): grant get on {METRICS_PATH}"
        return [unreadable(_SUBJECT, Forbidden(why))]
    if status != 200:
        why = f"the API server answered {status} to get {METRICS_PATH}"
        return [unreadable(_SUBJECT, Unavailable(why))]
    gates = {name.decode() for name in _ENABLED.findall(metrics)}
    findings = []
    if installation.settings.tls.client_names:
        findings.append(ok("certificate-required", _SUBJECT, "it proves by a client certificate that it sends reviews"))
    elif "APIServerWebhookAuthenticationToken" in gates:
        what = "it issues tokens that prove who sends a review, and kubevirt-webhook verifies those that arrive"
        todo = "have it send one: name a token in the kubeconfig of its --admission-control-config-file"
        findings.append(ok("tokens-issued", _SUBJECT, what, todo))
    if plugins := sorted({name.decode() for name in _FROM_FILES.findall(metrics)}):
        what = f"it reads configurations of {abbreviate(plugins)} from files, and no API shows them: not checked"
        todo = "check the files in staticManifestsDir of its --admission-control-config-file yourself"
        findings.append(unknown("configured-by-files", _SUBJECT, what, todo))
    if "EvictionRequestAPI" in gates:
        # No webhook on evictions is called for them.
        requests = await installation.reader.all(EVICTION_REQUESTS)
        if isinstance(requests, Unavailable):
            findings.append(unreadable(EVICTION_REQUESTS.kind, requests))
        elif requests:
            what = f"{pluralize(len(requests), 'request')} in the cluster, which the eviction policy does not evaluate"
            todo = "have VMs evicted by Evictions: Kubernetes 1.37 and KubeVirt 1.9 do not act on requests"
            findings.append(warning("requested", EVICTION_REQUESTS.kind, what, todo))
        else:
            what = "the API is served, and no request exists; the eviction policy evaluates Evictions alone"
            findings.append(ok("none-requested", EVICTION_REQUESTS.kind, what))
    return findings
