"""Proves of a history that all that was decided was allowed, and shows the shortest part of it where something was not.

`RULES` has one function for each promise. Beside `unexplained`, which asks the policies themselves (`model`), each rule
knows nothing of the server's code: it compares what etcd held with what was admitted.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from webhook.policies.migration.settings import MigrationSettings

from .history import Call, Fault, History, Json, ObjectId, Request, Webhook
from .model import RECOVERY_SECONDS, SLACK_SECONDS, Model, TooManyStatesError, Verdict

DOMAIN = "kubevirt-webhook.github.io"
INSTANCETYPES = f"{DOMAIN}/instancetypes"
MIGRATION = f"{DOMAIN}/migration"
ALLOWED = f"{DOMAIN}/allowed-instancetypes"
INJECTED = {
    "instancetype": f"{DOMAIN}/injected-instancetype",
    "preference": f"{DOMAIN}/injected-preference",
}
# What the API server itself knows of a namespace's labels, it knows after so long.
APISERVER_SECONDS = 30.0
# After a replica has lost all that it reads, besides the age that a store may have: probes, and their timeouts.
NOTICE_SECONDS = 45.0
# How many decisions were checked: without any, a run has shown nothing.
EXPLAINED = "calls explained"
# What the rules beside `unexplained` are about: without any, a rule has looked at nothing.
HELD = (
    "VMs held to an allow-list",
    "defaults held through an overwrite",
    "migrations held to a limit",
    "samples of readiness",
    "calls without a fault around them",
    "samples of readiness without a fault around them",
)
# Decisions about which states say nothing: the server had no room for the request.
NOT_EVALUATED = frozenset({"overloaded", "namespace-unreadable"})
# Decisions that no state explains, after which no more are looked for: of each, all states have to be tried.
ENOUGH = 10
# What is shown of objects that a decision is about.
_SHOWN = 600


@dataclass(frozen=True)
class Violation:
    """A promise that was not kept, and the part of the history that shows it.

    Attributes:
        at: when the request came, or the sample was taken, that it is about.
        possible: what would have been right, where the rule knows it.
    """

    rule: str
    what: str
    at: float
    history: Sequence[str] = ()
    possible: Sequence[str] = ()

    def __str__(self) -> str:
        lines = [*self.history, *(f"possible: {each}" for each in self.possible)]
        return "\n".join((f"{self.rule}: {self.what}", *(f"    {line}" for line in lines)))


@dataclass
class Report:
    violations: list[Violation] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


Rule = Callable[[History, Model, Counter[str]], Iterator[Violation]]


def check(history: History) -> Report:
    """All violations of a history, in the order in which they came."""
    report, model = Report(), Model(history)
    for rule in RULES:
        report.violations += rule(history, model, report.counts)
    report.violations.sort(key=lambda violation: violation.at)
    return report


def gaps(history: History, report: Report) -> list[str]:
    """What the history has nothing of, so that no violation of it can be found."""
    answered = {(call.type, call.webhook) for _, call in _calls(history) if call.decision}
    modes = [mode for mode in ("enforce", "warn", "audit") if not report.counts[f"calls explained in mode {mode}"]]
    return [
        *([] if report.counts[EXPLAINED] else ["any decision"]),
        *(f"decisions in mode {mode}" for mode in modes),
        *(f"{entry.name} ({entry.type})" for entry in history.webhooks if (entry.type, entry.name) not in answered),
        *(what for what in HELD if not report.counts[what]),
    ]


# -- the rules ---------------------------------------------------------------------------------------------------------


def unexplained(history: History, model: Model, counts: Counter[str]) -> Iterator[Violation]:
    """No state within the promised staleness leads to the decision."""
    found = 0
    for request in history.requests:
        for number, call in enumerate(request.calls):
            if found >= ENOUGH:
                counts["calls not looked at"] += 1
                continue
            if call.failed_open or not call.decision or call.reason in NOT_EVALUATED | {"internal-error"}:
                counts["calls without an evaluation"] += 1
                continue
            try:
                others = model.explains(request, call, number)
            except TooManyStatesError:
                counts["calls with too many possible states"] += 1
                continue
            counts[EXPLAINED] += others is None
            counts[f"calls explained in mode {call.mode}"] += others is None
            if others is not None:
                found += 1
                possible = [str(other) for other in others] or [f"no state at all with mode {call.mode}"]
                what = f"{call.webhook} answered {Verdict.of(call)}, which no state within the bounds allows"
                lines = _story(history, model, request, call.webhook.split(".")[1])
                yield Violation("unexplained", f"{_name(request)}: {what}", request.received, lines, possible)


def internal_errors(history: History, model: Model, counts: Counter[str]) -> Iterator[Violation]:
    """A request made the server fail, which had the memory to answer."""
    for request, call in _calls(history):
        if call.reason == "internal-error" and not model.lacked_memory(request.received, request.completed):
            what = f"{_name(request)}: {call.webhook} answered internal-error"
            yield Violation("internal-error", what, request.received, _story(history, model, request))


def uncaused(history: History, model: Model, counts: Counter[str]) -> Iterator[Violation]:
    """A request was not evaluated, and nothing was broken at that time."""
    for request, call in _calls(history):
        broken = call.failed_open or call.reason in NOT_EVALUATED
        disturbed = model.disturbed(request.received - RECOVERY_SECONDS, request.completed)
        counts["calls without a fault around them"] += not disturbed
        if broken and not disturbed:
            said = "failed" if call.failed_open else f"answered {call.reason}"
            what = f"{_name(request)}: {call.webhook} {said}, without any fault since {RECOVERY_SECONDS:.0f} s"
            yield Violation("uncaused", what, request.received, _story(history, model, request))


def unlogged(history: History, model: Model, counts: Counter[str]) -> Iterator[Violation]:
    """A webhook answered, and no audit line says what was decided, though no replica was disturbed meanwhile."""
    for request, call in _calls(history):
        is_lost = not (call.failed_open or call.decision)
        counts["calls without an audit line"] += is_lost
        if is_lost and not model.disturbed(request.received - RECOVERY_SECONDS, request.completed):
            what = f"{_name(request)}: {call.webhook} answered, and there is no audit line of it"
            yield Violation("unlogged", what, request.received, _story(history, model, request))


def failed_closed(history: History, model: Model, counts: Counter[str]) -> Iterator[Violation]:
    """A request was denied because the server could not evaluate it, and its failurePolicy is Ignore."""
    policies = _policies(history)
    for request in history.requests:
        if request.code < 400:
            continue
        blamed = list(_blamed(request, history.webhooks))
        # Two entries may have one name, and the API server's answer does not say which of them it has called.
        if any(policies[entry] == "Fail" for entry in blamed):
            continue
        for type_, name in blamed[:1]:
            evaluated = any(call.webhook == name and call.decision == "denied" for call in request.calls)
            overloaded = any(call.webhook == name and call.reason == "overloaded" for call in request.calls)
            if policies.get((type_, name)) == "Ignore" and not (evaluated or overloaded):
                what = f"{_name(request)}: denied without an evaluation by {name}, whose failurePolicy is Ignore"
                lines = [*_story(history, model, request), f"answer: {request.code} {request.message}"]
                yield Violation("failed-closed", what, request.received, lines)


def failed_open(history: History, model: Model, counts: Counter[str]) -> Iterator[Violation]:
    """A request went on though it was not evaluated, and its failurePolicy is Fail."""
    policies = _policies(history)
    for request, call in _calls(history):
        if request.code >= 400 or policies.get((call.type, call.webhook)) != "Fail":
            continue
        # Modes other than enforce deny nothing. Whether the mode itself was allowed, `unexplained` proves.
        if call.failed_open or (call.decision == "error" and call.mode == "enforce"):
            what = f"{_name(request)}: admitted without an evaluation by {call.webhook}, whose failurePolicy is Fail"
            yield Violation("failed-open", what, request.received, _story(history, model, request))


def not_called(history: History, model: Model, counts: Counter[str]) -> Iterator[Violation]:
    """A VM or migration was created in a namespace that has long been opted in, and no webhook was asked."""
    for request in _vms(history, "CREATE"):
        if request.code >= 400:
            continue
        called = {call.webhook for call in request.calls if call.type == "mutating"}
        for label in (f"{DOMAIN}/scheduling", INSTANCETYPES):
            modes = _labels(model, request, label, APISERVER_SECONDS)
            wanted = f"virtualmachines.{label.partition('/')[2]}.enforce.{DOMAIN}"
            has_choice = label != INSTANCETYPES and _template(request).get("schedulerName")
            if modes == {"enforce"} and wanted not in called and not has_choice:
                what = f"{_name(request)}: {wanted} was not called, though {label}=enforce has long been set"
                yield Violation("not-called", what, request.received, _story(history, model, request))
    for request in history.requests:
        if request.resource != "virtualmachineinstancemigrations" or request.operation != "CREATE":
            continue
        wanted = f"virtualmachineinstancemigrations.migration.enforce.{DOMAIN}"
        called = {call.webhook for call in request.calls if call.type == "validating"}
        if request.code >= 400 or wanted in called or not request.object["spec"].get("addedNodeSelector"):
            continue
        # Audit lines alone tell of calls that validate, and a replica may end before it has written one.
        disturbed = model.disturbed(request.received - RECOVERY_SECONDS, request.completed)
        if not disturbed and _labels(model, request, MIGRATION, APISERVER_SECONDS) == {"enforce"}:
            what = f"{_name(request)}: {wanted} was not called, though {MIGRATION}=enforce has long been set"
            yield Violation("not-called", what, request.received, _story(history, model, request))


def not_allowed(history: History, model: Model, counts: Counter[str]) -> Iterator[Violation]:
    """A VM was stored with an instancetype that no allow-list within the bounds has."""
    for request in _vms(history, "CREATE", "UPDATE"):
        stored = request.result
        if request.code >= 400 or stored is None or any(_is_open(call) for call in request.calls):
            continue
        matcher = stored["spec"].get("instancetype")
        old = (request.old or {}).get("spec", {}).get("instancetype")
        if not matcher or matcher == old or "inferFromVolume" in matcher:
            continue
        namespaces = model.namespaces_of(request)
        lists = {_list_of(namespace) for namespace in namespaces}
        named = f"{matcher.get('kind') or 'VirtualMachineClusterInstancetype'}/{matcher.get('name')}"
        counts["VMs held to an allow-list"] += None not in lists
        if None not in lists and not any(named in (each or "").split(",") for each in lists):
            what = f"{_name(request)}: stored with {named}, which no allow-list of the last moments has"
            yield Violation("not-allowed", what, request.received, _story(history, model, request))


def default_lost(history: History, model: Model, counts: Counter[str]) -> Iterator[Violation]:
    """An overwrite took a VM the default that it once was given."""
    for request in _vms(history, "UPDATE"):
        stored, old, sent = request.result, request.old, request.object
        if request.code >= 400 or not stored or not old or any(_is_open(call) for call in request.calls):
            continue
        if _labels(model, request, INSTANCETYPES, _bound(history)) != {"enforce"} or _has_own_size(sent):
            continue
        for part, mark in INJECTED.items():
            before = old["spec"].get(part)
            was_default = before and (old["metadata"].get("annotations") or {}).get(mark)
            counts["defaults held through an overwrite"] += bool(was_default and part not in sent["spec"])
            if was_default and part not in sent["spec"] and stored["spec"].get(part) != before:
                what = f"{_name(request)}: lost the default {part} {was_default}, which an overwrite did not mention"
                yield Violation("default-lost", what, request.received, _story(history, model, request))


def over_the_limit(history: History, model: Model, counts: Counter[str]) -> Iterator[Violation]:
    """A user's migration was admitted beside as many unfinished ones as the settings allow."""
    timelines = model.timelines
    for request in history.requests:
        of_a_user = request.object.get("spec", {}).get("addedNodeSelector")
        if request.resource != "virtualmachineinstancemigrations" or request.code >= 400 or not of_a_user:
            continue
        limits = {settings.of(MigrationSettings).max_unfinished for settings in model.settings_of(request)}
        if not limits or 0 in limits or _labels(model, request, MIGRATION, _bound(history)) != {"enforce"}:
            continue
        others = [
            each for each in timelines.ids("VirtualMachineInstanceMigration") if each.namespace == request.namespace
        ]
        unfinished = 0
        for other in others:
            states = timelines.during(other, request.received - model.shared(request), request.completed)
            named = other.name != request.name
            unfinished += named and all(state is not None and _is_unfinished(state) for state in states)
        counts["migrations held to a limit"] += 1
        if unfinished >= max(limits):
            what = f"{_name(request)}: admitted beside {unfinished} unfinished migrations; the limit is {max(limits)}"
            yield Violation("over-the-limit", what, request.received, _story(history, model, request))


