"""Mutants of KubeVirt's defaults, of the VMI's making and of quantities."""

from __future__ import annotations

from tests.mutants.mutant import of

DEFAULTS = of(
    "defaults",
    [
        ("a filesystem is a volume's device, too", 'for kind in ("disks", "filesystems")', 'for kind in ("disks",)'),
        (
            "a volume that is there twice gets two disks",
            'for volume in volumes if volume["name"] not in names]',
            'for volume in volumes if volume["name"] not in names and not names.add(volume["name"])]',
        ),
        (
            "a declined interface isn't added",
            'if devices.get("autoattachPodInterface") is False or spec',
            "if spec",
        ),
        (
            "a network alone is enough to add nothing",
            'spec.get("networks") or devices.get("interfaces"):',
            'devices.get("interfaces"):',
        ),
        (
            "a forbidden bridge forbids no masquerade",
            'if kind == "bridge" and not configuration.permit_bridge:',
            "if not configuration.permit_bridge:",
        ),
        ("slirp is refused", '    if kind == "slirp":', '    if kind == "passt":'),
        (
            "an input device of the user's is enough",
            'if devices.get("autoattachInputDevice") and not devices.get("inputs"):',
            'if devices.get("autoattachInputDevice"):',
        ),
        (
            "a CPU request of the user's stays",
            'if _amount(resources, "limits", "cpu") and not _amount(resources, "requests", "cpu"):',
            'if _amount(resources, "limits", "cpu"):',
        ),
        (
            "dedicated CPUs get no default request",
            "if configuration.requests_cpu and not dedicated and",
            "if configuration.requests_cpu and",
        ),
        (
            "memory follows the request before the limit",
            'for kind in ("requests", "limits"):\n        if _amount',
            'for kind in ("limits", "requests"):\n        if _amount',
        ),
        (
            "memory follows the huge pages at last",
            'str(quantity.parse(memory.get("hugepages", {}).get("pageSize", "")))',
            'str(quantity.parse(""))',
        ),
        (
            "a topology that is set in part is left alone",
            "    if any(cpu.get(name) for",
            "    if all(cpu.get(name) for",
        ),
        (
            "sockets follow the limit before the request",
            '(_amount(resources, "limits", "cpu"), _amount(resources, "requests", "cpu"))',
            '(_amount(resources, "requests", "cpu"), _amount(resources, "limits", "cpu"))',
        ),
        ("an image with a digest isn't pulled always", 'set(":@")', 'set(":")'),
        ("the tag latest is pulled always", 'image.endswith(":latest") or not', "not"),
        (
            "an eviction strategy of the user's stays",
            'if spec.setdefault("evictionStrategy", configuration.eviction_strategy) is not None:',
            "if spec.update(evictionStrategy=configuration.eviction_strategy) is None:",
        ),
        (
            "the machine type is the architecture's",
            'configuration.machine_type(spec["architecture"])',
            "configuration.machine_type(configuration.default_architecture)",
        ),
    ],
)
VMI = of(
    "vm/controller",
    [
        ("default disks come before the preference", "    defaults.disks(spec)\n", ""),
        (
            "preferences about automatic devices come early",
            'preferences.autoattach(None if found_preference is None else found_preference["spec"], spec)',
            "preferences.autoattach(None, spec)",
        ),
        ("the automatic input device comes before the preference", "    defaults.input_device(spec)\n", ""),
        (
            "the default interface comes before the preference",
            "    defaults.network_interface(spec, configuration)\n",
            "",
        ),
        ("the UUID follows from the name", "6a1a24a1-4061", "6a1a24a1-4062"),
        (
            "a VM that is to start paused does",
            '== "true":\n            spec["startStrategy"]',
            '== "false":\n            spec["startStrategy"]',
        ),
        (
            "a completed memory dump's volume goes",
            'dump.get("phase") not in ("Associating", "InProgress"):',
            'dump.get("phase") in ("Associating", "InProgress"):',
        ),
    ],
)
VMI_DEFAULTS = of(
    "webhooks",
    [
        (
            "s390x has no ACPI",
            '.setdefault("acpi", {}).setdefault("enabled", False)',
            '.setdefault("acpi", {}).setdefault("enabled", True)',
        ),
        ("a probe's zeros are no values", "if spec[probe].get(name, 0) < 1:", "if spec[probe].get(name, 1) < 1:"),
        ("the readiness probe, too", '("livenessProbe", "readinessProbe")', '("livenessProbe",)'),
        ("the Hyper-V timer is present", '"rtc", "hyperv")', '"rtc")'),
        ("CD-ROMs are read-only", 'setdefault("readonly", True)', 'setdefault("readonly", False)'),
        ("CD-ROM trays are closed", '.get("tray") or "closed"', '.get("tray") or "open"'),
        (
            "arm64: the host's own CPU",
            'domain["cpu"].get("model") or "host-passthrough"',
            'domain["cpu"].get("model") or "host-model"',
        ),
        ("arm64 boots by EFI", 'setdefault("bootloader", {"efi": {}})', 'setdefault("bootloader", {})'),
        ("arm64: no secure boot", 'setdefault("secureBoot", False)', 'setdefault("secureBoot", True)'),
        ("s390x: disks on virtio", "architecture not in (ARM64, S390X) else", "architecture != ARM64 else"),
        ("s390x has a watchdog of its own", '"diag288" if architecture == S390X', '"diag288" if architecture == ARM64'),
        (
            "arm64 has no watchdog default",
            "if watchdog is not None and architecture != ARM64:",
            "if watchdog is not None:",
        ),
        (
            "arm64 can't grow",
            "    if architecture != ARM64 and configuration.live_update:",
            "    if configuration.live_update:",
        ),
        (
            "growing can be switched off",
            "architecture != ARM64 and configuration.live_update:",
            "architecture != ARM64:",
        ),
        (
            "the launcher isn't root",
            '    if not configuration.is_gate_open("Root"):',
            '    if configuration.is_gate_open("Root"):',
        ),
        ("machine types that start with virt have PCIe", 'kind.startswith("virt")', 'kind == "virt"'),
        ("s390x has no PCIe", '("", AMD64, ARM64)', '("", AMD64, ARM64, S390X)'),
        (
            "a PCI topology of the user's stays",
            ".setdefault(PCI_TOPOLOGY_ANNOTATION, _PCI_TOPOLOGY)",
            ".update({PCI_TOPOLOGY_ANNOTATION: _PCI_TOPOLOGY})",
        ),
        ("input devices are tablets", 'device.get("type") or "tablet"', 'device.get("type") or "keyboard"'),
        (
            "even parity is only for a gate",
            'configuration.even_parity and configuration.is_gate_open("AlignCPUs")',
            "configuration.even_parity",
        ),
        ("the status tells the guest's memory", "    if guest is not None:\n", "    if guest is None:\n"),
    ],
)
FEATURES = of(
    "defaults",
    [
        ("spinlocks try 4096 times", "_SPINLOCK_RETRIES: Final = 4096", "_SPINLOCK_RETRIES: Final = 4095"),
        ("synic needs vpindex", '    ("synic", "vpindex"),\n', ""),
        ("evmcs needs vapic", '    ("evmcs", "vapic"),\n', ""),
        (
            "dependencies have an order",
            '    ("synictimer", "synic"),\n    ("synic", "vpindex"),',
            '    ("synic", "vpindex"),\n    ("synictimer", "synic"),',
        ),
        (
            "a disabled dependency ends the matter, vmx included",
            "is False:\n            return",
            "is False:\n            break",
        ),
        (
            "vmx is required, whatever the user says of it",
            'feature["policy"] = "require"\n',
            'feature.setdefault("policy", "require")\n',
        ),
        ("ACPI is always there", '[features.setdefault("acpi", {})]', '[features.get("acpi", {})]'),
    ],
)
HOTPLUG = of(
    "defaults",
    [
        (
            "the cluster's maximum gives way to more sockets",
            "max(configuration.max_cpu_sockets, sockets)",
            "configuration.max_cpu_sockets",
        ),
        ("512 vCPUs are the most", "_MAX_VCPUS: Final = 512", "_MAX_VCPUS: Final = 256"),
        ("never fewer than it starts with", "max(_MAX_VCPUS // siblings, sockets)", "_MAX_VCPUS // siblings"),
        ("1Gi is enough to grow", "guest.value >= _GIB", "guest.value > _GIB"),
        (
            "the most must be aligned, too",
            "guest.value % block == 0 and most.value % block == 0",
            "guest.value % block == 0",
        ),
        ("huge pages of 1Gi align at 1Gi", 'block = _GIB if page == "1Gi" else', 'block = _GIB if page == "2Gi" else'),
        ("realtime can't grow", 'if "realtime" in cpu or ', "if "),
        ("launchSecurity can't grow", ' or "launchSecurity" in domain:', ":"),
        (
            "the most is written in binary",
            "configuration.max_hotplug_ratio), Format.BINARY_SI)",
            "configuration.max_hotplug_ratio), guest.format)",
        ),
        ("the most is no less than the start", "and guest <= most", ""),
    ],
)
QUANTITY = of(
    "quantity",
    [
        (
            "overcommit is computed in float32",
            "share = _float32(1 - _float32(_float32(percent) / 100))",
            "share = 1 - percent / 100",
        ),
        ("overcommit is cut off", "int(_float32(_float32(guest.value) * share))", "round(guest.value * share)"),
        ("overcommit keeps the format", "-_MAX - 1, guest.format)", "-_MAX - 1, Format.BINARY_SI)"),
        ("overcommit fits an int64", "asked if int64(asked) == asked else -_MAX - 1", "asked"),
        (
            "parts of a unit are rounded up",
            "        size = -(-abs(self.nanos) // _NANO)",
            "        size = abs(self.nanos) // _NANO",
        ),
        ("texts that look canonical stay", 'text if kept else "", scale)', '"", scale)'),
        ("what doesn't fit is given up", " if self._scale in _WRAPPING or int64(whole) == whole else 0", ""),
        ("what is multiplied at once wraps around", "self._scale in _WRAPPING or ", ""),
        ("a long negative one is rounded up", " + (held % _NANO > 0)", " - (held % _NANO > 0)"),
        ("a long one wraps around first", "    held = int64(nanos)", "    held = nanos"),
        ("a capped one is held as an int64", "_MAX * _NANO, 0", "_MAX * _NANO, None"),
        ("beyond E there is no suffix", "_DECIMAL_SUFFIX.get(exponent, '')", "_DECIMAL_SUFFIX.get(exponent, 'E')"),
        ("the least int64 has no suffix", "    if value == -_MAX - 1:", "    if not value:"),
        (
            "a quantity has a digit",
            "        if not any(character.isdigit() for character in text[: match.start(4)]):",
            "        if not text:",
        ),
        ("what is finer than nano is rounded up", "    nanos += rest > 0\n", ""),
        ("small numbers are written as decimals", "not -1024 < whole < 1024", "whole"),
        ("binary suffixes go up to Ei only", "and exponent < max(_BINARY_SUFFIX)", "and exponent < 50"),
    ],
    package="webhook/k8s",
)
CONFIGURATION = of(
    "config",
    [
        ("an invalid configuration is ignored as a whole", "        if not _has_valid_numbers(given) or", "        if"),
        (
            "the old machineType counts first",
            'legacy or configured.get(name, {}).get("machineType")',
            'configured.get(name, {}).get("machineType") or legacy',
        ),
        (
            "KubeVirt must have been deployed",
            "if kubevirt.is_in_use and kubevirt.spec else None",
            "if kubevirt.spec else None",
        ),
        ("unknown architectures get amd64's machine", "or self.machine_types[AMD64]", "or self.machine_types[ARM64]"),
        ("the default CPU request isn't written", "return self.cpu_request != _CPU_REQUEST", "return True"),
        (
            "a rollout strategy other than LiveUpdate",
            '"vmRolloutStrategy", "LiveUpdate") == "LiveUpdate"',
            '"vmRolloutStrategy", "LiveUpdate") != ""',
        ),
    ],
)
MUTANTS = [*DEFAULTS, *VMI, *VMI_DEFAULTS, *FEATURES, *HOTPLUG, *QUANTITY, *CONFIGURATION]
