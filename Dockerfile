# Build: wheels for every locked dependency, checked against its hash, and our own.
FROM python:3.13-slim AS build
WORKDIR /src
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY requirements.lock requirements-dev.lock ./
RUN python -m venv /app && /app/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
RUN python -m venv /build && /build/bin/pip install --no-cache-dir --require-hashes -r requirements-dev.lock
COPY . .
RUN /build/bin/python -m hatchling build -t wheel && /app/bin/pip install --no-cache-dir --no-deps dist/*.whl \
 && /app/bin/pip uninstall --yes pip

# Run: the interpreter and the environment; no compiler, no root.
FROM python:3.13-slim
COPY --from=build /app /app
USER 65532:65532
ENV PATH=/app/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
EXPOSE 8443 8080
ENTRYPOINT ["/app/bin/kubevirt-webhook"]
CMD ["serve"]
