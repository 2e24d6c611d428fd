# The worker image: the locked runtime packages, the application and git, run by an unprivileged user.
ARG PYTHON_IMAGE=python:3.12-slim-trixie@sha256:f77ac9e44ae96ef2c90b8053ea08c31f8be030f824196b0ae4db6d462c84e51f

FROM ${PYTHON_IMAGE} AS packages
COPY requirements/runtime.lock /tmp/runtime.lock
# Wheels only: nothing is compiled, so the image needs no compiler, and the build runs no third-party code.
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m venv /opt/venv \
    && /opt/venv/bin/pip install --disable-pip-version-check --only-binary :all: --require-hashes \
        -r /tmp/runtime.lock

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="holdfast-worker" \
      org.opencontainers.image.description="A durable agent runtime on Temporal" \
      org.opencontainers.image.licenses="Apache-2.0"

# git: tools and the workspace memory commit with it. bubblewrap: confines commands, if the container may create
# namespaces. The versions follow the base image's release.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap git \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 holdfast \
    && install --directory --mode 0700 --owner holdfast --group holdfast /workspaces /var/lib/holdfast

COPY --from=packages /opt/venv /opt/venv
WORKDIR /app
COPY LICENSE worker.py starter.py gateway.py ./
COPY holdfast holdfast
COPY workflows workflows
COPY activities activities
COPY examples examples
RUN /opt/venv/bin/python -m compileall -q .

ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOLDFAST_HOME=/var/lib/holdfast \
    HOLDFAST_LOG_FORMAT=json
# By number, so that Kubernetes can verify that it is not root.
USER 10001
VOLUME ["/workspaces", "/var/lib/holdfast"]

# A dead worker ends the container. The health check covers the other failure: no connection to Temporal.
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s CMD ["python", "-c", \
    "import os, socket; host, _, port = os.environ.get('TEMPORAL_ADDRESS', 'localhost:7233').rpartition(':'); socket.create_connection((host, int(port)), 3).close()"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["python", "worker.py"]
