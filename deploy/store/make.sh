#!/bin/sh
# Makes passwords, certificates and configuration of a store with three copies and three Sentinels:
#   make.sh FOLDER [STORES [SENTINELS]]       each three of HOST or HOST:PORT, separated by commas
# FOLDER/store-N and FOLDER/sentinel-N go to /etc/store there, FOLDER/programs to those that run programs, each with the
# files of its own user only. FOLDER/ca.key makes further certificates: keep it elsewhere. MEMORY is maxmemory (2gb).
set -eu
umask 077
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: make.sh FOLDER [STORES [SENTINELS]]}
stores=${2:-store-0:6379,store-1:6379,store-2:6379}
sentinels=${3:-sentinel-0:26379,sentinel-1:26379,sentinel-2:26379}
memory=${MEMORY:-2gb}
[ ! -e "$out" ] || { echo "$out exists: name a folder that does not, or remove it if nothing uses its passwords" >&2; exit 1; }
command -v openssl >/dev/null || { echo "openssl is missing; it makes the certificates" >&2; exit 1; }
mkdir -p "$out/passwords" "$out/programs"

host() { echo "${1%:*}"; }
port() { case $1 in *:*) echo "${1##*:}" ;; *) echo "$2" ;; esac; }
words() { echo "$1" | tr ',' ' '; }

# Passwords: one for each user of servers and Sentinels.
for user in $(cat "$here/users.acl" "$here/sentinel.conf" | sed -n 's/^user \([a-z-]*\) on .*/\1/p' | sort -u); do
  openssl rand -hex 24 | tr -d '\n' >"$out/passwords/$user"
done

# An authority, and a certificate by the host of each copy and Sentinel.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=store authority" \
  -keyout "$out/ca.key" -out "$out/ca.crt" 2>/dev/null
certificate() { # FOLDER HOST
  case $2 in *[!0-9.]*) name=DNS:$2 ;; *) name=IP:$2 ;; esac
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 397 -subj "/CN=$2" \
    -CA "$out/ca.crt" -CAkey "$out/ca.key" -addext "subjectAltName=$name" -addext "basicConstraints=critical,CA:FALSE" \
    -addext "extendedKeyUsage=serverAuth,clientAuth" -keyout "$1/tls.key" -out "$1/tls.crt" 2>/dev/null
  cp "$out/ca.crt" "$1/ca.crt"
}

# Writes a template with everything between @ and @ replaced, by a file, since other users see the arguments of commands.
fill() { # TEMPLATE HOST PORT
  {
    echo "s/@HOST@/$2/;s/@PORT@/$3/;s/@MEMORY@/$memory/;s/@MASTER HOST@/$master_host/;s/@MASTER PORT@/$master_port/"
    for file in "$out"/passwords/*; do
      user=$(basename "$file")
      echo "s/@PASSWORD $user@/$(cat "$file")/;s/@HASH $user@/#$(openssl dgst -sha256 -r <"$file" | cut -d' ' -f1)/"
    done
  } >"$out/.replaced"
  sed -f "$out/.replaced" "$here/$1"
  rm "$out/.replaced"
}

first=${stores%%,*}
master_host=$(host "$first") master_port=$(port "$first" 6379)
number=0
for one in $(words "$stores"); do
  folder=$out/store-$number
  mkdir "$folder"
  certificate "$folder" "$(host "$one")"
  fill valkey.conf "$(host "$one")" "$(port "$one" 6379)" >"$folder/valkey.conf"
  fill users.acl "" "" | sed -e '/^#/d' -e '/^$/d' >"$folder/users.acl"
  [ "$number" -eq 0 ] || echo "replicaof $master_host $master_port" >>"$folder/valkey.conf"
  number=$((number + 1))
done
number=0 listed=
for one in $(words "$sentinels"); do
  folder=$out/sentinel-$number
  mkdir "$folder"
  certificate "$folder" "$(host "$one")"
  fill sentinel.conf "$(host "$one")" "$(port "$one" 26379)" >"$folder/sentinel.conf"
  listed=$listed${listed:+,}$(host "$one"):$(port "$one" 26379)
  number=$((number + 1))
done

# Settings of programs: a file for each user, with its password and that of Sentinels beside it.
cp "$out/ca.crt" "$out/programs/"
cp "$out/passwords/sharegroups-asker" "$out/programs/sentinels.password"
for user in $(sed -n 's/^user \(sharegroups-[a-z-]*\) on .*/\1/p' "$here/users.acl"); do
  case $user in *-replica | *-sentinel) continue ;; esac
  cp "$out/passwords/$user" "$out/programs/$user.password"
  cat >"$out/programs/$user.toml" <<END
[store]
url = "rediss+sentinel://$listed/main"
username = "$user"
password.location = "/etc/sharegroups/store/$user.password"
ssl.ca.location = "/etc/sharegroups/store/ca.crt"
sentinel.username = "sharegroups-asker"
sentinel.password.location = "/etc/sharegroups/store/sentinels.password"
replicas = 2
END
done
echo "made $out: store-N and sentinel-N for /etc/store, programs for /etc/sharegroups/store; min.insync.replicas is yours to choose"
