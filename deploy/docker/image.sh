#!/bin/sh
# Builds the image $1 (sharegroups:dev): the project's wheel, the wheels of its lock, then the Dockerfile with no network.
# $2: `services` or `pipeline`, the Spark job.
# IMAGE_BASE: the base, as name:tag or, pinned, name@sha256:…; else the local one of `make image-base`, if it was made, else
# the Dockerfile's own.
set -eu
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python}
image=${1:-sharegroups:dev}
kind=${2:-services}
here=deploy/docker
case $kind in
  services) recipe=$here/Dockerfile lock=$here/lock.txt build_lock= built= ;;
  # Spark for Python is published only as source. What builds it is locked too: pip would fetch the newest.
  pipeline) recipe=$here/pipeline.Dockerfile lock=$here/pipeline-lock.txt build_lock=$here/pipeline-build-lock.txt
    built='--no-binary pyspark --use-pep517 --no-build-isolation' ;;
  *) echo "What is $kind? Try: $0 $image services, or $0 $image pipeline" >&2; exit 2 ;;
esac
context=$PWD/build/image-$kind
local_base=sharegroups-base:bookworm
base=${IMAGE_BASE:-}
if [ -z "$base" ]; then
  if docker image inspect "$local_base" >/dev/null 2>&1; then base=$local_base
  else base=$(sed -n 's/^ARG BASE=//p' "$recipe"); fi
fi
docker image inspect "$base" >/dev/null 2>&1 || docker pull "$base" || {
  echo "The base image $base cannot be pulled. Try: make image-base, then again" >&2; exit 1; }
# By its digest, so that no other image can take its name meanwhile; one that was given stays as it is. A local image has
# none: no registry has seen it.
case $base in
  *@sha256:*) ;;
  *) digest=$(docker image inspect --format '{{if .RepoDigests}}{{index .RepoDigests 0}}{{end}}' "$base")
    base=${digest:-$base} ;;
esac
echo "base: $base"

mkdir -p "$context/project" "$context/pip"
rm -f "$context"/project/*.whl
"$python" -m hatchling build -t wheel -d "$context/project" >/dev/null

# Which wheels of the lock are needed depends on the base's Python and processor, so the base's own pip fetches them, with
# this machine's network, certificates and index, and compares their hashes. This is done only if base or lock have changed.
made_of=$({ docker image inspect --format '{{.Id}}' "$base"; cat "$lock" $build_lock; } | sha256sum)
if [ "$(cat "$context/made-of" 2>/dev/null)" != "$made_of" ]; then
  rm -rf "$context/wheelhouse" "$context/made-of"
  mkdir "$context/wheelhouse"
  cp "$lock" "$context/wheelhouse/lock.txt"
  test -z "$build_lock" || cp "$build_lock" "$context/wheelhouse/build-lock.txt"
  cp -L /etc/ssl/certs/ca-certificates.crt "$context/pip/ca.pem"
  docker run --rm --network host --user "$(id -u):$(id -g)" -e HOME=/tmp -e PIP_INDEX_URL -e PIP_EXTRA_INDEX_URL \
    -e PIP_CERT=/pip/ca.pem -e PIP_DISABLE_PIP_VERSION_CHECK=1 -e BUILT="$built" \
    -v "$context/pip:/pip:ro" -v "$context/wheelhouse:/wheelhouse" "$base" sh -ceu '
      cd /wheelhouse
      python3 -m venv /tmp/pip
      fetch() { /tmp/pip/bin/pip download --quiet --only-binary :all: --no-deps --require-hashes "$@"; }
      if [ -f build-lock.txt ]; then
        fetch --requirement build-lock.txt
        /tmp/pip/bin/pip install --quiet --no-index --find-links . --require-hashes --requirement build-lock.txt
      fi
      fetch $BUILT --requirement lock.txt'
  printf '%s\n' "$made_of" >"$context/made-of"
fi
rm -f "$context"/wheelhouse/sharegroups-*.whl
cp "$context"/project/*.whl "$context/wheelhouse/"
cp "$here/slim.py" "$context/wheelhouse/"
cp "$recipe" "$context/Dockerfile"
printf '*\n!Dockerfile\n!wheelhouse\n' >"$context/.dockerignore"
docker build --network none --build-arg "BASE=$base" --tag "$image" "$context"
# What the classic builder leaves of the first stage; BuildKit leaves nothing.
docker image prune --force --filter label=sharegroups.stage=build >/dev/null
if [ "$kind" = services ]; then
  mkdir -p build/sbom
  docker run --rm --network none --entrypoint cat "$image" /usr/share/sharegroups/sbom.cdx.json >build/sbom/image.cdx.json
  echo "what is in it: build/sbom/image.cdx.json"
fi
docker image inspect --format 'size: {{.Size}} bytes' "$image"
