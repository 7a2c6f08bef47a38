"""Mutants of admission, of inference, and of finding, capturing and expanding what a VM names."""

from __future__ import annotations

from tests.mutants.mutant import of

MATCHER = of(
    "instancetype/find",
    [
        ("the annotations tell the scope", "{'' if kind == self.namespaced else 'cluster-'}", ""),
        ("no kind is the cluster-wide one", 'in ("", self.cluster.lower(), f', "in (self.cluster.lower(), f"),
        (
            "plural names are kinds",
            '(self.namespaced.lower(), f"{self.namespaced.lower()}s")',
            "(self.namespaced.lower(),)",
        ),
        (
            "a captured revision must be of the named object",
            'if revisions.label(stored) == given.get("name", ""):',
            "if revisions.label(stored):",
        ),
        (
            "revisionName counts before all else",
            '        if "revisionName" in given:\n            stored',
            '        if "revisionName" in given and "name" not in given:\n            stored',
        ),
        ("inferFromVolume excludes a kind", 'for name in ("name", "kind") if', 'for name in ("name",) if'),
        (
            "a failure policy is checked in any case",
            "if policy is not None and policy not in",
            'if "inferFromVolume" in given and policy not in',
        ),
        (
            "a new name needs a new revision",
            'given["revisionName"] != before.get("revisionName"):',
            '"revisionName" in before:',
        ),
        ("either a name or a volume", '{"name", "inferFromVolume"}:', '{"name", "inferFromVolume", "kind"}:'),
    ],
)
INFER = of(
    "instancetype/infer",
    [
        ("an empty label is one", "        if self._label not in labels:", "        if not labels.get(self._label):"),
        (
            "only Ignore takes the memory",
            'if ignore and matcher.field == "instancetype":',
            'if matcher.field == "instancetype":',
        ),
        ("a preference leaves the memory", 'if ignore and matcher.field == "instancetype":', "if ignore:"),
        (
            "a missing object is never forgiven",
            "        except Ignorable:\n            if not ignore:",
            "        except Rejection:\n            if not ignore:",
        ),
        ("a forgiven failure takes the matcher", '            del vm["spec"][matcher.field]\n', ""),
        (
            "a collected DataVolume has left a claim",
            "        if stored is None:\n            # Collected",
            "        if not name:\n            # Collected",
        ),
        (
            "labels of a DataVolume come first",
            "            return self._from_labels(volume)\n",
            '            return self._from_spec(volume["spec"])\n',
        ),
        (
            "a DataSource in the VM's namespace",
            'reference.get("namespace", self._namespace))',
            'reference.get("namespace", ""))',
        ),
        (
            "the kind of a sourceRef is exact",
            'if reference["kind"] != "DataSource":',
            'if reference["kind"].lower() != "datasource":',
        ),
        ("the kind's label counts", 'labels.get(f"{self._label}-kind", "")', '""'),
        ("snapshots carry labels", "(_CLAIM, _SNAPSHOT)", "(_CLAIM,)"),
    ],
)
ADMISSION = of(
    "webhooks",
    [
        (
            "only new machines get a serial number",
            "    if old is None:\n        firmware",
            "    if True:\n        firmware",
        ),
        (
            "only new machines get a PCI topology",
            "    if old is None and has_pci_topology",
            "    if has_pci_topology",
        ),
        (
            "a serial number of the user's stays",
            "firmware[name] = firmware.get(name) or new_uuid()",
            "firmware[name] = new_uuid()",
        ),
        ("an image's architecture is found in any case", '.lower() == "datasource"', ' == "DataSource"'),
        ("an image's architecture must be known", "if label in ARCHITECTURES), None)", "if label), None)"),
        (
            "a missing instancetype is admitted",
            "            except Rejection:\n                specs[matcher] = None",
            "            except ValueError:\n                specs[matcher] = None",
        ),
        (
            "what can't be divided is refused at admission",
            "        if cause is not None:\n            return deny([cause])\n    conflicts",
            "        if cause is None:\n            return deny([])\n    conflicts",
        ),
        (
            "what is being deleted is not touched",
            '    if "deletionTimestamp" in vm["metadata"]:',
            "    if not vm:",
        ),
        ("an architecture of the user's stays", '    if spec.get("architecture"):\n        return\n', ""),
        (
            "the preferred storage class is written at admission",
            "        preferences.storage_class(preference,",
            "        preferences.storage_class({},",
        ),
        (
            "the preferred machine type is written at admission",
            '        preferences.machine_type(preference, spec["domain"])\n',
            "",
        ),
        (
            "requirements are checked at admission",
            '    cause = preferences.check(specs[0], specs[1], template["spec"])',
            "    cause = None",
        ),
    ],
)
SYNC = of(
    "vm/controller",
    [
        (
            "expand leaves VMs with revisions alone",
            'if policy == "expandAll" or (policy == "expand" and not captured):',
            'if policy in ("expand", "expandAll"):',
        ),
        (
            "expandAll doesn't",
            'if policy == "expandAll" or (policy == "expand" and not captured):',
            'if policy == "expand" and not captured:',
        ),
        ("expansion cleans up", "                self._store.delete(self._namespace, name)", "                pass"),
        ("a labelled revision is not upgraded", "        if revisions.latest(before):", "        if not before:"),
        ("an upgraded revision goes", "            with suppress(NotFound):", "            if False:"),
        ("an upgrade is noted", '["controllerRevisionRef"]["name"] = name', '["name"] = name'),
        ("a new name drops the old revision", '                reference.pop("controllerRevisionRef", None)\n', ""),
        (
            "a revision of the user's is taken over",
            '        if "revisionName" in given:\n            reference',
            "        if not given:\n            reference",
        ),
        (
            "a revision with other data is refused",
            "        elif not revisions.holds(stored, made, self._rules):",
            "        elif not stored:",
        ),
        (
            "a conflict is found before it is captured",
            "        if matcher is INSTANCETYPE_MATCHER:",
            "        if matcher is None:",
        ),
        (
            "the failure policy is copied",
            '        if "inferFromVolumeFailurePolicy" in given:',
            "        if not given:",
        ),
        ("the controller says at what it failed", 'f"{STORING}{conflicts.what}"', "conflicts.what"),
    ],
)
REVISION = of(
    "instancetype/revisions",
    [
        ("a captured object has no labels", '_DROPPED: Final = ("labels", ', "_DROPPED: Final = ("),
        ("the name tells the generation", 'str(metadata.get("generation", 0))])', '"0"])'),
        ("the label tells the kind", '        "object-kind": kind,\n', ""),
        (
            "a preference is no instancetype",
            '    if read is None or rules.types.by_kind[read["kind"]] is not shape:',
            "    if read is None:",
        ),
        ("amounts are compared by value", "quantity.parse(memory[name]).nanos", "memory[name]"),
        (
            "other versions are not decoded",
            "if version != API_VERSION:",
            'if version == "":',
        ),
    ],
)
EXPAND = of(
    "instancetype/apply",
    [
        ("default disks come before the preference", "    defaults.disks(spec)\n", ""),
        (
            "the default interface comes before the preference",
            "    defaults.network_interface(spec, configuration)\n",
            "",
        ),
        ("the matchers go", '        expanded["spec"].pop(matcher.field, None)\n', ""),
        ("the references go", '        expanded["status"].pop(matcher.reference, None)\n', ""),
        ("defaults are frozen into the VM", "    defaults.spec_defaults(spec, configuration, note)\n", ""),
    ],
)
OBJECTS = of(
    "webhooks",
    [
        ("100 percent can be overcommitted", "if not 0 <= percent <= 100:", "if not 0 <= percent < 100:"),
        ("no overcommit of huge pages", 'if percent and "hugepages" in', 'if percent > 50 and "hugepages" in'),
        (
            "cores and threads have a ratio of 2",
            "if across == CORES_THREADS and ratio != 2:",
            "if across == CORES_THREADS and ratio > 4:",
        ),
        (
            "an unknown topology is refused",
            "    if wanted is None:\n        return deny",
            '    if name == "":\n        return deny',
        ),
        ("old names are warned of", "    if name in DEPRECATED:", "    if name in ():"),
        ("launchSecurity is warned of", "[_LAUNCH_SECURITY] if warns else []", "[]"),
        ("nothing is warned of that is refused", "return deny(causes) if", "return deny(causes, warnings) if"),
    ],
)
REFUSAL = of(
    "rejection",
    [
        ("conflicts of a VMI have the base spec", 'VMI_BASE: Final = "spec"', 'VMI_BASE: Final = "spec.template.spec"'),
        ("ten causes are shown", "CAUSES_SHOWN: Final = 10", "CAUSES_SHOWN: Final = 11"),
        ("more causes are counted", " if more > 0 else text", " if more > 1 else text"),
        (
            "a VMI's conflicts are said otherwise",
            "VMI conflicts with instancetype spec in fields: [",
            "VM conflicts with instancetype spec in fields: [",
        ),
    ],
)
CONTAINER = of(
    "go_json/structs",
    [
        (
            "read, an empty map differs from none",
            "return taken if taken or live else OMITTED",
            "return taken if taken else OMITTED",
        ),
        ("written, an empty map is dropped", "return taken if taken or live else OMITTED", "return taken"),
    ],
)
SHAPE = of(
    "go_json/structs",
    [
        (
            "unknown fields are dropped",
            "if item is None or (field := known.get(name)) is None:",
            "if item is None or (field := known.get(name, (lambda item, live: item, None))) is None:",
        ),
        (
            "structs that are no pointers are always there",
            "return self.shape.take({}, live)",
            "return OMITTED",
        ),
    ],
)
SCALAR = of(
    "go_json/scalars",
    [
        (
            "a plain zero is as good as absent",
            "return checked if checked or not self._omitted else OMITTED",
            "return checked",
        ),
    ],
)
MUTANTS = [*MATCHER, *INFER, *ADMISSION, *SYNC, *REVISION, *EXPAND, *OBJECTS, *REFUSAL, *CONTAINER, *SHAPE, *SCALAR]
