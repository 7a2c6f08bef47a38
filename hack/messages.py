"""`make messages`: docs/messages.md, which explains every reason code."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from webhook.policies.meanings import MEANINGS, CodeMeaning
from webhook.policies.registry import POLICIES

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "messages.md"

_HEADER: Final = """\
# Messages and reason codes

Every denial, warning and Event of kubevirt-webhook begins with the product, the policy and, unless it is `enforce`, the
mode, and ends in a reason code:

```text
kubevirt-webhook (scheduling, warn): would set spec.schedulerName to kubevirt [scheduler-injected]
```

The same code is in the audit lines, in the API server's audit annotations and in the metrics. This page explains all
codes, and so does `kubevirt-webhook explain reason CODE`. Codes are stable; the sentences around them are for people
and may change. Plans have codes of their own, some of them the same words. The command explains these, too, and the
pages about [drains](drain.md#what-happens-to-a-vm) and [updates](kubevirt-updates.md#what-happens-to-a-vm) list them.

The column *effect* says what the policy does in mode `enforce`: it *patched* the object, *denied* or *allowed* the
request, *left* it *alone* (the audit line has the decision `allowed`, or `skipped` if the policy was not run), or could
not evaluate it (*error*), in which case the [failure behavior](operations.md#when-a-request-cannot-be-evaluated) of the
endpoint applies.

This page is made from the code by `make messages`.
"""
# By kind, where the kind is not the audit line's word.
_EFFECTS: Final = {"changed": "patched", "skipped": "left alone", "failed": "error"}


def render() -> str:
    """The whole page, as Markdown."""
    shared = {code: meaning for code, meaning in MEANINGS.items() if len(meaning.policies) > 1}
    sections = [("Several policies", shared)]
    for policy in POLICIES:
        own = {code: meaning for code, meaning in MEANINGS.items() if meaning.policies == (policy.name,)}
        sections.append((policy.name.capitalize(), own))
    return "\n".join([_HEADER, *(_section(title, codes) for title, codes in sections)])


def _section(title: str, codes: dict[str, CodeMeaning]) -> str:
    rows = [f"## {title}\n", "| code | effect | meaning | what to do |", "|---|---|---|---|"]
    rows += [
        f"| `{code}` | {_EFFECTS.get(meaning.kind, meaning.kind)} | {meaning.meaning} | {meaning.remedy} |"
        for code, meaning in sorted(codes.items())
    ]
    return "\n".join(rows) + "\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(render())
    print(PAGE.name)


if __name__ == "__main__":
    main()
