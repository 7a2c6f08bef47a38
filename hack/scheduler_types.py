"""``python -m hack.scheduler_types``: the Go types of kube-scheduler's configuration, for ``scheduler lint``.

They are those of the newest Kubernetes in ``hack/controlplane``, and the arguments of scheduler-plugins. Of types that
both have, Kubernetes' count.
"""

from __future__ import annotations

import json
from typing import Any

from hack.controlplane.bundles import CONTROL_PLANE, SCHEDULER_PLUGINS
from hack.go_types import printed
from webhook.install.schedulers.go_types import FILE


def written(kubernetes: Any, plugins: Any, versions: dict[str, str]) -> str:
    """The content of the file, a struct on a line, of what was printed of both."""
    kinds, structs = ({**plugins[part], **kubernetes[part]} for part in ("kinds", "structs"))
    head = json.dumps({"versions": versions, "kinds": dict(sorted(kinds.items()))}).removesuffix("}")
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(structs[name])}" for name in sorted(structs))
    return f'{head}, "structs": {{\n{lines}\n}}}}\n'


def main() -> None:
    """Write the file."""
    kubernetes, plugins = CONTROL_PLANE.parts[0], SCHEDULER_PLUGINS.parts[0]
    own = json.loads(printed(kubernetes, "registered", "scheduler"))
    others = json.loads(printed(plugins, "registered", "scheduler_plugins"))
    FILE.write_text(written(own, others, {part.requires: part.version for part in (kubernetes, plugins)}))


if __name__ == "__main__":
    main()