def readiness(history: History, model: Model, counts: Counter[str]) -> Iterator[Violation]:
    """A replica was ready though it could read nothing for long, or not ready though nothing was broken."""
    told: set[tuple[str, str]] = set()
    for sample in history.samples:
        disturbed = model.disturbed(sample.at - RECOVERY_SECONDS, sample.at)
        counts["samples of readiness"] += 1
        counts["samples of readiness without a fault around them"] += not disturbed
        blind = sample.at - sample.blind_since if sample.blind_since is not None else 0.0
        rule = ""
        if sample.ready and blind > history.run.current_seconds + NOTICE_SECONDS:
            rule, what = "ready-while-blind", f"is ready, and has reached no API server for {blind:.0f} s"
        elif not sample.ready and not disturbed:
            rule, what = "not-ready-without-cause", f"is not ready, though nothing is broken: {sample.text}"
        if rule and (rule, sample.replica) not in told:
            told.add((rule, sample.replica))
            near = [_fault(fault, history) for fault in history.faults if fault.ended >= sample.at - RECOVERY_SECONDS]
            near = [line for line, fault in zip(near, history.faults, strict=False) if fault.began <= sample.at]
            yield Violation(rule, f"replica {sample.replica} {what}", sample.at, near)


RULES: Sequence[Rule] = (
    unexplained,
    internal_errors,
    uncaused,
    unlogged,
    failed_closed,
    failed_open,
    not_called,
    not_allowed,
    default_lost,
    over_the_limit,
    readiness,
)
# By what they report.
RULE_OF: Mapping[str, Rule] = {rule.__name__.replace("_", "-"): rule for rule in RULES} | {
    "internal-error": internal_errors,
    "ready-while-blind": readiness,
    "not-ready-without-cause": readiness,
}

