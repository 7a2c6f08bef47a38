"""``python -m hack.kubevirt_types``: KubeVirt's types as Go has them, and which fields each release knows.

It writes two modules of the package out of what upstream says, so that a new release is a diff of data:

* ``webhook/kubevirt/types/core.py`` from the Go types of kubevirt.io/api, which ``hack/go_types`` has for each release;
* ``webhook/kubevirt/releases/field_table.py`` from the CustomResourceDefinitions in the package, of the fields that the
  former has.

A structural schema cannot give the first. It has no difference between a string that is dropped when it is empty and
one that is kept (``omitempty``, pointers), between lists that are left out and that are null, nor between uint32 and
int64; and it has no names of types. It does say how long a list may be (``maxItems``), which is taken from there. What
neither says is in ``OVERRIDES``, each with its reason. Defaults that KubeVirt's code sets, and what it merges by which
key (``+listType`` is a comment in Go), are rules, and stand in code.

``--check`` writes nothing and exits with status 1 where a file differs. ``--release 1.9`` first asks Go for the types
of the release that ``hack/controlplane`` has as that one.
"""

from __future__ import annotations

import argparse
import json
import keyword
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from hack.controlplane.bundles import kubevirt_releases
from hack.go_types import GO_TYPES, printed
from webhook.kubevirt.go_json import structs
from webhook.kubevirt.releases.capabilities import SUPPORTED_VERSIONS, Version
from webhook.kubevirt.releases.schemas import kinds_of

ROOT: Final = Path(__file__).resolve().parents[1]
CORE: Final = ROOT / "webhook" / "kubevirt" / "types" / "core.py"
TABLE: Final = ROOT / "webhook" / "kubevirt" / "releases" / "field_table.py"
_API: Final = "kubevirt.io/api/"
_META: Final = "k8s.io/apimachinery/pkg/apis/meta/v1."
_QUANTITY: Final = "k8s.io/apimachinery/pkg/api/resource.Quantity"
_INT_OR_STRING: Final = "k8s.io/apimachinery/pkg/util/intstr.IntOrString"
_TIME: Final = f"{_META}Time"


class Override(NamedTuple):
    """Where a field, or all that a struct has, is not as its Go type says.

    Attributes:
        shape: the shape instead; of a field, ``{}`` stands for the struct that it holds.
        why: the reason.
        only: of a struct the fields that it has; None: all.
    """

    shape: str
    why: str
    only: tuple[str, ...] | None = None


