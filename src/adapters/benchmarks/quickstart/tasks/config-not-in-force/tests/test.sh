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

check "show-config.sh is unchanged" cmp "$tests/show-config.sh" show-config.sh
check "base.ini is unchanged" cmp "$tests/base.ini" settings/base.ini
check "the settings in force are those asked for" \
  diff -u "$tests/expected.txt" <(bash ./show-config.sh production | sort)

echo "$passed" > "$reward"