# -- what they look at -------------------------------------------------------------------------------------------------


def _calls(history: History) -> Iterator[tuple[Request, Call]]:
    return ((request, call) for request in history.requests for call in request.calls)


def _vms(history: History, *operations: str) -> Iterator[Request]:
    for request in history.requests:
        if request.resource == "virtualmachines" and not request.subresource and request.operation in operations:
            yield request


def _bound(history: History) -> float:
    return history.run.current_seconds + SLACK_SECONDS


def _labels(model: Model, request: Request, label: str, seconds: float) -> set[str | None]:
    """All values that a label of a request's namespace may have had in the last seconds."""
    wanted = ObjectId("Namespace", "", request.namespace)
    states = model.timelines.during(wanted, request.received - seconds, request.completed)
    return {(state["metadata"].get("labels") or {}).get(label) if state else None for state in states}


def _list_of(namespace: Json | None) -> str | None:
    """The allow-list that an enforced policy has; None: there is none, so everything is allowed."""
    metadata = (namespace or {}).get("metadata", {})
    if (metadata.get("labels") or {}).get(INSTANCETYPES) != "enforce":
        return None
    text = (metadata.get("annotations") or {}).get(ALLOWED)
    return None if text is None else ",".join(part.strip() for part in text.split(","))


def _is_open(call: Call) -> bool:
    """Whether a call ended without a decision of the policy."""
    return call.failed_open or call.decision in ("error", "")


