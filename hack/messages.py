"""`make messages`: docs/messages.md, which explains every reason code."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from webhook.forecast import report
from webhook.policies.meanings import MEANINGS
from webhook.policies.registry import POLICIES

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "messages.md"

_HEADER: Final = """\
# Messages and reason codes

Every denial, warning and Event of kubevirt-webhook begins with the product, the policy and, unless it is `enforce`, the
mode, and ends in a reason code:

```text
kubevirt-webhook (scheduling, warn): would set spec.schedulerName to kubevirt [scheduler-injected]
```

The same code is in the audit lines, in the API server's audit annotations and, if it is the first, in the
metrics. Only a warning of what a decision does not touch, such as `memory-missing`, has its code in no more
than its Event. If you own a VM, [the page for VM owners](vm-owners.md) has what to do, by symptom. This page
explains all codes, and `kubevirt-webhook explain reason CODE` prints the same, and the address of its paragraph
here. Codes are stable; the sentences around them are for people and may change. The plans of
[drains](drain.md#what-happens-to-a-vm), [losses of nodes](loss.md) and
[updates](kubevirt-updates.md#what-happens-to-a-vm) have codes too, some of them the same words.

The word behind a code says what the policy does in mode `enforce`: it *patched* the object, *denied* or *allowed* the
request, *left* it *alone* (the audit line has the decision `allowed`, or `skipped` if the policy was not run), *warned*
of a mistake while it evaluated the request all the same, or could not evaluate it (*error*), in which case the [failure
behavior](operations.md#when-a-request-cannot-be-evaluated) of the endpoint applies. A plan's code is one of an outcome
of a VM: it *moves*, *shuts down*, and so on.

This page is made from the code by `make messages`.
"""
# By kind, where the kind is not the audit line's word.
_EFFECTS: Final = {"changed": "patched", "skipped": "left alone", "failed": "error"}


def render() -> str:
    """The whole page, as Markdown."""
    shared = [code for code, meaning in MEANINGS.items() if len(meaning.policies) > 1]
    sections = [("Several policies", shared)]
    for policy in POLICIES:
        own = [code for code, meaning in MEANINGS.items() if meaning.policies == (policy.name,)]
        sections.append((policy.name.capitalize(), own))
    sections.append(("Plans of drains, losses and updates", [code for code in report.MEANINGS if code not in MEANINGS]))
    parts = [_HEADER]
    for title, codes in sections:
        parts += [f"## {title}\n", *(_paragraph(code) for code in sorted(codes))]
    return "\n".join(parts)


def _paragraph(code: str) -> str:
    """A code under a heading of its own, to which links can lead."""
    lines = [f"### `{code}`\n"]
    if meaning := MEANINGS.get(code):
        lines.append(f"*{_EFFECTS.get(meaning.kind, meaning.kind)}*: {meaning.meaning}\n")
        lines += [f"What to do: {meaning.remedy}\n"] if meaning.remedy else []
    if code in report.MEANINGS:
        outcomes = ", ".join(outcome for outcome, codes in report.CODES.items() if code in codes)
        lines.append(f"In plans, *{outcomes}*: {report.MEANINGS[code]}\n")
    return "\n".join(lines)


def main() -> None:
    """Write the page."""
    PAGE.write_text(render())
    print(PAGE.name)


if __name__ == "__main__":
    main()
