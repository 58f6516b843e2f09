# The Airflow side: api-server, scheduler, dag-processor, triggerer, migration. No Spark, no Java.
# Built by `docker compose build` from the same pins as `make setup`. BASE: any Debian with Python 3.11.
ARG BASE=python:3.11.14-slim-bookworm

FROM ${BASE} AS installed
WORKDIR /opt/deltaworks
COPY bin/setup bin/
COPY requirements requirements/
COPY deltaworks/__init__.py deltaworks/errors.py deltaworks/java.py deltaworks/
COPY deltaworks/local/__init__.py deltaworks/local/install.py deltaworks/local/jars.py deltaworks/local/truststore.py deltaworks/local/
# Secrets, where given, are the machine's own: certificates (ca), pip's settings (pip). They are not in the image.
RUN --mount=type=cache,target=/root/.cache --mount=type=secret,id=ca --mount=type=secret,id=pip \
    set -eu; \
    export UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy; \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca SSL_CERT_FILE=/run/secrets/ca; fi; \
    if [ -s /run/secrets/pip ]; then export PIP_CONFIG_FILE=/run/secrets/pip; fi; \
    python3 bin/setup --only airflow; \
    rm -rf .venv/tools

FROM ${BASE}
RUN groupadd --gid 10001 deltaworks \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin deltaworks \
 && install -d -m 0711 -o 10001 -g 10001 /data
WORKDIR /opt/deltaworks
COPY --from=installed /opt/deltaworks/.venv .venv/
COPY deltaworks deltaworks/
RUN .venv/airflow/bin/python -m compileall -q deltaworks
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 DELTAWORKS_DATA=/data
USER 10001:10001
ENTRYPOINT ["/opt/deltaworks/.venv/airflow/bin/python", "-m", "deltaworks.local.container"]
