#!/usr/bin/env bash
# The scenario of tests/process/test_api_clients.py with curl: scenario.sh http://127.0.0.1:8090
set -euo pipefail
api=$1/v1alpha1

call() {   # <method> <path> [<JSON>]: prints the answer; an error of the API ends the script
  curl --silent --show-error --fail-with-body --retry 3 --max-time 10 -X "$1" "$api$2" \
    ${3:+-H 'Content-Type: application/json' -d "$3"}
  echo
}

call PUT /tasks/email/order-7 '{"payload": {"order": 7}, "delay": "30m"}'
call PUT /tasks/email/order-7 '{"payload": {"order": 8}, "delay": "1h"}'
call GET /tasks/email/order-7
call PATCH /tasks/email/order-7 '{"delay": "3h"}'
call POST /tasks:batch '{"tasks": [{"kind": "email", "id": "b1", "delay": "1h"}, {"kind": "email", "id": "b2", "delay": "2h"}]}'
page=$(call GET '/tasks?limit=2')
echo "$page"
cursor=$(sed -E 's/.*"cursor":"([^"]*)".*/\1/' <<<"$page")
call GET "/tasks?limit=2&cursor=$cursor"
call DELETE /tasks/email/order-7
call GET /deadletters
call POST /deadletters:redrive '{"ids": ["email:dead"], "dryRun": true}'
