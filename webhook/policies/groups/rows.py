"""Each way in which a group's rules stand in a launcher pod, as an injected default, and the decision about all.

All of them have one annotation, which says what the group's rules come to for the VM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from webhook.admission.decision import Change, Decision, Reason, allow
from webhook.admission.step_budget import spend
from webhook.k8s.json_tree import lookup
from webhook.k8s.types.meta import Object
from webhook.k8s.types.scheduling import PREFERRED, REQUIRED
from webhook.placement.groups import GroupPlacement, parse
from webhook.policies.common.affinity import Json, add_expressions, add_missing
from webhook.policies.common.injected_defaults import Choice, InjectedDefault, Reasons
from webhook.policies.groups import reasons
from webhook.policies.groups.settings import INJECTED_ANNOTATION, GroupSettings

_AFFINITY: Final = ("spec", "affinity")
Default = InjectedDefault[GroupSettings]


def _default(
    path: tuple[str, ...],
    terms: Callable[[GroupPlacement], list[Json]],
    merge: Callable[[Any, Any], Any] = add_missing,
) -> Default:
    def value(text: str) -> list[Json]:
        placement = parse(text)
        return terms(placement) if placement else []

    return InjectedDefault(
        name="group",
        path=(*_AFFINITY, *path),
        annotation=INJECTED_ANNOTATION,
        value=value,
        is_value=lambda stands, text: isinstance(text, str) and stands == value(text),
        is_said=lambda text: parse(text) is not None,
        merge=merge,
        reasons=Reasons(
            present=lambda _: reasons.present,
            chosen=lambda _: reasons.present,
            removed=lambda _: reasons.present,
            replaced=None,
            restored=None,
            untouched=None,
        ),
    )


ALL: Final = (
    _default(("podAntiAffinity", REQUIRED), lambda placement: placement.required_terms(placement.apart)),
    _default(("podAntiAffinity", PREFERRED), lambda placement: placement.preferred_terms(placement.apart)),
    _default(("podAffinity", REQUIRED), lambda placement: placement.required_terms(placement.together)),
    _default(("podAffinity", PREFERRED), lambda placement: placement.preferred_terms(placement.together)),
    _default(("nodeAffinity", REQUIRED, "nodeSelectorTerms"), GroupPlacement.required_nodes, merge=add_expressions),
    _default(("nodeAffinity", PREFERRED), GroupPlacement.preferred_nodes),
)


def write(pod: Object, placement: GroupPlacement) -> Decision:
    """The decision to have a launcher pod follow the rules."""
    choice = Choice(placement.text, reasons.injected(placement.group))
    decisions = []
    for default in ALL:
        if default.value(choice.text):
            present = lookup(pod, default.path)
            spend(len(present) if isinstance(present, list | dict) else 0, "terms of the affinity")
            decisions.append(default.write(pod, choice, default.in_objects))
    changes = tuple(_once(change for each in decisions for change in each.changes))
    if not changes:
        return allow(reasons.present)
    return Decision((choice.reason,), changes, notes={"group": placement.group})


def record(vmi: Object, placement: GroupPlacement) -> Decision:
    """The decision to record in a new VMI what its group requires."""
    choice = Choice(placement.text, reasons.recorded(placement.group))
    decision = ALL[0].record(vmi, choice, ALL[0].in_objects)
    if not decision.changes:
        return allow(reasons.present)
    return Decision(decision.reasons, decision.changes, notes={"group": placement.group})


def _once(changes: Iterable[Change]) -> Iterator[Change]:
    """The changes, of which several may write the one annotation."""
    written = set()
    for change in changes:
        if change.path not in written:
            written.add(change.path)
            yield change


def add_doubt(decision: Decision, doubt: Reason | None) -> Decision:
    """The decision with what its sender is warned of."""
    if doubt is None:
        return decision
    return Decision(
        (*decision.reasons, doubt), decision.changes, warnings=(*decision.warnings, doubt), notes=decision.notes
    )
