"""Objects that no API server would store."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.kubevirt.samples import vm

NAMES = ["name", "kind", "spec", "cpu", "guest", "memory", "disks", "devices", "annotations", "bus", "x"]
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    # JSON knows neither NaN nor infinity.
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([-1, 2**32, 2**63, 10**400, "1Gi", "-5", "1e5", ""]),
    st.text(max_size=5),
)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
)
WHOLE = vm(
    {
        "architecture": "amd64",
        "volumes": [{"name": "v", "dataVolume": {"name": "d"}}],
        "networks": [{"name": "n", "pod": {}}],
        "domain": {
            "cpu": {"features": [{"name": "f"}]},
            "features": {"hyperv": {"evmcs": {}}},
            "devices": {"disks": [{"name": "d"}], "interfaces": [{"name": "n"}], "inputs": [{"name": "i"}]},
            "clock": {"timer": {"hpet": {}}},
            "resources": {"requests": {"x": "1"}},
        },
        "livenessProbe": {"exec": {"command": ["a"]}},
    },
    instancetype={"name": "u1"},
    preference={"name": "linux"},
    dataVolumeTemplates=[{"metadata": {"name": "d"}, "spec": {"sourceRef": {"kind": "DataSource", "name": "s"}}}],
)


def replaced(value: Any, data: st.DataObject, new: Any) -> Any:
    """A copy of a value with one of its parts replaced."""
    if not isinstance(value, dict | list) or not value or data.draw(st.integers(0, 6)) == 0:
        return new
    key = data.draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
    copy: Any = value.copy()
    copy[key] = replaced(value[key], data, new)
    return copy


def deep(levels: int = 10_000) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value
