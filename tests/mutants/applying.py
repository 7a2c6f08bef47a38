"""Mutants of what applies instancetypes and preferences, and of what they require."""

from __future__ import annotations

from tests.mutants.mutant import of

_NODE_SELECTOR = '        *_whole(instancetype, spec, "nodeSelector"),'
_SCHEDULER = '        *_whole(instancetype, spec, "schedulerName"),'

INSTANCETYPE = of(
    "instancetype/apply",
    [
        (
            "a field that both sides set conflicts even when the values are equal",
            "    if name in target:\n        return",
            "    if name in target and target[name] != source[name]:\n        return",
        ),
        (
            "conflicts are told in the order of the steps",
            f"{_NODE_SELECTOR}\n{_SCHEDULER}",
            f"{_SCHEDULER}\n{_NODE_SELECTOR}",
        ),
        ("limits.cpu conflicts", 'for kind in ("requests", "limits") if "cpu"', 'for kind in ("requests",) if "cpu"'),
        (
            "dedicatedCPUPlacement is spelled as in the instancetype",
            'f"domain.cpu.{name}" for name, mine in',
            'f"domain.cpu.{mine}" for name, mine in',
        ),
        (
            "maxSockets is overridden in silence",
            '    if "maxSockets" in wanted:',
            '    if "maxSockets" in wanted and "maxSockets" not in cpu:',
        ),
        ("the CPU model is copied", '    "model": "model",\n', ""),
        ("the realtime setting is copied", '    "realtime": "realtime",\n', ""),
        (
            "of memory's conflicts the first is told, guest before maxGuest",
            'for name in ("guest", "hugepages", "maxGuest"):\n        if name in wanted and',
            'for name in ("maxGuest", "hugepages", "guest"):\n        if name in wanted and',
        ),
        (
            "limits.memory conflicts",
            'for kind in ("requests", "limits"):\n        if "memory"',
            'for kind in ("requests",):\n        if "memory"',
        ),
        ("an overcommit of 1 percent counts", "    if percent > 0:", "    if percent > 1:"),
        (
            "the path of ioThreads' conflict",
            '"domain.ioThreads.") if name in wanted',
            '"domain.") if name in wanted',
        ),
        (
            "ioThreads appear only with a count",
            "if name in wanted else []",
            'if domain.setdefault("ioThreads", {}) is not None and name in wanted else []',
        ),
        ("the path of gpus' conflict", '"gpus", "domain.devices."', '"gpus", "domain."'),
        ("hostDevices are copied", '        *_whole(instancetype, devices, "hostDevices", "domain.devices."),\n', ""),
        ("launchSecurity is copied", '        *_whole(instancetype, domain, "launchSecurity", "domain."),\n', ""),
        ("ioThreadsPolicy is copied", '        *_whole(instancetype, domain, "ioThreadsPolicy", "domain."),\n', ""),
        (
            "equal annotations are no conflict",
            "if annotations.setdefault(key, value) != value:",
            "if key in annotations or annotations.setdefault(key, value) != value:",
        ),
        (
            "annotations conflict without a base path",
            'conflicts.append(f"annotations.{key}")',
            'conflicts.append(f"spec.template.metadata.annotations.{key}")',
        ),
    ],
)
TOPOLOGY = of(
    "instancetype/preferences",
    [
        ("one vCPU is never spread", "    if guest == 1:", "    if guest == 0:"),
        (
            "vCPUs become sockets where nothing is preferred",
            "return Topology.SOCKETS if name is None",
            "return Topology.CORES if name is None",
        ),
        ("the old names still count", '"preferAny": Topology.ANY', '"preferAny": Topology.THREADS'),
        ("the default ratio is 2", 'preference.get("preferSpreadSocketToCoreRatio") or 2', "4"),
        (
            "a ratio of 0 in spreadOptions is one",
            'options.get("ratio", ratio))',
            'options.get("ratio") or ratio)',
        ),
        (
            "spread goes across sockets and cores by default",
            'options.get("across", SOCKETS_CORES)',
            'options.get("across", CORES_THREADS)',
        ),
        (
            "CoresThreads: ratio threads to a core",
            "guest // wanted.ratio, wanted.ratio\n",
            "wanted.ratio, guest // wanted.ratio\n",
        ),
        (
            "SocketsCoresThreads: two threads",
            "guest // 2 // wanted.ratio, wanted.ratio, 2",
            "guest // wanted.ratio, wanted.ratio, 1",
        ),
        (
            "an unknown topology stays 1/1/1",
            "return (1, 1, 1) if topology is None else (guest, 1, 1)",
            "return guest, 1, 1",
        ),
        (
            "spreading across nothing known stays 1/1/1",
            "ACROSS:\n        return 1, 1, 1",
            "ACROSS:\n        return guest, 1, 1",
        ),
        (
            "SocketsCoresThreads divides by two first",
            "if guest % 2 or _indivisible(guest // 2, wanted):",
            "if _indivisible(guest, wanted):",
        ),
        (
            "CoresThreads must divide",
            "elif across == CORES_THREADS and _indivisible",
            "elif not across and _indivisible",
        ),
        ("the field of what doesn't divide", '"instancetype.spec.cpu.guest"', '"spec.instancetype"'),
        ("a ratio of 0 is refused", "    if not wanted.ratio:", "    if wanted.ratio is None:"),
    ],
)
PREFERENCE = of(
    "instancetype/preferences",
    [
        (
            "what the user has set stays",
            "    if value is not None and name not in target:",
            "    if value is not None:",
        ),
        (
            "disableHotplug overwrites the user's",
            '    if "preferredDisableHotplug" in preferred:',
            '    if "preferredDisableHotplug" in preferred and "disableHotplug" not in devices:',
        ),
        (
            "ACPI overwrites the user's",
            '    if "preferredAcpi" in preferred:',
            '    if "preferredAcpi" in preferred and "acpi" not in features:',
        ),
        (
            "a CPU feature that is preferred twice is added twice",
            'for feature in preferred if feature["name"] not in names]',
            'for feature in preferred if feature["name"] not in names and not names.add(feature["name"])]',
        ),
        (
            "CPU features without CPU are refused, not a crash",
            '    if "cpu" not in domain:\n        raise',
            '    if "cpu" not in domain and domain.setdefault("cpu", {}):\n        raise',
        ),
        (
            "a sound device is never made",
            '    if "sound" in devices:',
            '    if devices.setdefault("sound", {}) is not None:',
        ),
        ("a video device is made", 'devices.setdefault("video", {})', 'devices.get("video", {})'),
        (
            "automatic devices are decided with the rest, too",
            '    autoattach({"devices": preferred}, spec)\n',
            "",
        ),
        (
            "a LUN is no disk",
            'if not disk.keys() & {"disk", "cdrom", "lun"}:',
            'if not disk.keys() & {"disk", "cdrom"}:',
        ),
        ("LUNs have a bus of their own", '("lun", "Lun")', '("lun", "Disk")'),
        (
            "CD-ROMs get no cache mode",
            '_fill(disk[kind], "bus", preferred.get(f"preferred{name}Bus"))',
            '_fill(disk, "cache", preferred.get("preferredDiskCache"))',
        ),
        (
            "only disks on virtio get an I/O thread",
            'if disk["disk"].get("bus") == "virtio":',
            'if disk["disk"].get("bus") != "sata":',
        ),
        (
            "SR-IOV interfaces get the model, too",
            '    _fill(interface, "model", preferred.get("preferredInterfaceModel"))',
            '    _fill(interface, "model", None if "sriov" in interface else preferred.get("preferredInterfaceModel"))',
        ),
        ("masquerade is for the pod network", '    if "pod" in network:', "    if network:"),
        ("a binding plugin is a binding", '"passtBinding", "binding")', '"passtBinding")'),
        ("SMM", '    "preferredSmm": "smm",\n', ""),
        ("paravirtual spinlocks", '    "preferredPvspinlock": "pvspinlock",\n', ""),
        (
            "Hyper-V features are filled one by one",
            'for name, state in preferred["preferredHyperv"].items():',
            'for name, state in () if hyperv else preferred["preferredHyperv"].items():',
        ),
        (
            "an empty firmware preference leaves a bootloader",
            'domain.setdefault("firmware", {}).setdefault("bootloader", {})',
            'domain.setdefault("firmware", {}).get("bootloader", {})',
        ),
        (
            "the user's EFI blocks a preferred BIOS",
            'if preferred.get("preferredUseBios") and not bootloader.keys() & {"bios", "efi"}:',
            'if preferred.get("preferredUseBios") and "bios" not in bootloader:',
        ),
        (
            "a serial console of the user's BIOS",
            'preferred.get("preferredUseBiosSerial"))',
            'preferred.get("preferredUseBios") and preferred.get("preferredUseBiosSerial"))',
        ),
        (
            "preferredEfi ends the matter",
            '            bootloader["efi"] = copy_json(preferred["preferredEfi"])\n            return\n',
            '            bootloader["efi"] = copy_json(preferred["preferredEfi"])\n',
        ),
        (
            "preferredUseSecureBoot reaches the user's EFI",
            '    if "efi" in bootloader:\n',
            '    if "efi" in bootloader and "preferredEfi" not in preferred:\n',
        ),
        ("a time zone is a clock offset", '{"utc", "timezone"}:', '{"utc"}:'),
        (
            "timers are not merged",
            '    _fill(clock, "timer", preferred.get("preferredTimer"))',
            '    clock["timer"] = {**preferred.get("preferredTimer", {}), **clock.get("timer", {})}',
        ),
        ("the subdomain", '    _fill(spec, "subdomain", preference.get("preferredSubdomain"))\n', ""),
        (
            "a grace period of 0 is one",
            'preference.get("preferredTerminationGracePeriodSeconds"))',
            'preference.get("preferredTerminationGracePeriodSeconds") or None)',
        ),
        ("the user's annotations stay", "annotations.setdefault(key, value)", "annotations[key] = value"),
        (
            "launchSecurity",
            '    _fill(domain, "launchSecurity", preference.get("preferredLaunchSecurity"))\n',
            "",
        ),
        ("the storage class of storage", 'for kind in ("pvc", "storage"):', 'for kind in ("pvc",):'),
        (
            "the user's input type stays",
            'device["type"] = device.get("type") or preferred',
            'device["type"] = preferred',
        ),
        (
            "a panic device is made where there is none",
            'devices.get("panicDevices") or [{}]',
            'devices.get("panicDevices", [])',
        ),
    ],
)
REQUIREMENTS = of(
    "instancetype/preferences",
    [
        ("CPU is checked before memory", 'if failure is None and "memory" in required:', 'if "memory" in required:'),
        (
            "as many vCPUs as required suffice",
            "        if provided >= required:\n            return None\n        text",
            "        if provided > required:\n            return None\n        text",
        ),
        (
            "an empty architecture can be required",
            "if failure is None and wanted is not None and wanted",
            "if failure is None and wanted and wanted",
        ),
        ("vCPUs wrap around at 32 bits", "for part in parts) % 2**32", "for part in parts)"),
        (
            "fields in the order of the spread",
            '    SOCKETS_CORES: ("sockets", "cores")',
            '    SOCKETS_CORES: ("cores", "sockets")',
        ),
        (
            "any topology: cores first",
            '("cores", "sockets", "threads"), "cores',
            '("sockets", "cores", "threads"), "cores',
        ),
        (
            "memory that the instancetype lacks is its fault",
            'source, field = "instance type", _INSTANCETYPE',
            'source = "instance type"',
        ),
        ("the reason of an unmet requirement", '"FieldValueNotFound"', '"FieldValueInvalid"'),
        (
            "exactly as much memory as required suffices",
            "if provided >= needed:",
            "if provided > needed:",
        ),
    ],
)
MUTANTS = [*INSTANCETYPE, *TOPOLOGY, *PREFERENCE, *REQUIREMENTS]
