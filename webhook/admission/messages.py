"""How kubevirt-webhook speaks to a user: who says it, under which policy and mode, what, and the code that explains it.

    kubevirt-webhook (scheduling, warn): would set spec.schedulerName to kubevirt [scheduler-injected]

A user meets several admission webhooks in one answer, so each sentence begins with the product and its policy. It ends
in a reason code, which ``kubevirt-webhook explain reason CODE`` and docs/messages.md expand. The sentences themselves
are in the ``messages`` module of each policy, the meanings of the codes in `webhook.admission.reasons`.
"""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.names import Mode
from webhook.text import shorten

PRODUCT: Final = "kubevirt-webhook"


def compose(policy: str, text: str, code: str, mode: Mode = names.ENFORCE, *, most: int) -> str:
    """A sentence as a user reads it.

    Args:
        policy: the policy of the message, for example ``scheduling``.
        text: the sentence, without a full stop.
        code: a reason code of `webhook.names.Code`.
        mode: the policy's mode in the namespace; ``enforce`` is not named.
        most: characters of the whole; the text is cut, never the code.
    """
    speaker = policy if mode == names.ENFORCE else f"{policy}, {mode}"
    before, after = f"{PRODUCT} ({speaker}): ", f" [{code}]"
    return f"{before}{shorten(text, most - len(before) - len(after))}{after}"
