#!/bin/bash
# Print the settings that are in force: show-config.sh NAME merges settings/base.ini with settings/NAME.ini.
cd "$(dirname "$0")" || exit 1
awk '
  { sub(/\r$/, "") }
  /^[ \t]*([#;]|$)/ { next }
  /^\[[a-z]+\]$/ { section = substr($0, 2, length($0) - 2); next }
  {
    at = index($0, "=")
    if (!at) next
    key = substr($0, 1, at - 1); value = substr($0, at + 1)
    gsub(/^[ \t]+|[ \t]+$/, "", key); gsub(/^[ \t]+|[ \t]+$/, "", value)
    name = section "." key
    if (FNR == NR) known[name] = 1
    else if (!(name in known)) next
    set[name] = value
  }
  END { for (name in set) print name "=" set[name] }
' settings/base.ini "settings/$1.ini" | sort
