#!/bin/sh
# Restores the newest of $BACKUPS into an empty store of its own in $DRILL, and checks every entry of what is there then.
# A backup that was never restored is only a hope.
set -eu
: "${BACKUPS:?the directory that holds all backups}" "${DRILL:?an empty directory with room for the store}"
newest=$(ls -1d "$BACKUPS"/20*Z/manifest.json 2>/dev/null | tail -n 1)
if [ -z "$newest" ]; then
  echo "$BACKUPS holds no backup. Try: kubectl create job backup-now --from=cronjob/sharegroups-backup" >&2
  exit 1
fi
sharegroups restore "${newest%/manifest.json}" --data "$DRILL/data" --quiet
exec sharegroups state check --data "$DRILL/data"
