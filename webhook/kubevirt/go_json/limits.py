"""How large the JSON may be that is read into structs: whatever a tenant writes ends here."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from webhook.kubevirt.go_json.scalars import WrongValue

MAX_DEPTH: Final = 50
# Longer lists than any VM needs; where KubeVirt's CRDs say `maxItems`, theirs counts.
MAX_ITEMS: Final = 1000
MAX_KEYS: Final = 5000
# Of a whole object: no limit on each of its lists bounds what lists within lists come to. A VM with all the disks,
# volumes, interfaces, networks and data volumes that KubeVirt's CRDs admit, 256 of each, holds half as many.
MAX_VALUES: Final = 25_000


def copy_bounded(value: Any, depth: int = MAX_DEPTH) -> Any:
    """A copy without nulls in objects.

    Args:
        value: plain JSON of any type.
        depth: levels that it may have.

    Raises:
        WrongValue: it has more levels, or a list or object with more than `MAX_KEYS` items.
    """
    if not depth:
        raise WrongValue(f"is nested more than {MAX_DEPTH} levels deep")
    if type(value) in (dict, list) and len(value) > MAX_KEYS:
        raise WrongValue(f"has {len(value)} items, more than {MAX_KEYS}")
    if type(value) is dict:
        return {key: copy_bounded(item, depth - 1) for key, item in value.items() if item is not None}
    return [copy_bounded(item, depth - 1) for item in value] if type(value) is list else value


_encode: Final = msgspec.json.Encoder().encode
# The same in fewer bytes, and at least one for each value.
_pack: Final = msgspec.msgpack.Encoder().encode


def is_too_large(value: Any) -> bool:
    """Whether plain JSON has more than `MAX_VALUES` values; counts no further."""
    try:
        if len(_pack(value)) <= MAX_VALUES:
            return False
        text = _encode(value)
        # Each value but the first of a list or object follows a comma; texts may hold such characters too.
        if text.count(b",") + text.count(b"[") + text.count(b"{") <= MAX_VALUES:
            return False
    except (TypeError, ValueError, OverflowError, RecursionError):
        # What is no JSON, or is nested too deeply to be written at once, is counted all the same.
        pass
    count, pending = 0, [value]
    while pending and count <= MAX_VALUES:
        item = pending.pop()
        if type(item) is dict or type(item) is list:
            count += len(item)
            if count <= MAX_VALUES:
                pending.extend(item.values() if type(item) is dict else item)
    return count > MAX_VALUES
