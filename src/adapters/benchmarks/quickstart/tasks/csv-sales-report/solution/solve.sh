#!/bin/bash
set -euo pipefail
export LC_ALL=C
{
  echo "region,orders,total"
  awk -F, 'NR > 1 && $5 == "paid" {
      region = tolower($3); gsub(/^ +| +$/, "", region)
      orders[region]++; total[region] += $4
    }
    END { for (region in orders) printf "%s,%d,%.2f\n", region, orders[region], total[region] }' sales.csv |
    sort -t, -k3,3nr
} > report.csv
