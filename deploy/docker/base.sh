#!/bin/sh
# Makes a base image from Debian's package archive, for machines that cannot pull the official one: a minimal root file
# system with Python, imported into Docker as $1. Needs root (debootstrap makes device nodes) and takes a minute or more.
set -eu
name=${1:-sharegroups-base:bookworm}
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
command -v debootstrap >/dev/null || { echo "debootstrap is missing. Try: apt-get install debootstrap" >&2; exit 1; }
test "$(id -u)" = 0 || { echo "debootstrap needs root. Try: sudo $0 $name" >&2; exit 1; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv bookworm "$root" "$mirror"
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/doc/* "$root"/usr/share/man/*
# Docker creates these again at each start.
rm -f "$root/etc/resolv.conf" "$root/etc/hostname"
tar -C "$root" -c . | docker import --change 'CMD ["bash"]' - "$name"
