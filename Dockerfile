# One image for all servers, each started by its name: `python -m webhook`, `python -m scorer`.
#   docker build -t linkwise:0.1.0 .
# BASE may name a mirror or a hardened image of Linux with glibc and Python 3.11 or later. It is named
# by digest, so that every build starts from the same bytes; docs/operations/install.md says how to renew it.
ARG BASE=python:3.11.16-slim-trixie@sha256:be1575ed968de893bd54f4c56315ff7c4736ce522c1bca08fd521731aafc0d76
# An image that has pip, too, where BASE has none; of the same Python.
ARG BUILD=${BASE}

FROM ${BUILD} AS build
COPY requirements/image.txt /build/
RUN python -m pip install --no-cache-dir --no-compile --no-deps --only-binary=:all: \
    --require-hashes --target=/opt/linkwise --requirement=/build/image.txt
# The processes, and of the package what they import: the page of the dashboard, too.
COPY linkwise /opt/linkwise/linkwise
COPY webhook /opt/linkwise/webhook
COPY scorer /opt/linkwise/scorer
COPY certs /opt/linkwise/certs
COPY agent /opt/linkwise/agent
COPY dashboard /opt/linkwise/dashboard
COPY LICENSE /opt/linkwise/
# It cannot be compiled later, on a read-only root; unchecked, since no file changes.
RUN python -m compileall -q --invalidation-mode=unchecked-hash /opt/linkwise

FROM ${BASE}
ENV PYTHONPATH=/opt/linkwise PYTHONSAFEPATH=1
# aiohttp's client reads this file of all public authorities at each start (50 ms), and the API server
# is trusted by the cluster's own CA. Those in SSL_CERT_DIR are still found, each when it is needed.
ENV SSL_CERT_FILE=/dev/null
COPY --from=build /opt/linkwise /opt/linkwise
# What does not start is no image. It compiles the part of the standard library that is used, too,
# which base images leave out and which each start would compile again.
RUN python -c "import agent.__main__, certs.__main__, dashboard.__main__, scorer.__main__, scorer.withdraw.__main__, webhook.__main__, webhook.selftest.__main__"
ENV PYTHONDONTWRITEBYTECODE=1
WORKDIR /
USER 65532:65532
