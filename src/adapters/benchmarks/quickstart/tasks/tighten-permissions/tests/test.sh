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

mode() { test "$(stat -c %a "$2")" = "$1"; }
while read -r wanted path; do
  check "$path has mode $wanted" mode "$wanted" "$path"
done < "$tests/modes.txt"
check "the files are the same" sha256sum --quiet -c "$tests/sums.txt"
check "no file was added" test "$(find project -type f | wc -l)" -eq "$(wc -l < "$tests/sums.txt")"

echo "$passed" > "$reward"
