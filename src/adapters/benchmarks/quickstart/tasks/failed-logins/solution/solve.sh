#!/bin/bash
set -euo pipefail
export LC_ALL=C
awk '$6 == "\"POST" && $7 == "/login" && $9 == 401 { failed[$1]++ }
  END { for (ip in failed) if (failed[ip] >= 3) print failed[ip], ip }' access.log |
  sort -k1,1nr -k2,2 > suspects.txt
