#!/bin/bash
set -euo pipefail
export LC_ALL=C
{
  echo '['
  grep -v -e '^#' -e '^$' inventory.txt |
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' \
      -e 's/^ *\([^|]*[^ |]\) *| *\([0-9]*\) *| *\([^ ]*\) *$/  {"name": "\1", "count": \2, "shelf": "\3"},/' \
      -e '$ s/,$//'
  echo ']'
} > inventory.json
