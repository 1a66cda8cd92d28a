#!/bin/bash
set -euo pipefail
export LC_ALL=C
find project -type d -exec chmod 755 {} +
find project -type f -exec chmod 644 {} +
find project/bin -type f -name '*.sh' -exec chmod 755 {} +
find project/secrets -type f -exec chmod 600 {} +
find project/secrets -type d -exec chmod 700 {} +
