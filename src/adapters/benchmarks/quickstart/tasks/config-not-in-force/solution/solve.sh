#!/bin/bash
set -euo pipefail
export LC_ALL=C
sed -i -e 's/^\[databse\]$/[database]/' -e 's/^tll = /ttl = /' -e 's/^workers: /workers = /' \
  -e '/incident of 3 March/,$d' settings/production.ini