# By struct, or struct and field, as Go names them.
OVERRIDES: Final[Mapping[str, Override]] = {
    f"{_META}ObjectMeta.creationTimestamp": Override("STRING", "older releases write null, which nobody reads"),
    f"{_META}ObjectMeta.managedFields": Override("List(FREE)", "it is the API server's, and handed on as it is"),
    "kubevirt.io/api/core/v1.VirtualMachineSpec.template": Override(
        "{}", "the schema demands it, so that it is never written as null"
    ),
    "kubevirt.io/api/core/v1.DomainSpec.resources": Override("Value({}, left_out=True)", "people leave it out"),
    "kubevirt.io/api/core/v1.Features.acpi": Override("Value({}, left_out=True)", "people leave it out"),
    **dict.fromkeys(
        ("kubevirt.io/api/core/v1.Memory.guest", "kubevirt.io/api/core/v1.Memory.maxGuest"),
        Override("QUANTITY_COMPUTED", "steps of KubeVirt compute it"),
    ),
    **dict.fromkeys(
        (
            "kubevirt.io/api/core/v1.ResourceRequirements.requests",
            "kubevirt.io/api/core/v1.ResourceRequirements.limits",
        ),
        Override("Map(QUANTITY_COMPUTED)", "steps of KubeVirt compute it"),
    ),
    "kubevirt.io/api/core/v1.VirtualMachineStatus": Override(
        "Status", "the rest is copied: no rule reads it", ("conditions", "instancetypeRef", "preferenceRef")
    ),
    "kubevirt.io/api/core/v1.VirtualMachineInstanceStatus": Override(
        "Status", "the rest is copied: no rule reads it", ("conditions", "guestOSInfo", "memory", "runtimeUser")
    ),
    "kubevirt.io/api/core/v1.VirtualMachineInstanceGuestOSInfo": Override(
        "Status", "it is copied: no rule reads it", ()
    ),
}
# The kinds, and how code calls some of the structs.
_KINDS: Final = (
    *("VirtualMachineInstancetype", "VirtualMachinePreference", "VirtualMachineInstance", "VirtualMachine"),
)
_CALLED: Final = {
    "VirtualMachine": "VM",
    "VirtualMachineInstance": "VMI",
    "VirtualMachineInstanceSpec": "VMI_SPEC",
    "VirtualMachineInstancetype": "INSTANCETYPE",
    "VirtualMachinePreference": "PREFERENCE",
    "InstancetypeMatcher": "MATCHER",
    "ObjectMeta": "METADATA",
    "DomainSpec": "DOMAIN",
}
_SCALARS: Final = {
    "string": "STRING",
    "bool": "BOOL",
    "int32": "INT32",
    "int64": "INT64",
    "uint32": "UINT32",
    "uint64": "UINT64",
    # On all platforms that KubeVirt runs on.
    "int": "INT64",
    "uint": "UINT64",
}
_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_HEAD: Final = '''"""VirtualMachine and VirtualMachineInstance with all that they hold, instancetypes and preferences.

Written by ``python -m hack.kubevirt_types`` from the Go types of KubeVirt {version}: kubevirt.io/api, and what it takes
of k8s.io/api and of the containerized data importer. Each constant is a struct of Go, as JSON shows it.
"""

from __future__ import annotations

from typing import Final

from webhook.kubevirt.go_json.structs import (
{imports}
)

STRINGS: Final = List(STRING_POINTER)
STRING_MAP: Final = Map(STRING_POINTER)
'''
_TABLE: Final = '''"""The fields that releases have brought: paths below ``spec``, through lists without an index.

Written by ``python -m hack.kubevirt_types`` from the CustomResourceDefinitions of the releases in ``definitions``.
"""

from __future__ import annotations

from typing import Final

PATHS: Final[dict[tuple[str, str], list[str]]] = {
'''


class GoField(msgspec.Struct, frozen=True, rename="camel"):
    """A field of a struct, under the name that JSON has for it."""

    name: str
    type: str
    omit_empty: bool = False
    omit_zero: bool = False


class GoTypes(msgspec.Struct, frozen=True):
    """The types of a release.

    Attributes:
        version: that of KubeVirt.
        kinds: the structs of the kinds.
        structs: their fields, by the path of the package and the name.
    """

    version: str
    kinds: dict[str, str]
    structs: dict[str, list[GoField]]


def types_of(version: Version) -> GoTypes:
    """The types of a minor release."""
    return msgspec.json.decode(_file_of(version).read_bytes(), type=GoTypes)


def _file_of(version: Version) -> Path:
    return GO_TYPES / f"kubevirt-{version.major}.{version.minor}.json"


def fetch(line: str) -> None:
    """Ask Go for the types of a release, and keep those that are needed."""
    bundle = next(each for version, each in kubevirt_releases().items() if version.startswith(f"{line}."))
    (part,) = bundle.parts
    keep(line, part.version, printed(part, "kubevirt"))


def keep(line: str, version: str, shown: bytes) -> None:
    """Write the types of a release that are needed, a struct on a line."""
    printed = json.loads(shown)
    kinds = {kind: printed["kinds"][kind] for kind in _KINDS}
    types = msgspec.convert({"version": version, "kinds": kinds, "structs": printed["structs"]}, GoTypes)
    needed = sorted(Source(types, {}).order)
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(printed['structs'][name])}" for name in needed)
    head = json.dumps({"version": version, "kinds": kinds}).removesuffix("}")
    (GO_TYPES / f"kubevirt-{line}.json").write_text(f'{head}, "structs": {{\n{lines}\n}}}}\n')


def limits_of(version: Version, types: GoTypes) -> dict[str, int]:
    """How many items the lists of structs may have, by struct and field, as the definitions say."""
    schemas = {each.kind: each.schema for each in kinds_of(version) if each.kind in types.kinds}
    found: dict[str, int] = {}

    def walk(name: str, schema: Mapping[str, Any], above: tuple[str, ...]) -> None:
        struct = _held(name)
        if struct not in types.structs or struct in above:
            return
        members = _members_of(schema)
        for field in types.structs[struct]:
            below = members.get(field.name, {})
            if (most := below.get("maxItems")) is not None:
                assert found.setdefault(f"{struct}.{field.name}", most) == most, (struct, field.name)
            walk(field.type, below, (*above, struct))

    for kind, struct in types.kinds.items():
        walk(struct, schemas[kind], ())
    return found


