"""`kubevirt-webhook serve`: answers admission requests; `webhook.server.runtime` is the server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from webhook.cli.options import CLUSTER_FROM, PATH, config_option, kubeconfig_option, url_option
from webhook.errors import InputError

_TLS: Final = ("managed", "mounted", "self-signed")
_CLIENT_NAME: Final = "Common name of the client certificate; may be repeated."


def _refuse_page_listen(_context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise InputError("the option is --admin-listen now", "--page-listen", f"use --admin-listen {value}")


@click.command()
@CLUSTER_FROM
@kubeconfig_option("as kubectl; in a pod without a kubeconfig, its service account")
@config_option("the built-in defaults")
@click.option("--listen", metavar="HOST:PORT", help="Address for admission requests (TLS).")
@click.option("--ops-listen", metavar="HOST:PORT", help="Address for health checks and metrics (plain HTTP).")
@click.option("--admin-listen", metavar="HOST:PORT", help="Address of the page and of explanations (off by default).")
@click.option("--page-listen", hidden=True, expose_value=False, callback=_refuse_page_listen)
@click.option("--tls", "tls_mode", type=click.Choice(_TLS), help="Source of the serving certificate.")
@click.option("--tls-cert", type=PATH, metavar="FILE", help="Serving certificate (PEM).")
@click.option("--tls-key", type=PATH, metavar="FILE", help="Private key of the serving certificate (PEM).")
@click.option("--client-ca", type=PATH, metavar="FILE", help="CA of the API server's client certificate.")
@click.option("--client-name", "client_names", multiple=True, metavar="NAME", help=_CLIENT_NAME)
@url_option("Let the API server call URL instead of the settings' Service.")
@click.option(
    "--register", is_flag=True, help="Create webhook configurations for --url, and delete them when the server stops."
)
@click.option(
    "--register-as", default="local", show_default=True, metavar="NAME", help="Suffix of the configurations' names."
)
def serve(**options: Any) -> None:
    """Answer admission requests until SIGTERM or SIGINT.

    Without --tls and --tls-cert, the server uses a self-signed certificate, for local tests. Audit lines go to standard
    output, logs to standard error.
    """
    import asyncio

    import uvloop

    with without_system_authorities():
        from webhook.server.runtime import logs
        from webhook.server.runtime.options import Options
        from webhook.server.runtime.serve import run

    with logs.configured(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(Options(**options)))


@contextmanager
def without_system_authorities() -> Iterator[None]:
    """Import aiohttp without the system's CAs.

    It reads them twice while it is imported, for connections that name no CAs: an eighth of a server's start, and 2 MB
    as long as it runs. The server names the CAs of each connection, and one that does not would accept no server.
    """
    # What OpenSSL reads the system's CAs from, in place of its own paths.
    variables = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    before = {name: os.environ[name] for name in variables if name in os.environ}
    os.environ.update(dict.fromkeys(variables, os.devnull))
    try:
        import aiohttp  # noqa: F401 - the client of API servers and registries

        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update(before)
