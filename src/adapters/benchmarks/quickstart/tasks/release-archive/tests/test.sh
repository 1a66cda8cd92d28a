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

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
check "the archive is gzip-compressed" gzip -t release.tar.gz
check "the archive can be unpacked" tar -xzf release.tar.gz -C "$work"
check "it holds exactly the files of the release" \
  diff -u <(cut -c67- "$tests/manifest.txt") <(cd "$work" && find . ! -type d | sed 's|^\./||' | sort)
check "nothing of the drafts is in it" test ! -e "$work/site/drafts"
check "their content is right" bash -c 'cd "$1" && sha256sum --quiet -c "$2"' _ "$work" "$(cd "$tests" && pwd)/manifest.txt"
check "manifest.txt lists their sums" diff -u "$tests/manifest.txt" manifest.txt
check "the files are still there" sha256sum --quiet -c "$tests/sources.txt"

echo "$passed" > "$reward"