def _held(name: str) -> str:
    """The type of what a pointer, list or map holds."""
    return re.sub(r"^(?:\*|\[\]|map\[\w+\])+", "", name)


class Source:
    """The source text of shapes.

    Args:
        types: Go's.
        limits: how many items lists may have, by struct and field.

    Attributes:
        order: the structs, each after those that it holds.
    """

    def __init__(self, types: GoTypes, limits: Mapping[str, int]) -> None:
        self._types: Final = types
        self._limits: Final = limits
        self.order: Final[list[str]] = []
        for struct in types.kinds.values():
            self._visit(struct)
        self._names: Final = self._named()

    def _fields(self, struct: str) -> list[GoField]:
        only = OVERRIDES[struct].only if struct in OVERRIDES else None
        return [each for each in self._types.structs[struct] if only is None or each.name in only]

    def _visit(self, struct: str) -> None:
        if struct in self.order:
            return
        for field in self._fields(struct):
            held = _held(field.type)
            override = OVERRIDES.get(f"{struct}.{field.name}")
            if held in self._types.structs and (override is None or "{}" in override.shape):
                self._visit(held)
        self.order.append(struct)

    def _named(self) -> dict[str, str]:
        """The constants; of structs of one name in two packages KubeVirt's has the name alone."""
        names: dict[str, str] = {}
        for struct in sorted(self.order, key=lambda each: not each.startswith(_API)):
            package, _, name = struct.rpartition(".")
            constant = _CALLED.get(name) or _WORDS.sub("_", name).upper()
            if constant in names.values():
                constant = f"{package.split('/')[-2].upper()}_{constant}"
            assert constant not in names.values(), struct
            names[struct] = constant
        return names

    def lines(self) -> Iterator[str]:
        """The constants, in their order."""
        for struct in self.order:
            override = OVERRIDES.get(struct)
            yield ""
            yield f"# {struct}" + (f"; {override.why}." if override else ".")
            members = [*self._members(struct)]
            made = override.shape if override else "Struct"
            if not members:
                yield f"{self._names[struct]}: Final = " + (f"{made}()" if override else "EMPTY")
                continue
            yield f"{self._names[struct]}: Final = {made}("
            yield from members
            yield ")"

    def _members(self, struct: str) -> Iterator[str]:
        for field in self._fields(struct):
            path = f"{struct}.{field.name}"
            if override := OVERRIDES.get(path):
                yield f"    # {override.why[0].upper()}{override.why[1:]}."
                shape = override.shape.format(self._names.get(_held(field.type)))
            else:
                shape = self._shape(field, path)
            name = field.name
            plain = name.isidentifier() and not keyword.iskeyword(name)
            yield f"    {name}={shape}," if plain else f"    **{{{json.dumps(name)}: {shape}}},"

    def _shape(self, field: GoField, path: str) -> str:
        pointed, omitted = field.type.removeprefix("*"), field.omit_empty or field.omit_zero
        is_pointer = pointed != field.type
        if pointed == _TIME:
            # Text here: no rule reads it.
            return "STRING" if is_pointer or field.omit_zero else "OrNull(STRING_POINTER)"
        if pointed in (_QUANTITY, _INT_OR_STRING) and not is_pointer:
            return "QUANTITY_ALWAYS" if pointed == _QUANTITY else "INT_OR_STRING_ALWAYS"
        if pointed in _SCALARS and not is_pointer:
            return _SCALARS[pointed] if omitted else f"{_SCALARS[pointed]}_ALWAYS"
        if pointed in self._types.structs and not is_pointer and not field.omit_zero:
            # Go leaves no struct out that is no pointer.
            return self._names[pointed] if pointed in OVERRIDES else f"Value({self._names[pointed]})"
        shape = self._item(pointed, self._limits.get(path))
        return shape if omitted else f"OrNull({shape})"

    def _item(self, name: str, limit: int | None = None) -> str:
        """The shape of a value that is there."""
        if name in _SCALARS:
            return f"{_SCALARS[name]}_POINTER"
        if name == _QUANTITY:
            return "QUANTITY"
        if name.startswith("[]"):
            item = name.removeprefix("[]")
            if item == "string" and limit is None:
                return "STRINGS"
            return f"List({self._item(item)})" if limit is None else f"List({self._item(item)}, {limit})"
        if name.startswith("map["):
            item = self._item(name.partition("]")[2])
            return "STRING_MAP" if item == "STRING_POINTER" else f"Map({item})"
        if name not in self._names:
            raise SystemExit(f"nothing says what a {name} is in JSON; say it in OVERRIDES")
        return self._names[name]


