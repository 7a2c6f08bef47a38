"""The reference pages describe the code as it is, all of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import click

from hack import reference
from hack.reference import audit, commands, labels, markdown, metrics, settings
from webhook import names
from webhook.admission.audit import schema as audit_schema
from webhook.cli.main import main
from webhook.settings.file import effective

ROOT = Path(__file__).resolve().parents[2]


def test_the_pages_describe_the_code() -> None:
    assert reference.outdated() == [], "write them again: python -m hack.reference"


def test_every_command_and_option_is_there() -> None:
    page = commands.page()

    def check(context: click.Context) -> None:
        command = context.command
        assert context.parent is None or f"## {context.command_path}\n" in page
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert any(option in page for option in parameter.opts), (context.command_path, parameter.name)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner
                check(click.Context(inner, info_name=name, parent=context))

    check(click.Context(main, info_name=main.name, **main.context_settings))
    links = re.findall(r"\]\(#([^)]+)\)", page)
    titles = {title.replace(" ", "-") for title in re.findall(r"^## (.+)$", page, re.MULTILINE)}
    assert links
    assert set(links) <= titles


def test_every_setting_is_there_with_its_default() -> None:
    page = settings.page()

    def check(value: object, path: str) -> None:
        # What users name stands for itself.
        if isinstance(value, dict) and path != "schedulers":
            for key, inner in value.items():
                check(inner, f"{path}.{key}" if path else key)
        elif path != "schedulers":
            assert f"| `{path}` | " in page
            assert value is None or f" | {markdown.as_json(value)} | " in page, path

    check(effective(None), "")
    assert "| `schedulers.NAME.healthCheck` | " in page


def test_every_metric_is_there() -> None:
    page = metrics.page()
    sources = "\n".join(file.read_text() for file in (ROOT / "webhook").rglob("*.py"))
    named = set(re.findall(r'"(kubevirt_webhook_[a-z_]+)"', sources))

    listed = set(re.findall(r"^\| `(kubevirt_webhook_[a-z_]+)` \|", page, re.MULTILINE))
    assert {name.removesuffix("_total") for name in named} == {name.removesuffix("_total") for name in listed}
    # The handwritten list, with the values of labels, has the same.
    monitoring = (ROOT / "docs" / "monitoring.md").read_text()
    assert {name for name in listed if f"`{name}`" not in monitoring} == set()


# Formats, groups and places that begin as labels do.
NOT_KEYS = {"admission", "runbooks", "v1"}


def test_every_label_and_annotation_is_there() -> None:
    sources = [*(ROOT / "webhook").rglob("*.py"), *(ROOT / "manifests").rglob("*.yaml")]
    text = "\n".join(file.read_text() for file in sources)
    named = re.findall(
        r"(?:\{(?:names\.)?DOMAIN\}|kubevirt-webhook\.github\.io)(?:/|~1)([a-z][a-z0-9-]*[a-z0-9])(?![\w/-])", text
    )
    listed = [key.name for key in (*labels.LABELS, *labels.PARAMETERS, *labels.RECORDS)]
    shown = {name.removeprefix(f"{names.DOMAIN}/") for name in listed}

    assert {value for value in vars(names).values() if str(value).startswith(f"{names.DOMAIN}/")} <= set(listed)
    assert set(named) - NOT_KEYS <= shown
    assert shown <= set(named) | set(get_args(names.Policy))
    assert {name for name in shown if f"| `{name}` | " not in labels.page()} == set()


def test_labels_and_annotations_of_namespaces_are_those_that_the_api_server_lets_in() -> None:
    policy = (ROOT / "manifests" / "base" / "validation.yaml").read_text()
    found = re.findall(r"\[('[a-z-]+'(?:,\s+'[a-z-]+')*)\]\.map\(name", policy)
    admitted = {name for each in found for name in re.findall(r"[a-z-]+", each)} | {"metrics"}
    keys = (*labels.LABELS, *labels.PARAMETERS)

    assert admitted == {key.name.rpartition("/")[2] for key in keys if key.where == "Namespace"}


def test_every_field_of_audit_lines_is_there() -> None:
    page = audit.page()

    for name, value in audit_schema()["$defs"].items():
        assert f"## {name}\n" in page
        assert all(f"| `{field}` | " in page for field in value.get("properties", {}))
