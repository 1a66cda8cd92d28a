#!/bin/bash
# Writes 1 as the reward when every check holds, else 0.
export LC_ALL=C
tests=$(dirname "$0")
reward="${AGENTCOMPASS_ROOT:-}/logs/verifier/reward.txt"
passed=1
check() {
  local what=$1
  shift
  if "$@"; then echo "ok: $what"; else echo "FAILED: $what"; passed=0; fi
}

check "contacts.csv is the merged list" cmp "$tests/expected.csv" contacts.csv
diff -u "$tests/expected.csv" contacts.csv
check "the lists are unchanged" sha256sum --quiet -c "$tests/sums.txt"

echo "$passed" > "$reward"
