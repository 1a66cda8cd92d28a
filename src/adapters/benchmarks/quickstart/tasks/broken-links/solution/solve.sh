#!/bin/bash
set -euo pipefail
export LC_ALL=C
find docs -type f -name '*.md' | while IFS= read -r file; do
  { grep -no '](\([^)]*\))' "$file" || true; } | sed 's/](\(.*\))$/\1/' | while IFS=: read -r line target; do
    case $target in http://* | https://* | mailto:* | '#'*) continue ;; esac
    [ -e "$(dirname "$file")/${target%%#*}" ] || echo "$file:$line:$target"
  done
done | sort > broken-links.txt
