"""Commands that print manifests, settings, schemas and the version."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from webhook.cli import write
from webhook.cli.options import PATH, CommandGroup, config_option, image_option, namespace_option, url_option

if TYPE_CHECKING:
    from webhook.install.plan import Overlay

_CONFIG = config_option("the built-in defaults")
_OVERLAY = click.Choice(["kubernetes", "openshift"])


def _settings(config_file: Path | None) -> Any:
    from webhook.settings_file import load

    return load(config_file)


def _say_defaults(config_file: Path | None) -> None:
    """Say on stderr that no file was given: what is made of the defaults can undo an installation's settings."""
    if config_file is None:
        write.line("settings: the built-in defaults; --config FILE takes those of a file", err=True)


@click.group(cls=CommandGroup)
def manifests() -> None:
    """Print objects that the cluster needs to call kubevirt-webhook, as YAML for `kubectl apply -f -`."""


@manifests.command()
@_CONFIG
@url_option("Call the server at URL instead of the settings' Service.")
def webhooks(config_file: Path | None, url: str) -> None:
    """Print the webhook configurations, without a caBundle: the issuer of the serving certificate sets it."""
    from webhook.install.registration import RegistrationTarget, check_url, configurations

    if url:
        check_url(url)
    _say_defaults(config_file)
    write.data(write.dump(configurations(_settings(config_file), RegistrationTarget(url=url))))


@manifests.command()
@_CONFIG
def policies(config_file: Path | None) -> None:
    """Print admission policies that need no server: what the API server can do of the policies by itself.

    They need Kubernetes 1.36 or newer. docs/admission-policies.md says what they cannot do.
    """
    from webhook.install import policies as rendered

    _say_defaults(config_file)
    write.data(write.dump(rendered.policies(_settings(config_file))))


@manifests.command()
@namespace_option("Namespace of the replicas.  [default: that of the settings]")
@click.option("--overlay", type=_OVERLAY, default="kubernetes", show_default=True, help="Manifests to print.")
@config_option("those of the overlay")
@image_option("Image of the replicas.", required=True)
def install(namespace: str | None, overlay: Overlay, config_file: Path | None, image: str) -> None:
    """Print all objects of an installation, as the command `install` makes them without asking a cluster."""
    from webhook.cli.data import directory
    from webhook.cli.installation import read_settings
    from webhook.install import plan
    from webhook.settings_file import parse

    own = plan.config_map(directory("manifests"), overlay)
    text, where = own["data"][plan.SETTINGS_KEY], plan.title(own)
    if config_file:
        text, where = read_settings(config_file), str(config_file)
    text = plan.settings_in(text, where, namespace or parse(text.encode(), where).webhooks.service.namespace)
    write.data(write.dump(plan.of(directory("manifests"), overlay, text, where, image).manifests))


@click.group(cls=CommandGroup)
def audit() -> None:
    """Describe the audit lines."""


@audit.command("schema")
def audit_schema() -> None:
    """Print the JSON Schema of an audit line. docs/audit.md describes the fields."""
    from webhook.admission.audit import schema as record_schema

    write.data(json.dumps(record_schema(), indent=2))


@click.group(cls=CommandGroup)
def config() -> None:
    """Show, check or describe the settings."""


@config.command()
@_CONFIG
def show(config_file: Path | None) -> None:
    """Print the settings of a file, with all defaults."""
    from webhook.settings_file import effective

    write.data(write.dump([effective(config_file)]))


@config.command()
def schema() -> None:
    """Print the JSON Schema of the settings file, for editors and linters."""
    from webhook.settings.validation import schema as settings_schema
    from webhook.settings_file import MODEL

    write.data(json.dumps(settings_schema(MODEL), indent=2))


@config.command()
@click.argument("file", type=PATH)
def check(file: Path) -> None:
    """Check a settings FILE. All errors are reported at once; exit status 2 if there are any."""
    names = ", ".join(sorted(_settings(file).schedulers)) or "none"
    write.line(f"{file}: valid; schedulers: {names}")


@click.command()
def version() -> None:
    """Print the versions of kubevirt-webhook and Python."""
    from webhook import __version__

    write.line(f"kubevirt-webhook {__version__}")
    write.line(f"Python {sys.version.split()[0]}")
