# The Spark side: drivers with the agent that starts them, command line, Kafka, Connect with Debezium, the steps, the shop.
# Built by `docker compose build` from the same pins and jars as `make setup`. BASE: any Debian with Python 3.11.
ARG BASE=python:3.11.14-slim-bookworm

FROM ${BASE} AS installed
WORKDIR /opt/deltaworks
COPY bin/setup bin/
COPY requirements requirements/
COPY deltaworks/__init__.py deltaworks/errors.py deltaworks/java.py deltaworks/
COPY deltaworks/local/__init__.py deltaworks/local/install.py deltaworks/local/jars.py deltaworks/local/truststore.py deltaworks/local/
# Secrets, where given, are the machine's own: certificates (ca), pip's settings (pip), Ivy's settings (ivy).
# They are not in the image. The tools that install are only of use here.
RUN --mount=type=cache,target=/root/.cache --mount=type=secret,id=ca --mount=type=secret,id=pip --mount=type=secret,id=ivy \
    set -eu; \
    export UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy JAR_CACHE=/root/.cache/jars; \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca SSL_CERT_FILE=/run/secrets/ca; fi; \
    if [ -s /run/secrets/pip ]; then export PIP_CONFIG_FILE=/run/secrets/pip; fi; \
    if [ -s /run/secrets/ivy ]; then export IVY_SETTINGS=/run/secrets/ivy; fi; \
    python3 bin/setup --only spark; \
    rm -rf .venv/tools

FROM ${BASE}
RUN groupadd --gid 10001 deltaworks \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin deltaworks \
 && install -d -m 0711 -o 10001 -g 10001 /data
WORKDIR /opt/deltaworks
COPY --from=installed /opt/deltaworks/.venv .venv/
COPY --from=installed /opt/deltaworks/.jars .jars/
COPY bin bin/
COPY requirements requirements/
COPY spark_apps spark_apps/
COPY deltaworks deltaworks/
COPY deltaworks.toml topics.toml ./
# One file with the classes that Spark loads; without it drivers start more slowly.
RUN python3 bin/setup --only classes && .venv/spark/bin/python -m compileall -q deltaworks spark_apps
COPY shop shop/
ENV PATH=/opt/deltaworks/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 DELTAWORKS_DATA=/data
USER 10001:10001
ENTRYPOINT ["/opt/deltaworks/.venv/spark/bin/python", "-m", "deltaworks.local.container"]
