#!/bin/bash
set -euo pipefail
export LC_ALL=C
tar -czf release.tar.gz --exclude='*.tmp' --exclude='site/drafts' site
tar -tzf release.tar.gz | grep -v '/$' | sort | xargs -d '\n' sha256sum > manifest.txt
