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

check "broken-links.txt names the broken links" diff -u "$tests/expected.txt" broken-links.txt
check "docs/ is unchanged" sha256sum --quiet -c "$tests/sums.txt"

echo "$passed" > "$reward"