def _is_shape(value: Any) -> bool:
    return isinstance(value, structs.Shape) or (isinstance(value, type) and issubclass(value, structs.Shape))


def core_module(version: Version) -> str:
    """``core.py``, as it would be with the types of a release."""
    types = types_of(version)
    body = "\n".join(Source(types, limits_of(version, types)).lines())
    shapes = [name for name, value in vars(structs).items() if _is_shape(value)]
    imports = [name for name in shapes if re.search(rf"\b{name}\b", f"{body} STRING_POINTER List Map")]
    imports.sort(key=lambda name: (not name.isupper(), name))
    head = _HEAD.format(version=types.version, imports="\n".join(f"    {name}," for name in imports))
    return f"{head}{body}\n"


def _members_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schemas of an object's fields, or of those of a list's items."""
    while "items" in schema:
        schema = schema["items"]
    return schema.get("properties") or {}


def _since(
    types: GoTypes, struct: str, schemas: Mapping[Version, Any], path: str = ""
) -> Iterator[tuple[Version, str]]:
    """The fields that not every release knows, each without those below it, with the first release that does."""
    for field in types.structs[struct]:
        below = f"{path}.{field.name}".removeprefix(".")
        members = {version: _members_of(schema) for version, schema in schemas.items()}
        having = {version: each[field.name] for version, each in members.items() if field.name in each}
        if len(having) == len(schemas):
            if (held := _held(field.type)) in types.structs:
                yield from _since(types, held, having, below)
        elif having:
            first = min(having)
            # What a release drops again is not known from one on.
            assert set(having) == {version for version in schemas if version >= first}, below
            yield first._replace(patch=0), below


def table_module() -> str:
    """``field_table.py``."""
    types, lines = types_of(SUPPORTED_VERSIONS[-1]), []
    for kind, root in types.kinds.items():
        spec = next(each.type for each in types.structs[root] if each.name == "spec")
        schemas = {version: _spec_of(version, kind) for version in SUPPORTED_VERSIONS}
        by_release: dict[Version, list[str]] = {}
        for since, path in _since(types, spec, schemas):
            # Of a VMI, the templates of VMs have it too.
            if kind != "VirtualMachine" or not path.startswith("template.spec."):
                by_release.setdefault(since, []).append(path)
        for since, paths in sorted(by_release.items()):
            lines += [f'    ("{kind}", "{since}"): [', *(f'        "{path}",' for path in paths), "    ],"]
    return _TABLE + "\n".join(lines) + "\n}\n"


def _spec_of(version: Version, kind: str) -> Any:
    return next(each.schema for each in kinds_of(version) if each.kind == kind)["properties"]["spec"]


def outdated() -> dict[Path, str]:
    """The files that would be written otherwise now, with their content."""
    written = {CORE: core_module(SUPPORTED_VERSIONS[-1]), TABLE: table_module()}
    return {file: text for file, text in written.items() if not file.exists() or file.read_text() != text}


def main() -> int:
    """Write what is outdated, or say what is."""
    parser = argparse.ArgumentParser(description="Write the types of KubeVirt, and the fields that each release knows.")
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 where a file differs")
    parser.add_argument("--release", metavar="LINE", help="ask Go for the types of a release first, such as 1.9")
    options = parser.parse_args()
    if options.release:
        fetch(options.release)
    files = outdated()
    for file, text in files.items():
        print(f"{'outdated' if options.check else 'written'}: {file.relative_to(ROOT)}")
        if not options.check:
            file.write_text(text)
    return int(options.check and bool(files))


if __name__ == "__main__":
    sys.exit(main())
