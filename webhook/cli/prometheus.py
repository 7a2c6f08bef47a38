"""What pods have used in the last hour, from a Prometheus that collects the metrics of kubelets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from webhook.errors import InputError, quote
from webhook.forecast.usage import PodMetrics
from webhook.k8s.client.api import UNDECODABLE
from webhook.k8s.types.meta import View
from webhook.placement.nodes import CPU, MEMORY

if TYPE_CHECKING:
    import aiohttp

PROMETHEUS: Final = "Prometheus, the last hour"
# By resource; cAdvisor's metrics, which kubelets serve.
QUERIES: Final = {
    CPU: 'sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{container!=""}[1h]))',
    MEMORY: 'sum by (namespace, pod) (avg_over_time(container_memory_working_set_bytes{container!=""}[1h]))',
}
# Of one answer, whole; that of 100,000 pods has some 20 MiB.
_SECONDS: Final = 30.0
_MOST_BYTES: Final = 64 * 1024 * 1024


class _Series(View, frozen=True):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(View, frozen=True):
    result: tuple[_Series, ...] = ()


class _Answer(View, frozen=True):
    """The answer of /api/v1/query to an instant query that is a vector."""

    status: str
    data: _Data = _Data()


def pod_metrics(url: str) -> tuple[PodMetrics, ...]:
    """The pods with what they used, as metrics.k8s.io would have it.

    Raises:
        InputError: the URL is none, or whatever answers there is no Prometheus, or cannot be reached.
    """
    parts = _split(url)
    # Without a login.
    where = f"--prometheus {parts._replace(netloc=parts.netloc.rpartition('@')[2]).geturl()}"
    usage: dict[tuple[str, str], dict[str, str]] = {}
    for resource, answer in zip(QUERIES, asyncio.run(_ask(parts, where)), strict=True):
        try:
            found = msgspec.json.decode(answer, type=_Answer)
            for series in found.data.result:
                pod = series.metric.get("namespace", ""), series.metric.get("pod", "")
                # Of CPUs, a number such as 1.2e-05; quantities have no such exponents for all sizes.
                usage.setdefault(pod, {})[resource] = f"{float(series.value[1]):.9f}"
        except (*UNDECODABLE, ValueError):
            what = "what answers is no Prometheus: its answer cannot be decoded"
            raise InputError(what, where, "correct the URL") from None
        if found.status != "success":
            raise InputError(f"Prometheus answers {quote(found.status)}", where, "correct the URL")
    pods = [
        {"metadata": {"namespace": namespace, "name": name}, "containers": [{"usage": used}]}
        for (namespace, name), used in usage.items()
    ]
    return tuple(msgspec.convert(pods, list[PodMetrics]))


def _split(url: str) -> SplitResult:
    fix = "use for example http://localhost:9090"
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_url = False
    if not is_url:
        raise InputError(f"{quote(url)} is not a URL", "--prometheus", fix)
    if parts.query or parts.fragment:
        raise InputError(f"{quote(url)} has more than a path", "--prometheus", fix)
    return parts


async def _ask(parts: SplitResult, where: str) -> list[bytes]:
    """The answers to all queries."""
    # Loaded only where a Prometheus is asked.
    import aiohttp

    asked = parts._replace(path=f"{parts.path.rstrip('/')}/api/v1/query").geturl()
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout, trust_env=True, raise_for_status=True) as session:
            return [await _get(session, asked, query, where) for query in QUERIES.values()]
    except aiohttp.ClientConnectorCertificateError as error:
        why = getattr(error.certificate_error, "verify_message", "") or "unknown"
        what = f"its certificate cannot be verified ({why})"
        raise InputError(what, where, "let SSL_CERT_FILE name a file with the certificate of its CA") from None
    except aiohttp.ClientResponseError as error:
        raise InputError(f"no answer of Prometheus: {error.status} {error.message}", where, "correct the URL") from None
    except TimeoutError:
        what = f"Prometheus does not answer within {_SECONDS:g}s"
        raise InputError(what, where, "correct the URL, or try again") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise InputError(f"no answer of Prometheus: {error}", where, "correct the URL") from None


async def _get(session: aiohttp.ClientSession, asked: str, query: str, where: str) -> bytes:
    async with session.get(asked, params={"query": query}) as response:
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > _MOST_BYTES:
                what = f"the answer has more than {_MOST_BYTES // 2**20} MiB"
                raise InputError(what, where, "correct the URL, or use --by usage")
        return bytes(body)
