"""The program without one policy: ``python -m tests.policies.without eviction serve ...``.

Without a command it reads several as JSON, and prints what each ended with. ``page messages`` and ``page settings`` are
the pages of docs/ that are made from the code.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from click.testing import CliRunner

from webhook.policies import registry


def remove(name: str) -> None:
    """Take a policy out of the registry, before any other module has read it."""
    assert "webhook.settings_file" not in sys.modules
    left = tuple(policy for policy in registry.POLICIES if policy.name != name)
    assert len(left) == len(registry.POLICIES) - 1
    endpoints = registry.endpoints_of(left)
    vars(registry).update(
        POLICIES=left,
        BY_NAME={policy.name: policy for policy in left},
        ENDPOINTS=endpoints,
        BY_PATH={endpoint.path: endpoint for endpoint in endpoints},
    )


def ended(arguments: list[str]) -> dict[str, Any]:
    """What a command ended with."""
    from hack import messages
    from hack.reference import settings
    from webhook.cli.main import main

    if arguments[0] == "page":
        pages = {"messages": messages.render, "settings": settings.page}
        return {"code": 0, "output": pages[arguments[1]](), "error": ""}
    result = CliRunner().invoke(main, arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return {"code": result.exit_code, "output": result.stdout, "error": result.stderr}


if __name__ == "__main__":
    _, removed, *command = sys.argv
    remove(removed)
    if command:
        from webhook.cli.main import main

        main(command)
    print(json.dumps([ended(each) for each in json.load(sys.stdin)]))
