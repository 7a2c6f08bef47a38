"""`kubevirt-webhook explain reason`: what a reason code means, and what to do about it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import msgspec

from webhook.admission.reasons import MEANINGS, Meaning, similar
from webhook.cli import write
from webhook.cli.options import output_option
from webhook.cli.paragraphs import Paragraph, print_paragraphs
from webhook.errors import InputError, quote

_WHAT = {
    "changed": "kubevirt-webhook changed the object",
    "denied": "the request was denied",
    "allowed": "the request was allowed",
    "skipped": "the request was left alone",
    "failed": "the request could not be evaluated",
}


@click.command()
@click.argument("code", required=False)
@output_option("text", "json")
def reason(code: str | None, output: str) -> None:
    """Explain a reason CODE, the word in brackets that ends a denial or warning.

    Without a code, list all codes. Exit status 2 if the code does not exist.
    """
    if code is None:
        _list(output)
        return
    code = code.strip().strip("[]")
    meaning = MEANINGS.get(code)
    if meaning is None:
        near = similar(code)
        fix = f"did you mean {' or '.join(near)}?" if near else "list the codes with `kubevirt-webhook explain reason`"
        raise InputError(f"reason code {quote(code)} does not exist", fix=fix)
    if output == "json":
        write.data(json.dumps(_as_json(code, meaning), indent=2))
    else:
        print_paragraphs(_paragraphs(code, meaning))


def _list(output: str) -> None:
    if output == "json":
        write.data(json.dumps([_as_json(code, meaning) for code, meaning in MEANINGS.items()], indent=2))
        return
    width = max(map(len, MEANINGS))
    for code, meaning in sorted(MEANINGS.items()):
        write.data(f"{code:{width}}  {', '.join(meaning.policies) if len(meaning.policies) < 4 else 'any policy'}")


def _as_json(code: str, meaning: Meaning) -> dict[str, object]:
    return {"code": code, **msgspec.to_builtins(meaning)}


def _paragraphs(code: str, meaning: Meaning) -> Iterator[Paragraph]:
    yield Paragraph(f"{code} ({', '.join(meaning.policies)}): {_WHAT[meaning.kind]}", "bold")
    yield Paragraph()
    yield Paragraph(meaning.meaning)
    if meaning.remedy:
        yield Paragraph()
        yield Paragraph(f"What to do: {meaning.remedy}")
