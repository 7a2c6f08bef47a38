# An image index, for all platforms. `make base-image` renews the digest: one digest never gets Debian's fixes.
ARG BASE=python:3.13-slim-bookworm@sha256:cbd229d7b9bd041012af758ce5ffd807a6518d76493ce9035d208f1db9ceff1e

# Build: wheels for every locked dependency, checked against its hash, and the project's own. No compiler: all of them are wheels.
# The lock names all that is installed (`--no-deps`), also where a package asks for more, which no command imports.
FROM ${BASE} AS build
WORKDIR /src
COPY requirements-image.lock requirements-traces.lock requirements-build.lock ./
# Anything but empty: with OpenTelemetry, for the setting `traces`.
ARG TRACES=
# A package index other than pip's own; hashes are checked all the same.
ARG PIP_INDEX_URL
RUN python -m venv /app \
 && /app/bin/pip install --no-cache-dir --no-compile --no-deps --only-binary :all: --require-hashes -r requirements-image.lock \
    ${TRACES:+--require-hashes -r requirements-traces.lock}
RUN python -m venv /build \
 && /build/bin/pip install --no-cache-dir --only-binary :all: --require-hashes -r requirements-build.lock
COPY hack/image/assemble.py ./hack/image/
# The interpreter with its libraries, and the dependencies, each as a tree that becomes a layer.
RUN python hack/image/assemble.py /layers/interpreter /app \
 && mkdir -p /layers/dependencies /layers/program \
 && cp -a /app /layers/dependencies/ \
 && cd /layers/dependencies/app && rm -rf bin/pip* bin/[Aa]ctivate* include lib/python*/site-packages/pip lib/python*/site-packages/pip-* \
 && python /src/hack/image/assemble.py --compile /layers/dependencies
COPY . .
RUN /build/bin/python -m hatchling build -t wheel \
 && /app/bin/pip install --no-cache-dir --no-compile --no-deps --no-index --prefix /layers/program/app dist/*.whl \
 && python hack/image/assemble.py --compile /layers/program
# The layers as one image have all that the program imports.
RUN mkdir /whole && cp -a /layers/*/. /whole/ \
 && chroot /whole /app/bin/python -I -c 'import certs, importlib, pkgutil, webhook; \
    [importlib.import_module(each.name) for package in (certs, webhook) \
     for each in pkgutil.walk_packages(package.__path__, package.__name__ + ".") if each.name != "webhook.__main__"]' \
 && rm -rf /whole

# Run: the interpreter, its libraries and the environment; no shell, no package manager, no root. Layers that change less
# often come first.
FROM scratch
ARG VERSION=unknown
ARG REVISION=unknown
ARG BASE
LABEL org.opencontainers.image.title="kubevirt-webhook" \
      org.opencontainers.image.description="Admission webhooks that place KubeVirt virtual machines where they should run" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
COPY --from=build /layers/interpreter/ /
COPY --from=build /layers/dependencies/ /
COPY --from=build /layers/program/ /
USER 65532:65532
ENV PATH=/app/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
EXPOSE 8443 8080
ENTRYPOINT ["/app/bin/kubevirt-webhook"]
CMD ["serve"]
