#!/bin/bash
set -euo pipefail
export LC_ALL=C
cat > backup.sh <<'SCRIPT'
#!/bin/bash
# Copy the text files of a folder: backup.sh SOURCE DESTINATION
src=$1
dest=$2
if [ ! -d "$src" ]; then
  echo "backup.sh: no such folder: $src" >&2
  exit 2
fi
mkdir -p "$dest" || exit 1
count=0
for file in "$src"/*.txt; do
  [ -f "$file" ] || continue
  cp "$file" "$dest/" || exit 1
  count=$((count + 1))
done
echo "copied $count files"
SCRIPT
