"""Objects that many reviews read, each decoded once.

The same few instancetypes and preferences stand behind all VMs. What one was decoded into is found by the object's own
content, so that a changed one is never taken for what it was, wherever it was read, and an equal one is found again.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from webhook.admission.step_budget import StepBudget
from webhook.kubevirt.go_json.structs import Json, Struct, decode

# Larger ones are rare, and decoded each time: tenants write instancetypes too, and all that is kept stays below 10 MB.
MAX_BYTES: Final = 4 * 1024
MAX_OBJECTS: Final = 128

# MessagePack, and not JSON, tells a number from its text where it is a key.
_encode: Final = msgspec.msgpack.Encoder().encode
_kept: Final[dict[tuple[Struct, bytes], Json]] = {}


def decode_remembered(shape: Struct, value: Any, where: str) -> Json:
    """What `decode` returns, shared by all who read an object of the same content, so that it must not be changed.

    Messages show no keys that people chose: the object was read on behalf of someone who may not be allowed to read it.

    Args:
        shape: the object's type.
        value: plain JSON.
        where: the object's place, for messages.

    Raises:
        InputError: a value is of the wrong kind or absurdly large.
    """
    try:
        content = _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return decode(shape, value, where, quoting=False)
    if len(content) > MAX_BYTES:
        return decode(shape, value, where, quoting=False)
    key = shape, content
    known = _kept.get(key)
    if known is None:
        # On a budget of its own: what a review may take must not depend on what others have read before it.
        known = StepBudget().run(decode, shape, value, where, quoting=False)
        if len(_kept) >= MAX_OBJECTS:
            del _kept[next(iter(_kept))]
        _kept[key] = known
    return known