def _is_unfinished(migration: Json) -> bool:
    """Whether it counts for the limit: KubeVirt's own do not."""
    annotations = migration["metadata"].get("annotations") or {}
    own = "kubevirt.io/evacuationMigration" in annotations and not migration["spec"].get("addedNodeSelector")
    return not own and migration.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def _template(request: Request) -> Json:
    spec: Json = request.object["spec"]["template"]["spec"]
    return spec


def _has_own_size(vm: Json) -> bool:
    """Whether a VM says its own size, beside which no default instancetype goes."""
    domain = vm["spec"]["template"]["spec"].get("domain", {})
    return bool({"cpu", "memory", "resources"} & domain.keys())


def _policies(history: History) -> Mapping[tuple[str, str], str]:
    return {(entry.type, entry.name): entry.failure_policy for entry in history.webhooks}


def _blamed(request: Request, webhooks: Sequence[Webhook]) -> Iterator[tuple[str, str]]:
    """The entries that a denial names as those that could not be reached, or had no answer."""
    for entry in webhooks:
        unreached = f'failed calling webhook "{entry.name}"' in request.message
        unanswered = f'admission webhook "{entry.name}" denied the request' in request.message and request.code >= 500
        if unreached or unanswered:
            yield entry.type, entry.name


def _name(request: Request) -> str:
    subresource = f"/{request.subresource}" if request.subresource else ""
    return f"{request.operation} {request.resource}{subresource} {request.namespace}/{request.name}"


