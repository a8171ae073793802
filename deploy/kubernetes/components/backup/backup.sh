#!/bin/sh
# Saves the cluster into a new directory of $BACKUPS, named by the time, and reads it again to check it. Then the oldest
# ones are removed, so that $KEEP remain: never before a new one is whole, so a full volume, or a store that is away,
# leaves all that there are. Arguments are for `sharegroups backup`, as --rate 20.
set -eu
: "${BACKUPS:?the directory that holds all backups}" "${KEEP:?how many to keep}"
# Left by a run that was killed: a backup is one only with its manifest, which is written last.
for each in "$BACKUPS"/20*Z; do
  if [ -d "$each" ] && [ ! -e "$each/manifest.json" ]; then
    echo "removing $each, which was interrupted"
    rm -r "$each"
  fi
done
new=$BACKUPS/$(date -u +%Y-%m-%dT%H%M%SZ)
sharegroups backup "$new" --quiet "$@"
if ! sharegroups restore "$new" --dry-run --quiet; then
  echo "removing $new, which cannot be read; the earlier ones are kept" >&2
  rm -r "$new"
  exit 1
fi
# Names have no blanks, and their order is that of time.
for each in $(ls -1d "$BACKUPS"/20*Z | head -n "-$KEEP"); do
  echo "removing $each, since $KEEP newer ones are there"
  rm -r "$each"
done
