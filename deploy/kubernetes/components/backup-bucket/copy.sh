#!/bin/sh
# Copies every whole backup of $BACKUPS to $BUCKET, which is what rclone calls a remote with a path, as store:bucket/folder.
# A backup is one only with its manifest, so that comes last: what a run leaves that is killed, or cannot go on, is none in
# the bucket either, and the next run completes it. Nothing is removed there, or replaced by something else.
set -eu
: "${BACKUPS:?the directory that holds all backups}" "${BUCKET:?where to copy them, as REMOTE:BUCKET/FOLDER}"
copied=0
for each in "$BACKUPS"/20*Z; do
  [ -e "$each/manifest.json" ] || continue
  name=${each##*/}
  rclone copy --immutable --exclude manifest.json "$each" "$BUCKET/$name"
  rclone copy --immutable "$each" "$BUCKET/$name"
  rclone check --one-way "$each" "$BUCKET/$name"
  copied=$((copied + 1))
done
if [ "$copied" -eq 0 ]; then
  echo "$BACKUPS holds no backup. Try: kubectl create job backup-now --from=cronjob/sharegroups-backup" >&2
  exit 1
fi
echo "$copied backups are in $BUCKET"