# -- what is shown of a history ----------------------------------------------------------------------------------------


def lines_of(history: History) -> list[str]:
    """All that happened in a history, which should be short, in its order."""
    lines = [
        (change.by, f"{_moment(change.by, history)} {change.id}: {_shown(change.value)}") for change in history.changes
    ]
    lines += [
        (each.by, f"settings from {_moment(each.by, history)} on: {_section(each.text, '')}")
        for each in history.settings
    ]
    lines += [(fault.began, _fault(fault, history)) for fault in history.faults]
    for sample in history.samples:
        said = "is ready" if sample.ready else f"is not ready: {sample.text}"
        lines.append((sample.at, f"{_moment(sample.at, history)} replica {sample.replica} {said}"))
    for request in history.requests:
        lines += _lines_of_request(request, history)
    return [line for _, line in sorted(lines, key=lambda line: line[0])]


def _lines_of_request(request: Request, history: History) -> Iterator[tuple[float, str]]:
    yield request.received, f"{_moment(request.received, history)} {_name(request)}: {_shown(request.object)}"
    if request.old:
        yield request.received, f"  stored before: {_shown(request.old)}"
    for call in request.calls:
        said = "failed, and was passed over" if call.failed_open else str(Verdict.of(call))
        yield request.completed, f"{_moment(request.completed, history)} {call.webhook}: {said}"


