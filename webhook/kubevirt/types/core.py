"""Kubernetes' own types inside of KubeVirt's: metadata, placement, probes (k8s.io/api/core/v1, meta/v1)."""

from __future__ import annotations

from typing import Final

from webhook.kubevirt.go_json.containers import FREE, List, Map
from webhook.kubevirt.go_json.structs import (
    BOOL_POINTER,
    EMPTY,
    INT32,
    INT32_ALWAYS,
    INT32_POINTER,
    INT64,
    INT64_POINTER,
    INT_OR_STRING_ALWAYS,
    STRING,
    STRING_ALWAYS,
    STRING_POINTER,
    OrNull,
    Struct,
    Value,
)

STRINGS: Final = List(STRING_POINTER)
STRING_MAP: Final = Map(STRING_POINTER)

METADATA: Final = Struct(
    name=STRING,
    generateName=STRING,
    namespace=STRING,
    selfLink=STRING,
    uid=STRING,
    resourceVersion=STRING,
    generation=INT64,
    creationTimestamp=STRING,
    deletionTimestamp=STRING,
    deletionGracePeriodSeconds=INT64_POINTER,
    labels=STRING_MAP,
    annotations=STRING_MAP,
    ownerReferences=List(
        Struct(
            apiVersion=STRING_ALWAYS,
            kind=STRING_ALWAYS,
            name=STRING_ALWAYS,
            uid=STRING_ALWAYS,
            controller=BOOL_POINTER,
            blockOwnerDeletion=BOOL_POINTER,
        )
    ),
    finalizers=STRINGS,
    managedFields=List(FREE),
)

_EXPRESSIONS: Final = List(Struct(key=STRING_ALWAYS, operator=STRING_ALWAYS, values=STRINGS))
LABEL_SELECTOR: Final = Struct(matchLabels=STRING_MAP, matchExpressions=_EXPRESSIONS)
_NODE_TERM: Final = Struct(matchExpressions=_EXPRESSIONS, matchFields=_EXPRESSIONS)
_POD_TERM: Final = Struct(
    labelSelector=LABEL_SELECTOR,
    namespaces=STRINGS,
    topologyKey=STRING_ALWAYS,
    namespaceSelector=LABEL_SELECTOR,
    matchLabelKeys=STRINGS,
    mismatchLabelKeys=STRINGS,
)
_POD_AFFINITY: Final = Struct(
    requiredDuringSchedulingIgnoredDuringExecution=List(_POD_TERM),
    preferredDuringSchedulingIgnoredDuringExecution=List(Struct(weight=INT32_ALWAYS, podAffinityTerm=Value(_POD_TERM))),
)
AFFINITY: Final = Struct(
    nodeAffinity=Struct(
        requiredDuringSchedulingIgnoredDuringExecution=Struct(nodeSelectorTerms=OrNull(List(_NODE_TERM))),
        preferredDuringSchedulingIgnoredDuringExecution=List(Struct(weight=INT32_ALWAYS, preference=Value(_NODE_TERM))),
    ),
    podAffinity=_POD_AFFINITY,
    podAntiAffinity=_POD_AFFINITY,
)
TOLERATION: Final = Struct(key=STRING, operator=STRING, value=STRING, effect=STRING, tolerationSeconds=INT64_POINTER)
TOPOLOGY_SPREAD: Final = Struct(
    maxSkew=INT32_ALWAYS,
    topologyKey=STRING_ALWAYS,
    whenUnsatisfiable=STRING_ALWAYS,
    labelSelector=LABEL_SELECTOR,
    minDomains=INT32_POINTER,
    nodeAffinityPolicy=STRING_POINTER,
    nodeTaintsPolicy=STRING_POINTER,
    matchLabelKeys=STRINGS,
)
DNS_CONFIG: Final = Struct(
    nameservers=STRINGS, searches=STRINGS, options=List(Struct(name=STRING, value=STRING_POINTER))
)
PROBE: Final = Struct(
    exec=Struct(command=STRINGS),
    guestAgentPing=EMPTY,
    httpGet=Struct(
        path=STRING,
        port=INT_OR_STRING_ALWAYS,
        host=STRING,
        scheme=STRING,
        httpHeaders=List(Struct(name=STRING_ALWAYS, value=STRING_ALWAYS)),
    ),
    tcpSocket=Struct(port=INT_OR_STRING_ALWAYS, host=STRING),
    initialDelaySeconds=INT32,
    timeoutSeconds=INT32,
    periodSeconds=INT32,
    successThreshold=INT32,
    failureThreshold=INT32,
)
