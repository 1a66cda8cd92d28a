#!/bin/bash
set -euo pipefail
export LC_ALL=C
{
  echo "email;name;updated;phone"
  awk -F';' -v OFS=';' '
    { sub(/\r$/, "") }
    FNR == 1 || $0 == "" { next }
    { $1 = tolower($1); if (!($1 in date) || $3 > date[$1]) { date[$1] = $3; entry[$1] = $0 } }
    END { for (email in entry) print entry[email] }
  ' lists/*.csv | sort -t';' -k1,1
} > contacts.csv
