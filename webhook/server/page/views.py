"""What each path of the page shows: the name of a template, and its values."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, get_args

import msgspec

from webhook import names
from webhook.admission import messages
from webhook.admission.audit import Label
from webhook.admission.decision import MAX_MESSAGE
from webhook.admission.reasons import MEANINGS
from webhook.cluster.source import BrowsableCluster
from webhook.errors import InputError
from webhook.policies.migration.explanation import FactPermissions
from webhook.server.explain import ExplainRequest
from webhook.server.page.decisions import CAPACITY, NAMESPACE_CAPACITY, ShownDecision
from webhook.server.page.health import HealthHistory
from webhook.server.page.health_rows import HealthRow, health_rows, window
from webhook.server.page.overview import POLICIES, namespace_table
from webhook.server.page.paging import ROWS, pager
from webhook.server.page.placement import Places
from webhook.server.page.query import REFRESH_SECONDS, PageQuery
from webhook.server.page.recorder import DecisionRecorder
from webhook.settings.snapshot import Settings

PATH: Final = "/page"
_FEW_ROWS: Final = 8

_LABELS: Final[tuple[Label, ...]] = tuple(label for label in get_args(Label) if label != "skipped")
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
_BAD: Final = ("denied", "error", "would-deny")

# Checks that the sender may ask; raises what the listener answers.
Permit = Callable[[ExplainRequest], Awaitable[FactPermissions]]


class PageAnswer(msgspec.Struct, frozen=True):
    """What to show.

    Attributes:
        template: the name of the template.
        values: its values.
        status: the HTTP status.
        refresh_seconds: after how long the browser loads the page again; 0: it does not.
    """

    template: str
    values: Mapping[str, Any]
    status: int = 200
    refresh_seconds: int = 0


class PageViews:
    """The paths of the page.

    Args:
        cluster: the source of facts.
        settings: returns the settings in force.
        recorder: has the decisions.
        history: has the health.
        waiting_for: what keeps the server from being ready, in words; empty when ready.
    """

    def __init__(
        self,
        cluster: BrowsableCluster,
        settings: Callable[[], Settings],
        recorder: DecisionRecorder,
        history: HealthHistory,
        waiting_for: Callable[[], tuple[str, ...]],
    ) -> None:
        self._cluster: Final = cluster
        self._settings: Final = settings
        self._recorder: Final = recorder
        self._history: Final = history
        self._waiting_for: Final = waiting_for
        self._places: Final = Places(cluster)

    async def show(self, path: str, query: str, permit: Permit) -> PageAnswer | None:
        """The answer to a request; None: there is nothing at this path.

        Args:
            path: the path, which begins with `PATH`.
            query: the query string.
            permit: checks whether the sender may ask about a VM.

        Raises:
            InputError: a parameter is not valid.
            Unreadable: something is not known now.
        """
        first, _, second = path.removeprefix(PATH).strip("/").partition("/")
        if not second:
            if first == "":
                return await self._overview(PageQuery(query, ("prefix", "first", "refresh")))
            if first == "decisions":
                return self._decisions(PageQuery(query, _DECISION_PARAMETERS))
            if first == "health":
                return self._health(PageQuery(query, ("refresh",)))
            if first == "placement":
                asked = PageQuery(query, _PLACE_PARAMETERS)
                return PageAnswer(*await self._places.show(f"{PATH}/placement", asked, permit))
            return _reasons() if first == "reasons" else None
        PageQuery(query, ())
        if first == "decisions":
            return self._decision(second)
        return self._reason(second) if first == "reasons" else None

    async def _overview(self, query: PageQuery) -> PageAnswer:
        first, prefix = query.number("first"), query.text("prefix")
        table = await namespace_table(
            *(self._cluster, self._settings(), self._recorder.counts),
            prefix=prefix,
            first=first,
            count=ROWS,
        )
        counts = self._recorder.counts
        total = counts.total if counts.day == time.strftime("%Y-%m-%d", time.gmtime()) else {}
        denials = self._recorder.log.latest(lambda each: each.label in _BAD)
        return _live(
            "overview.html",
            PATH,
            query,
            {
                "missing": self._waiting_for(),
                "tiles": [(label, total.get(label, 0), text) for label, text in _TILES.items()],
                "skipped": total.get("skipped", 0),
                "health": self._health_rows(),
                "policies": POLICIES,
                "table": table,
                "prefix": prefix,
                "pager": pager(query, PATH, first, len(table.rows), table.total),
                "denials": [each for each, _ in zip(denials, range(_FEW_ROWS), strict=False)],
            },
        )

    def _decisions(self, query: PageQuery) -> PageAnswer:
        asked = {name: query.text(name) for name in ("namespace", "name", "code")}
        asked["policy"] = query.one_of("policy", POLICIES)
        asked["decision"] = query.one_of("decision", _LABELS)

        def is_wanted(each: ShownDecision) -> bool:
            return (
                asked["policy"] in ("", each.policy)
                and asked["decision"] in ("", each.label)
                and asked["namespace"] in ("", each.namespace)
                and asked["name"] in ("", each.name)
                and (not asked["code"] or any(reason.code == asked["code"] for reason in each.reasons))
            )

        first = query.number("first")
        found = list(self._recorder.log.latest(is_wanted))
        rows = found[first : first + ROWS]
        path = f"{PATH}/decisions"
        return _live(
            "decisions.html",
            path,
            query,
            {
                "asked": asked,
                "filtered": any(asked.values()),
                "policies": POLICIES,
                "labels": _LABELS,
                "rows": rows,
                "kept": len(self._recorder.log),
                "capacity": CAPACITY,
                "namespace_capacity": NAMESPACE_CAPACITY,
                "pager": pager(query, path, first, len(rows), len(found)),
            },
        )

    def _decision(self, number: str) -> PageAnswer | None:
        it = (
            self._recorder.log.get(int(number))
            if number.isascii() and number.isdecimal() and len(number) < 16
            else None
        )
        if it is None:
            return None
        about = PageQuery("", ())
        same = about.link(f"{PATH}/decisions", namespace=it.namespace, name=it.name)
        is_read = it.message and it.mode == names.ENFORCE
        message = (
            messages.compose(it.policy, it.message, it.reasons[0].code, most=MAX_MESSAGE) if is_read else it.message
        )
        is_vm = it.kind in ("VirtualMachine", "VirtualMachineInstance")
        place = about.link(f"{PATH}/placement", namespace=it.namespace, name=it.name) if is_vm and it.name else ""
        return PageAnswer(
            "decision.html",
            {
                "it": it,
                "effect": _EFFECTS[it.label],
                "reasons": [(reason, MEANINGS.get(reason.code)) for reason in it.reasons],
                "message": message,
                "same": same,
                "place": place,
            },
        )

    def _reason(self, code: str) -> PageAnswer | None:
        meaning = MEANINGS.get(code)
        if meaning is None:
            return None
        found = self._recorder.log.latest(lambda each: any(reason.code == code for reason in each.reasons))
        rows = [each for each, _ in zip(found, range(_FEW_ROWS), strict=False)]
        return PageAnswer("reason.html", {"code": code, "meaning": meaning, "rows": rows})

    def _health(self, query: PageQuery) -> PageAnswer:
        rows = self._health_rows()
        sections = [
            ("Schedulers", [row for row in rows if row.kind == "scheduler"]),
            ("Certificates", [row for row in rows if row.kind != "scheduler"]),
        ]
        minutes = round(window(self._history.since, time.time()) / 60)
        text = f"{minutes // 60} hours" if minutes >= 120 else f"{minutes} minutes"
        window_text = f"The bars show the last {text}. Gray: not checked by this replica."
        values = {"sections": sections, "window": window_text, "begin": f"{text} ago"}
        return _live("health.html", f"{PATH}/health", query, values)

    def _health_rows(self) -> list[HealthRow]:
        return health_rows(self._history.spans(), self._history.since, time.time())


def _reasons() -> PageAnswer:
    sections = [("several policies", [(code, each) for code, each in MEANINGS.items() if len(each.policies) > 1])]
    sections += [
        (policy, [(code, each) for code, each in MEANINGS.items() if each.policies == (policy,)]) for policy in POLICIES
    ]
    return PageAnswer("reasons.html", {"sections": [(title, sorted(rows, key=_code)) for title, rows in sections]})


def _code(row: tuple[str, Any]) -> str:
    return row[0]


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
