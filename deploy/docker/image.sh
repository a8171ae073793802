#!/bin/sh
# Builds the image $1 (sharegroups:dev): the project's wheel, the wheels it needs, then the Dockerfile with no network.
# $2: `services` or `pipeline`, the Spark job.
# IMAGE_BASE: the base; else the local one of `make image-base`, if it was made, else the Dockerfile's own.
# UPGRADE=1: take the newest wheels that pyproject.toml allows, and rewrite the pins.
set -eu
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python}
image=${1:-sharegroups:dev}
kind=${2:-services}
here=deploy/docker
case $kind in
  services) recipe=$here/Dockerfile constraints=$here/constraints.txt built= ;;
  # Spark for Python is published only as source.
  pipeline) recipe=$here/pipeline.Dockerfile constraints=$here/pipeline-constraints.txt built='--no-binary pyspark --use-pep517' ;;
  *) echo "What is $kind? Try: $0 $image services, or $0 $image pipeline" >&2; exit 2 ;;
esac
extras=$(sed -n "s/.*'sharegroups\[\(.*\)\]'.*/\1/p" "$recipe")
context=$PWD/build/image-$kind
local_base=sharegroups-base:bookworm
base=${IMAGE_BASE:-}
if [ -z "$base" ]; then
  if docker image inspect "$local_base" >/dev/null 2>&1; then base=$local_base
  else base=$(sed -n 's/^ARG BASE=//p' "$recipe"); fi
fi
echo "base: $base"
docker image inspect "$base" >/dev/null 2>&1 || docker pull "$base" || {
  echo "The base image $base cannot be pulled. Try: make image-base, then again" >&2; exit 1; }

mkdir -p "$context/project" "$context/wheelhouse" "$context/pip"
rm -f "$context"/project/*.whl
"$python" -m hatchling build -t wheel -d "$context/project" >/dev/null

# The dependencies depend on the base's Python (redis needs async-timeout before 3.11.3), so the base's own pip resolves
# them, with this machine's network, certificates and index. This is done only if the base, the pins or pyproject.toml
# have changed.
pins=$constraints
test "${UPGRADE:-}" = 1 && pins=/dev/null
made_of=$({ docker image inspect --format '{{.Id}}' "$base"; cat "$pins" pyproject.toml; } | sha256sum)
if [ "$(cat "$context/made-of" 2>/dev/null)" != "$made_of" ]; then
  rm -f "$context"/wheelhouse/*.whl "$context/made-of"
  cat "$pins" >"$context/pip/constraints.txt"
  cp -L /etc/ssl/certs/ca-certificates.crt "$context/pip/ca.pem"
  docker run --rm --network host --user "$(id -u):$(id -g)" -e HOME=/tmp -e PIP_INDEX_URL -e PIP_EXTRA_INDEX_URL \
    -e PIP_CERT=/pip/ca.pem -e PIP_DISABLE_PIP_VERSION_CHECK=1 -e EXTRAS="$extras" -e BUILT="$built" \
    -v "$context/pip:/pip:ro" -v "$context/project:/project:ro" -v "$context/wheelhouse:/wheelhouse" "$base" sh -ceu '
      python3 -m venv /tmp/pip
      for wheel in /project/*.whl; do
        /tmp/pip/bin/pip wheel --quiet --only-binary :all: $BUILT --wheel-dir /wheelhouse \
          --constraint /pip/constraints.txt "$wheel[$EXTRAS]"
      done'
  printf '%s\n' "$made_of" >"$context/made-of"
fi
rm -f "$context"/wheelhouse/sharegroups-*.whl
if [ "${UPGRADE:-}" = 1 ]; then
  { sed -n '/^#/p' "$constraints"
    for wheel in "$context"/wheelhouse/*.whl; do
      basename "$wheel" | cut -d- -f1,2 | tr '_A-Z' '-a-z' | sed 's/-\([^-]*\)$/==\1/'
    done | LC_ALL=C sort; } >"$context/pip/constraints.new"
  cp "$context/pip/constraints.new" "$constraints"
fi
cp "$context"/project/*.whl "$context/wheelhouse/"
cp "$recipe" "$context/Dockerfile"
printf '*\n!Dockerfile\n!wheelhouse\n' >"$context/.dockerignore"
docker build --network none --build-arg "BASE=$base" --tag "$image" "$context"
