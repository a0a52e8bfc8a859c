#!/bin/sh
# Sends one reminder. The payload, an address, is on stdin; what is known of the task is in the environment.
# Exit 0: done. Exit 75: try again later. Anything else: failed, tried again until the attempts end.
set -eu
address=$(cat)

case $address in
  *@*) ;;
  *) echo "not an address: $address" >&2; exit 1 ;;
esac
if [ "$address" = busy@example.org ] && [ "$DELAYQ_ATTEMPT" = 1 ]; then
  echo "the mail server asks us to come back later" >&2
  exit 75
fi
# At least once means: sometimes twice. The task's id tells.
if grep -qsF -- "$DELAYQ_TASK_ID attempt" "$OUTBOX"; then
  exit 0
fi
echo "$DELAYQ_TASK_ID attempt $DELAYQ_ATTEMPT to $address" >> "$OUTBOX"
