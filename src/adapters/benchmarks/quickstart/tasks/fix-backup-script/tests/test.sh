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
mkdir -p "$work/a folder/sub.txt" "$work/empty"
printf 'one\n' > "$work/a folder/one.txt"
printf 'two words\n' > "$work/a folder/two words.txt"
printf 'star\n' > "$work/a folder/*.txt"
printf 'dash\n' > "$work/a folder/-n.txt"
printf 'no\n' > "$work/a folder/atxt"
printf 'no\n' > "$work/a folder/picture.svg"
printf 'no\n' > "$work/a folder/sub.txt/inner.txt"

run() { timeout 20 bash ./backup.sh "$@" > "$work/out" 2> "$work/err"; }
names() { (cd "$1" 2>/dev/null && find . -type f | sort | tr '\n' '|'); }

run "$work/a folder" "$work/new/deep er"
check "a good run exits with 0" test $? -eq 0
check "it tells the number of files" grep -qx 'copied 4 files' "$work/out"
check "exactly the text files are copied" test "$(names "$work/new/deep er")" = './*.txt|./-n.txt|./one.txt|./two words.txt|'
for name in 'one.txt' 'two words.txt' '*.txt' '-n.txt'; do
  check "the content of $name is kept" cmp "$work/a folder/$name" "$work/new/deep er/$name"
done

run "$work/empty" "$work/nothing"
check "a folder without text files is no error" test $? -eq 0
check "zero files are told as 0" grep -qx 'copied 0 files' "$work/out"

run "$work/missing" "$work/not-made"
check "a missing source exits with 2" test $? -eq 2
check "the message goes to standard error" test -s "$work/err"
check "nothing is made for a missing source" test ! -e "$work/not-made"

echo "$passed" > "$reward"
