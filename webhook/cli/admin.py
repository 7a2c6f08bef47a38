"""Commands that print: manifests, settings, version."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from webhook.cli import write

_config_option = click.option(
    "--config", "config_file", type=click.Path(path_type=Path), help="The settings file; default: all defaults."
)


def _settings(config_file: Path | None) -> Any:
    from webhook.settings.file import default_settings, load

    return load(config_file) if config_file else default_settings()


@click.group()
def manifests() -> None:
    """Print what the cluster needs to call us, as YAML for `kubectl apply -f -`."""


@manifests.command()
@_config_option
@click.option("--url", default="", help="Call https://HOST:PORT instead of the settings' Service.")
def webhooks(config_file: Path | None, url: str) -> None:
    """The webhook configurations, without a caBundle: who serves the certificate writes it."""
    from webhook.cli.yamltext import dump
    from webhook.install.registration import RegistrationTarget, check_url, configurations

    if url:
        check_url(url)
    write.data(dump(configurations(_settings(config_file), RegistrationTarget(url=url))))


@click.group()
def audit() -> None:
    """Describe the audit lines."""


@audit.command("schema")
def audit_schema() -> None:
    """Print the JSON Schema of an audit line; docs/audit.md says the rest."""
    import json

    from webhook.admission.audit import schema as record_schema

    write.data(json.dumps(record_schema(), indent=2))


@click.group()
def config() -> None:
    """Show, check or describe the settings."""


@config.command()
@_config_option
def show(config_file: Path | None) -> None:
    """Print the settings as they are in effect, defaults filled in."""
    from webhook.cli.yamltext import dump
    from webhook.settings.file import effective

    write.data(dump([effective(config_file)]))


@config.command()
def schema() -> None:
    """Print the JSON Schema of the settings file, for editors and linters."""
    import json

    from webhook.settings.file import schema as settings_schema

    write.data(json.dumps(settings_schema(), indent=2))


@config.command()
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Check a settings FILE; every mistake at once, exit status 2 if there is one."""
    from webhook.settings.file import load

    settings = load(file)
    names = ", ".join(sorted(settings.scheduling.schedulers)) or "none"
    write.line(f"{file}: correct; schedulers: {names}")


@click.command()
def version() -> None:
    """Print the version, and what it runs on."""
    from webhook import __version__

    write.line(f"kubevirt-webhook {__version__}")
    write.line(f"Python {sys.version.split()[0]}")
