"""`kubevirt-webhook serve`: answer admission requests; `runtime` is what runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command()
@click.option("--cluster-from", type=click.Path(path_type=Path), metavar="DIR", help="Take facts from YAML files.")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Take facts from a cluster; in a pod by default from its own.",
)
@click.option("--config", "config_file", type=click.Path(path_type=Path), metavar="FILE", help="The settings file.")
@click.option("--listen", metavar="HOST:PORT", help="Where the API server calls us (TLS).")
@click.option("--ops-listen", metavar="HOST:PORT", help="Where health and metrics are (plain HTTP).")
@click.option(
    "--tls",
    "tls_mode",
    type=click.Choice(["managed", "mounted", "self-signed"]),
    help="Where the serving certificate comes from.",
)
@click.option("--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="Serving certificate, PEM.")
@click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Its private key, PEM.")
@click.option(
    "--client-ca", type=click.Path(path_type=Path), metavar="FILE", help="CA of the API server's client certificate."
)
@click.option("--client-name", "client_names", multiple=True, metavar="NAME", help="Its common name; may be repeated.")
@click.option("--url", metavar="URL", help="Under which the API server reaches us: https://HOST:PORT.")
@click.option("--register", is_flag=True, help="Create webhook configurations for --url and delete them at the end.")
@click.option(
    "--register-as", default="local", show_default=True, metavar="NAME", help="What tells them from others' by name."
)
def serve(**options: Any) -> None:
    """Answer admission requests until SIGTERM or SIGINT.

    Without --tls and --tls-cert a self-signed pair is made, for local use. Audit lines go to standard output, logs to
    standard error.
    """
    import asyncio

    import uvloop

    from webhook.runtime.options import Options
    from webhook.runtime.serve import run

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(Options(**options)))
