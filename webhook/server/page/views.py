"""What each view of the page shows: the name of a template, and its values."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from itertools import islice
from typing import Any, Final, get_args
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from webhook import names
from webhook.admission.audit import Label
from webhook.admission.decision import MAX_MESSAGE, compose
from webhook.admission.reasons import common
from webhook.cluster.source import Cluster
from webhook.errors import InputError, Unavailable, quote
from webhook.facts import Facts, Key, NamespaceKey, NotInMemory, from_memory
from webhook.forecast.additions import additions_by
from webhook.names import PolicyName
from webhook.policies.meanings import MEANINGS
from webhook.policies.migration.explanation import FactPermissions, NotThere, Question, matrix
from webhook.policies.registry import ENDPOINTS
from webhook.review.driver import drive
from webhook.review.scope import of_namespace
from webhook.server.admin import PAGE_PATH
from webhook.server.answers import RequestDenied
from webhook.server.authorizer import DEADLINE_SECONDS
from webhook.server.explanations.explainer import parameters, question_of
from webhook.server.page.health import HealthHistory, HealthRow, health_rows, window
from webhook.server.page.recorder import (
    CAPACITY,
    NAMESPACE_CAPACITY,
    OTHERS,
    DayCounts,
    DecisionRecorder,
    ShownDecision,
)
from webhook.settings.model import Settings
from webhook.text import abbreviate

_MAX_NUMBER: Final = 10**12
# Pages refresh themselves only for who asks for it, and not more often.
REFRESH_SECONDS: Final = (10, 30, 60)


class PageQuery:
    """The parameters of one request; empty ones count as absent, since forms send those.

    Args:
        query: the query string.
        parameter_names: the names of the parameters that the path has.

    Raises:
        InputError: it is too long, or has a parameter that the path does not have.
    """

    def __init__(self, query: str, parameter_names: Collection[str]) -> None:
        pairs = parameters(query, keep_blank=False)
        for name, _ in pairs:
            if name not in parameter_names:
                fix = f"use {', '.join(sorted(parameter_names))}" if parameter_names else "leave it out"
                raise InputError(f"{quote(name)} is not a parameter of this page", "the query", fix)
        self._pairs: Final = [(name, value.strip()) for name, value in pairs if value.strip()]

    def text(self, name: str) -> str:
        """The value of a parameter; empty: it is absent. Of several the last one counts."""
        return dict(self._pairs).get(name, "")

    def texts(self, name: str) -> list[str]:
        """All values of a parameter, which may hold several, separated by commas."""
        return [part.strip() for key, value in self._pairs if key == name for part in value.split(",") if part.strip()]

    def one_of(self, name: str, choices: Collection[str]) -> str:
        """The value of a parameter with a closed set of values; empty: it is absent. Any other is an `InputError`."""
        value = self.text(name)
        if value and value not in choices:
            raise InputError(f"{quote(value)} is not a valid value", name, f"use {', '.join(choices)}")
        return value

    def number(self, name: str) -> int:
        """The value of a parameter that is a number, 0 where it is absent; any other is an `InputError`."""
        value = self.text(name) or "0"
        if not (value.isascii() and value.isdecimal() and len(value) <= 12 and int(value) < _MAX_NUMBER):
            raise InputError(f"{quote(value)} is not a valid number", name, "use digits")
        return int(value)

    def link(self, path: str, **changed: str | int) -> str:
        """The same page with other parameters: those that are empty or 0 are left out."""
        kept = [(name, value) for name, value in self._pairs if name not in changed]
        pairs = kept + [(name, str(value)) for name, value in changed.items() if value]
        return f"{path}?{urlencode(pairs)}" if pairs else path


ROWS: Final = 50


def pager(query: PageQuery, path: str, first: int, shown: int, total: int) -> dict[str, str]:
    """The links to the rows before and after, empty where there are none, and which rows are shown."""
    before, after = max(0, first - ROWS), first + ROWS
    return {
        "previous": (query.link(path, first=before)) if first else "",
        "next": query.link(path, first=after) if after < total else "",
        "text": f"{first + 1} to {first + shown} of {total}" if shown else f"none of {total}",
    }


# In the order in which a VM meets them.
_NAMES: Final = tuple(dict.fromkeys(endpoint.policy for endpoint in ENDPOINTS))
# Looking at so many namespaces' labels takes a fraction of a millisecond.
SLICE: Final = 500
UNKNOWN: Final = "unknown"
# The label has a value that is no mode, so that the policy is off.
INVALID: Final = "invalid label"

_LABELS: Final[tuple[Label, ...]] = tuple(label for label in get_args(Label) if label != "skipped")


class PolicyCell(msgspec.Struct, frozen=True):
    """One policy in one namespace.

    Attributes:
        mode: ``enforce``, ``warn``, ``audit``, ``off``, ``unknown`` or ``invalid label``.
        counts: what it did today, without requests that it skipped.
    """

    policy: PolicyName
    mode: str
    counts: tuple[tuple[Label, int], ...]


async def namespace_table(
    cluster: Cluster, settings: Settings, counts: DayCounts, *, prefix: str = "", first: int = 0
) -> tuple[dict[str, tuple[PolicyCell, ...]], int]:
    """The namespaces with a prefix that have opted in to a policy, or in which one did something today.

    At most `ROWS` of them are returned, from the ``first`` on, with cells for all policies, and how many there are.
    """
    everywhere = any(settings.policy(policy).cluster_wide for policy in _NAMES)
    opt_ins = [names.policy_label(policy) for policy in _NAMES]
    namespaces = {name for name in counts.namespaces() if name.startswith(prefix)}
    for looked, namespace in enumerate(cluster.namespaces()):
        if looked % SLICE == SLICE - 1:
            await asyncio.sleep(0)
        name, labels = namespace.meta.name or "", namespace.meta.labels or {}
        if name.startswith(prefix) and (everywhere or any(label in labels for label in opt_ins)):
            namespaces.add(name)

    def cell(name: str, policy: PolicyName) -> PolicyCell:
        did = counts.of(name, policy)
        shown = tuple((label, did[label]) for label in _LABELS if did[label])
        return PolicyCell(policy, _mode(name, policy, cluster, settings), shown)

    part = sorted(namespaces)[first : first + ROWS]
    return {name: tuple(cell(name, policy) for policy in _NAMES) for name in part}, len(namespaces)


def _mode(namespace: str, policy: PolicyName, cluster: Cluster, settings: Settings) -> str:
    if namespace == OTHERS:
        return UNKNOWN

    def peek(key: Key[Any]) -> object:
        # The informer is good enough for people.
        return cluster.peek(NamespaceKey(key.name) if isinstance(key, NamespaceKey) else key)

    wide, excluded = settings.policy(policy).cluster_wide, settings.every_excluded_namespace
    try:
        scope = from_memory(of_namespace(policy, "enforce", namespace, Facts(peek=peek), wide, excluded))
    except NotInMemory:
        return UNKNOWN
    if isinstance(scope, Unavailable):
        return UNKNOWN
    return INVALID if scope.reason and scope.reason.code == common.UNKNOWN_MODE else scope.mode


PATH: Final = PAGE_PATH
_FEW_ROWS: Final = 8

_TILES: Final[Mapping[Label, str]] = {
    "denied": "requests",
    "error": "not evaluated",
    "patched": "objects changed",
    "allowed": "without changes",
    "would-deny": "warn and audit",
    "would-patch": "warn and audit",
}
_EFFECTS: Final[Mapping[Label, str]] = {
    "allowed": "The request was allowed without changes.",
    "patched": "The request was allowed, and the object was changed.",
    "denied": "The request was denied.",
    "would-patch": "The request was allowed without changes. In mode enforce the object would be changed.",
    "would-deny": "The request was allowed. In mode enforce it would be denied.",
    "error": "The request could not be evaluated, so it was answered as the failure behavior of the endpoint says.",
    "skipped": "The policy did not evaluate the request.",
}
_DECISION_PARAMETERS: Final = ("policy", "decision", "namespace", "name", "code", "first", "refresh")
_PLACE_PARAMETERS: Final = ("namespace", "name", "to", "node", "first")
_VM_KINDS: Final = ("VirtualMachine", "VirtualMachineInstance")
_BAD: Final = ("denied", "error", "would-deny")

# Checks that the sender of a request may ask; raises what the listener answers.
Permit = Callable[[web.Request, Question], Awaitable[FactPermissions]]


class PageAnswer(msgspec.Struct, frozen=True):
    """What to show.

    Attributes:
        status: the HTTP status.
        refresh_seconds: after how long the browser loads the page again; 0: it does not.
    """

    template: str
    values: Mapping[str, Any]
    status: int = 200
    refresh_seconds: int = 0


class PageViews(msgspec.Struct, frozen=True):
    """The views of the page: what they show is read from these.

    Each raises an `InputError` where a parameter is not valid, a `RequestDenied` where there is nothing to show, and
    `Unreadable` where something is not known now.

    Attributes:
        settings: returns the settings in force.
        waiting_for: what keeps the server from being ready, in words; empty when ready.
    """

    cluster: Cluster
    settings: Callable[[], Settings]
    recorder: DecisionRecorder
    history: HealthHistory
    waiting_for: Callable[[], tuple[str, ...]]

    async def placement(self, permit: Permit, request: web.Request) -> PageAnswer:
        """Where a VM can migrate to; without one in the query, the VMs to choose from."""
        query = _query(request, _PLACE_PARAMETERS)
        fields = {name: query.text(name) for name in ("namespace", "name", "node")}
        fields["to"] = ", ".join(query.texts("to"))
        path, template = f"{PATH}/placement", "placement.html"
        values: dict[str, Any] = {"fields": fields, "problem": "", "it": None, "abbreviate": abbreviate, "vms": ()}
        if not any(fields.values()):
            return PageAnswer(template, values | {"vms": self._recent_vms()})
        try:
            fix, first = "name a running VM and its namespace", query.number("first")
            question = question_of(fields, query.texts("to"), fix)
            question = question._replace(reader=await permit(request, question))
            deadline = asyncio.get_running_loop().time() + DEADLINE_SECONDS
            facts = Facts(time.time(), self.cluster.peek, additions=additions_by(self.settings()))
            placement = matrix(question, facts, first=first, count=ROWS)
            it = await drive(placement, self.cluster, facts, deadline, "the question")
        except InputError as error:
            return PageAnswer(template, {**values, "problem": str(error)}, 404 if isinstance(error, NotThere) else 400)
        added = question.added
        links = [
            (each, query.link(path, to=f"{each.key}={each.value}", first=""), added.get(each.key) == each.value)
            for each in it.selectors
        ]
        without = query.link(path, to="", first="") if added else ""
        links_to_rows = pager(query, path, it.first, len(it.rows), it.explanation.total)
        return PageAnswer(template, values | {"it": it, "selectors": links, "without": without, "pager": links_to_rows})

    def _recent_vms(self) -> list[tuple[str, str]]:
        """The VMs that the latest decisions are about, by name and with a link; nothing else is looked up."""
        links, found = PageQuery("", ()), dict[tuple[str, str], None]()
        for each in self.recorder.log.latest(lambda each: each.record.object.kind in _VM_KINDS):
            about = each.record.object
            if about.name and each.record.decision != "denied":
                found[about.namespace, about.name] = None
        path, shown = f"{PATH}/placement", islice(found, ROWS)
        return [(f"{place}/{name}", links.link(path, namespace=place, name=name)) for place, name in shown]

    async def overview(self, request: web.Request) -> PageAnswer:
        """What was decided today, the health, and the modes by namespace."""
        query = _query(request, ("prefix", "first", "refresh"))
        first, prefix = query.number("first"), query.text("prefix")
        counts = self.recorder.counts
        rows, count = await namespace_table(self.cluster, self.settings(), counts, prefix=prefix, first=first)
        total = counts.total if counts.day == time.strftime("%Y-%m-%d", time.gmtime()) else {}
        denials = self.recorder.log.latest(lambda each: each.record.decision in _BAD)
        values = {
            "missing": self.waiting_for(),
            "tiles": [(label, total.get(label, 0), text) for label, text in _TILES.items()],
            "skipped": total.get("skipped", 0),
            "health": self._health_rows(),
            "policies": _NAMES,
            "rows": rows,
            "prefix": prefix,
            "pager": pager(query, PATH, first, len(rows), count),
            "denials": list(islice(denials, _FEW_ROWS)),
        }
        return _live("overview.html", PATH, query, values)

    async def decisions(self, request: web.Request) -> PageAnswer:
        """The latest decisions."""
        query = _query(request, _DECISION_PARAMETERS)
        filters = {name: query.text(name) for name in ("namespace", "name", "code")}
        filters["policy"] = query.one_of("policy", _NAMES)
        filters["decision"] = query.one_of("decision", _LABELS)

        def is_wanted(each: ShownDecision) -> bool:
            record = each.record
            return (
                filters["policy"] in ("", each.policy)
                and filters["decision"] in ("", record.decision)
                and filters["namespace"] in ("", record.object.namespace)
                and filters["name"] in ("", record.object.name)
                and (not filters["code"] or any(reason.code == filters["code"] for reason in record.reasons))
            )

        first = query.number("first")
        decisions = list(self.recorder.log.latest(is_wanted))
        rows = decisions[first : first + ROWS]
        path = f"{PATH}/decisions"
        values = {
            "filters": filters,
            "filtered": any(filters.values()),
            "policies": _NAMES,
            "labels": _LABELS,
            "rows": rows,
            "kept": len(self.recorder.log),
            "capacity": CAPACITY,
            "namespace_capacity": NAMESPACE_CAPACITY,
            "pager": pager(query, path, first, len(rows), len(decisions)),
        }
        return _live("decisions.html", path, query, values)

    async def decision(self, request: web.Request) -> PageAnswer:
        """The decision whose ``number`` is in the path."""
        _query(request, ())
        number = request.match_info["number"]
        it = self.recorder.log.get(int(number))
        if it is None:
            raise RequestDenied(404, f"this replica has no decision {number}; each replica keeps its own latest ones")
        record, about, links = it.record, it.record.object, PageQuery("", ())
        message, where = record.message, {"namespace": about.namespace, "name": about.name}
        if message and record.mode == names.ENFORCE:
            message = compose(it.policy, message, record.reasons[0].code, most=MAX_MESSAGE)
        is_vm = about.kind in _VM_KINDS
        values = {
            "it": it,
            "effect": _EFFECTS[record.decision],
            "reasons": [(reason, MEANINGS.get(reason.code)) for reason in record.reasons],
            "message": message,
            "same": links.link(f"{PATH}/decisions", **where),
            "place": links.link(f"{PATH}/placement", **where) if is_vm and about.name else "",
        }
        return PageAnswer("decision.html", values)

    async def reasons(self, request: web.Request) -> PageAnswer:
        """What each reason code means."""
        _query(request, ())
        rows = sorted(MEANINGS.items(), key=lambda row: row[0])
        sections = [("several policies", [row for row in rows if len(row[1].policies) > 1])]
        sections += [(policy, [row for row in rows if row[1].policies == (policy,)]) for policy in _NAMES]
        return PageAnswer("reasons.html", {"sections": sections})

    async def reason(self, request: web.Request) -> PageAnswer:
        """What the reason ``code`` in the path means, and the latest decisions with it."""
        _query(request, ())
        code = request.match_info["code"]
        meaning = MEANINGS.get(code)
        if meaning is None:
            raise RequestDenied(404, f"{quote(code)} is not a reason code; {PATH}/reasons lists all of them")
        rows = self.recorder.log.latest(lambda each: any(reason.code == code for reason in each.record.reasons))
        return PageAnswer("reason.html", {"code": code, "meaning": meaning, "rows": list(islice(rows, _FEW_ROWS))})

    async def health(self, request: web.Request) -> PageAnswer:
        """The health of schedulers and certificates over time."""
        query = _query(request, ("refresh",))
        rows = self._health_rows()
        sections = [
            ("Schedulers", [row for row in rows if row.subject.kind == "scheduler"]),
            ("Certificates", [row for row in rows if row.subject.kind != "scheduler"]),
        ]
        minutes = round(window(self.history.since, time.time()) / 60)
        text = f"{minutes // 60} hours" if minutes >= 120 else f"{minutes} minutes"
        window_text = f"The bars show the last {text}. Gray: not checked by this replica."
        values = {"sections": sections, "window": window_text, "begin": f"{text} ago"}
        return _live("health.html", f"{PATH}/health", query, values)

    def _health_rows(self) -> list[HealthRow]:
        return health_rows(self.history.spans(), self.history.since, time.time())


def _query(request: web.Request, parameter_names: Collection[str]) -> PageQuery:
    return PageQuery(request.rel_url.raw_query_string, parameter_names)


def _live(template: str, path: str, query: PageQuery, values: dict[str, Any]) -> PageAnswer:
    """A page that loads itself again for who asks for it."""
    seconds = query.number("refresh")
    if seconds and seconds not in REFRESH_SECONDS:
        raise InputError("is not one of the intervals", "refresh", f"use {', '.join(map(str, REFRESH_SECONDS))}")
    live = {
        "seconds": seconds,
        "now": time.strftime("%H:%M:%S", time.gmtime()),
        "again": query.link(path),
        "stop": query.link(path, refresh=""),
        "every": query.link(path, refresh=REFRESH_SECONDS[0]),
    }
    return PageAnswer(template, {**values, "live": live}, refresh_seconds=seconds)
