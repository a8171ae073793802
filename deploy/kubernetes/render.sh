#!/bin/sh
# Renders every overlay, production's namespace, its monitoring and the claim for its backups into the folder $1, one file
# each, to read, to diff, or for `kubectl apply --filename`.
# $2: the image by its digest, name@sha256:…, for production; dev runs sharegroups:dev.
set -eu
out=$1
image=${2:-}
here=$(cd "$(dirname "$0")" && pwd)
command -v kubectl >/dev/null || { echo "kubectl is missing; it renders the overlays" >&2; exit 1; }
mkdir -p "$out"
kubectl kustomize "$here/overlays/dev" >"$out/dev.yaml"
kubectl kustomize "$here/overlays/production" >"$out/production.yaml"
kubectl kustomize "$here/namespace" >"$out/namespace.yaml"
kubectl kustomize "$here/monitoring" >"$out/monitoring.yaml"
kubectl kustomize "$here/backups" >"$out/backups.yaml"
name='[^@[:space:]]\{1,\}' digest='@sha256:[0-9a-f]\{64\}'
if printf '%s\n' "$image" | grep -qx "$name$digest"; then
  sed -i "s|registry\.invalid/sharegroups$digest|$image|" "$out/production.yaml"
else
  echo "production.yaml still needs its image: make manifests IMAGE=registry/name@sha256:…" >&2
fi
echo "rendered dev, namespace, production, monitoring and backups into $out; try: kubectl apply --filename $out/dev.yaml"