def _story(history: History, model: Model, request: Request, policy: str = "") -> list[str]:
    """The part of a history that a decision can depend on: what it names as it may have been, and the faults.

    Without a policy, that of the decisions of all.
    """
    begin = request.received - _bound(history)
    about = [
        each
        for each in (
            ObjectId("Namespace", "", request.namespace),
            *(ObjectId(kind, request.namespace, name) for kind, name in _named(request)),
            *(ObjectId(kind, "", name) for kind, name in _named(request)),
        )
        if model.timelines.changes(each)
    ]
    lines: list[tuple[float, str]] = []
    for each in about:
        changes = [change for change in model.timelines.changes(each) if change.after <= request.completed]
        first = max((number for number, change in enumerate(changes) if change.by < begin), default=0)
        known: Json | None = None
        for change in changes[first:]:
            # Of what follows, only what has changed; what no policy reads may have changed alone.
            value = _of_policy(change.value, policy) if each.kind == "Namespace" else change.value
            if shown := _difference(known, value):
                lines.append((change.by, f"{_moment(change.by, history)} {each}: {shown}"))
            known = value
    last = ""
    for settings in history.settings:
        text = _section(settings.text, policy)
        if settings.by <= request.completed and text != last:
            if settings.by < begin:
                lines = [line for line in lines if not line[1].startswith("settings")]
            lines.append((settings.by, f"settings from {_moment(settings.by, history)} on: {text}"))
            last = text
    lines += [
        (fault.began, _fault(fault, history))
        for fault in history.faults
        if fault.began <= request.completed and fault.ended >= begin
    ]
    lines += _lines_of_request(request, history)
    return [line for _, line in sorted(lines, key=lambda line: line[0])]


def _named(request: Request) -> Iterator[tuple[str, str]]:
    spec = (request.result or request.object).get("spec", {})
    for part, kind in (
        ("instancetype", "VirtualMachineClusterInstancetype"),
        ("preference", "VirtualMachineClusterPreference"),
    ):
        matcher = spec.get(part) or {}
        if matcher.get("name"):
            yield matcher.get("kind") or kind, matcher["name"]
    if "vmiName" in spec:
        yield "VirtualMachineInstance", spec["vmiName"]


def _fault(fault: Fault, history: History) -> str:
    until = _moment(fault.ended, history)
    return (
        f"{_moment(fault.began, history)} fault until {until}: {fault.what}{f' ({fault.about})' if fault.about else ''}"
    )


def _moment(at: float, history: History) -> str:
    stamp = dt.datetime.fromtimestamp(at, dt.UTC).strftime("%H:%M:%S.%f")[:-3]
    return f"{stamp} (+{at - history.run.began:.3f} s)"


def _difference(former: Json | None, value: Json | None) -> str:
    """What a change brought, in short; empty: nothing that a policy reads."""
    if value is None or former is None:
        return _shown(value)
    before, after = _flat(_read(former)), _flat(_read(value))
    changed = {key: after.get(key) for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    return ", ".join(f"{key} = {json.dumps(changed[key])}" for key in sorted(changed))[:_SHOWN]


def _of_policy(namespace: Json | None, policy: str) -> Json | None:
    """A namespace without what other policies read of it."""
    if namespace is None or not policy:
        return namespace
    metadata = namespace["metadata"]
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key == f"{DOMAIN}/{policy}"}
    has_parameters = policy in ("instancetypes", "scheduling")
    annotations = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if has_parameters and key.startswith(f"{DOMAIN}/")
    }
    return {"metadata": {"labels": labels, "annotations": annotations}}


def _section(text: str, policy: str) -> str:
    """What settings say of a policy, or of all."""
    written = json.loads(text)
    return json.dumps({key: value for key, value in written.items() if policy in ("", key)}, sort_keys=True)[:_SHOWN]


def _read(value: Json) -> Json:
    metadata = {key: each for key, each in value.get("metadata", {}).items() if key in ("labels", "annotations")}
    return {**metadata, **({"spec": value["spec"]} if "spec" in value else {})}


def _flat(value: Json, path: str = "") -> Json:
    found: Json = {}
    for key, each in value.items():
        place = f"{path}.{key}" if path else key
        found |= _flat(each, place) if isinstance(each, dict) and each else {place: each}
    return found


def _shown(value: Any) -> str:
    """An object without what no policy reads, shortened."""
    if not isinstance(value, dict):
        return "deleted"
    text = json.dumps(_read(value), sort_keys=True)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
