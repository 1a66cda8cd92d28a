"""Bash that records the work tree in a repository of its own, apart from the agent's, and compares with it later."""

NO_LARGER_THAN = 32 * 1024 * 1024
"""Bytes of a patch, and of a file that is new or changed in it; what is beyond is left out of it."""

STORE = r"""
# A repository whose settings are all its own: neither those of the work tree, the user or the machine, nor attributes
# or hooks, change a byte or run a program.
enter_store() {
  mkdir -p "$1/objects/info" "$1/refs" "$1/info"
  echo 'ref: refs/heads/none' > "$1/HEAD"
  echo '* -text -crlf !eol -ident -filter -working-tree-encoding !diff !whitespace' > "$1/info/attributes"
  cat > "$1/config" << 'END'
[core]
  repositoryFormatVersion = 0
  bare = false
  fileMode = true
  symlinks = true
  ignoreCase = false
  precomposeUnicode = false
  protectHFS = false
  protectNTFS = false
  autocrlf = false
  safecrlf = false
  trustctime = true
  quotePath = true
  compression = 0
  hooksPath = /dev/null
  attributesFile = /dev/null
[gc]
  auto = 0
END
  export GIT_DIR=$1 GIT_WORK_TREE=$tree HOME=$1 XDG_CONFIG_HOME=$1
  export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1
}

store_git() { git -c core.excludesFile="$store/exclude" "$@"; }

# What the tree has that takes care, by NUL-ended names: repositories in it, files too large, and what is no file.
survey() {
  find . -name .git -prune -fprint0 "$1/nested" -o -type f -size "+$((AC_LARGEST / 1024))k" -fprint0 "$1/large" \
    -o ! -type f ! -type l ! -type d -fprint0 "$1/special"
}

# Names that the index begins with, each with an id that no content has, so that all is read anew. Those `tracked`
# (as `ls-files -s -z` tells) are kept even where they are ignored; a name inside of a nested repository makes git take
# its files as it takes all others.
seed() {
  local path any=1111111111111111111111111111111111111111
  {
    sed -zn "/^160000 /!s/^[0-7]* [0-9a-f]* [0-3]\t/100644 $any 0\t/p" "$1/tracked"
    while IFS= read -r -d '' path; do
      path=${path#./}
      [ "$path" = .git ] || printf '100644 %s 0\t%s\0' "$any" "${path%.git}.agentcompass"
    done < "$1/nested"
  } | git update-index -z --index-info || return 1
  [ ! -s "$1/special" ] || sed -z 's/^\.\///' "$1/special" | git update-index --force-remove -z --stdin
}
"""

SNAPSHOT = r"""
excludes=$(image_git config --path core.excludesFile || true)
{
  cat "${excludes:-${XDG_CONFIG_HOME:-${HOME:-}/.config}/git/ignore}"
  echo; cat "$gitdir/info/exclude"; echo
  echo '.[gG][iI][tT]'  # no index takes such a name, and no patch
} > "$store/exclude" 2> /dev/null || true
image_git ls-files -s -z > "$store/tracked"
enter_store "$store/git"
survey "$store"
seed "$store"
# What is larger than the threshold goes straight into one pack, which is faster than a file for each.
store_git -c core.bigFileThreshold=1 add -A
echo "base_tree=$(git write-tree)"
# So many that they fit in what is kept of the output.
sed -z 's/^\.\///;/^\.git$/d' "$store/nested" | sort -z | sed -zn 1,200p |
  while IFS= read -r -d '' path; do printf 'nested=%q\n' "$path"; done
store_git ls-files -z -o -i --exclude-standard --directory |
  sed -zn '/\n/!{s/[][\\*?]/\\&/g;s/ $/\\ /;s/^/\//;p}' | tr '\0' '\n' > "$store/ignored"
"""
"""Prints `base_tree=ID`, and `nested=PATH` for each repository inside of /testbed.

Beside the tree are kept the rules of what is ignored, and what is ignored now.
"""

COLLECT = r"""
out=$store/collected
lost() { echo lost=; exit 0; }
[ -d "$store/git" ] || lost
rm -rf "$out"
mkdir -p "$out/nothing"
cd -P "$tree" 2> /dev/null || cd "$out/nothing"
tree=$PWD
enter_store "$out/git"
echo "$store/git/objects" > "$out/git/objects/info/alternates"
git rev-list --objects --quiet "$AC_TREE" || [ $? != 128 ] || lost
git read-tree "$AC_TREE"

# Files that the agent has added although they are ignored are in its index only.
read_agents_index() {
  local line index=.git/index
  if [ -f .git ] && IFS= read -r line < .git; then index=${line#gitdir: }/index; fi
  [ -f "$index" ] && cp -- "$index" "$out/index" && GIT_INDEX_FILE=$out/index git ls-files -s -z > "$out/tracked"
}

ignored_from_start() {
  GIT_WORK_TREE=$out/nothing git -C "$out/nothing" -c core.excludesFile="$store/ignored" \
    check-ignore --no-index -z --stdin || true
}

large_files() {
  local path
  { store_git check-ignore -z --stdin || true; } < "$out/large" > "$out/skipped"
  ignored_from_start < "$out/large" >> "$out/skipped"
  comm -z -23 <(sort -z "$out/large") <(sort -z "$out/skipped") | while IFS= read -r -d '' path; do
    [ "$(git rev-parse -q --verify "$AC_TREE:${path#./}")" = "$(git hash-object --no-filters -- "$path")" ] ||
      printf '%s %s\0' "$(stat -c %s -- "$path" || echo 0)" "${path#./}"
  done
}

take_all() {
  local line unread=()
  while IFS= read -r -d '' line; do unread+=(":(top,exclude,literal)${line#* }"); done < "$out/left"
  store_git add -A ${unread[@]+-- . "${unread[@]}"}
}

leave_out_what_was_ignored() {
  git diff-index --cached -z --name-only --diff-filter=A "$AC_TREE" | ignored_from_start > "$out/dropped"
  [ ! -s "$out/dropped" ] || git update-index --force-remove -z --stdin < "$out/dropped"
}

# What is left out is as it was; what was in a folder of the same name is gone.
put_back() {
  sed -z 's/^[0-9]* //' "$out/left" > "$out/names"
  [ -s "$out/names" ] || return 0
  xargs -0 git --literal-pathspecs ls-files -z -- < "$out/names" | git update-index --force-remove -z --stdin
  xargs -0 git --literal-pathspecs ls-tree -z "$AC_TREE" -- < "$out/names" | sed -z '/^040000 /d' |
    git update-index -z --index-info
}

write_patch() {
  git diff-index --cached -p --binary --full-index --no-renames --no-color --no-ext-diff --no-textconv \
    --src-prefix=a/ --dst-prefix=b/ "$AC_TREE" > "$out/patch"
  size=$(stat -c %s "$out/patch")
}

# How many bytes of the patch each file takes; a file that became a link, or the reverse, takes two parts.
parts() {
  local change path end part=0 starts=()
  while IFS=: read -r end _; do starts+=("$end"); done < <(grep -abo '^diff --git ' "$out/patch")
  git diff-index --cached -z --no-renames "$AC_TREE" |
    while IFS= read -r -d '' change && IFS= read -r -d '' path; do
      end=$((part + 1))
      [ "${change##* }" != T ] || end=$((part + 2))
      printf '%s %s\0' "$((${starts[end]:-$size} - starts[part]))" "$path"
      part=$end
    done
}

leave_out_largest_parts() {
  local line left=$size
  parts | sort -zrn > "$out/parts"
  while [ "$left" -gt "$AC_LARGEST" ] && IFS= read -r -d '' line; do
    left=$((left - ${line%% *}))
    printf '%s\0' "$line" >> "$out/left"
  done < "$out/parts"
}

read_agents_index 2> /dev/null || : > "$out/tracked"
survey "$out"
seed "$out" || { git read-tree "$AC_TREE"; : > "$out/tracked"; seed "$out"; }
large_files > "$out/left"
take_all || take_all  # a file may go while it is read, where services are left running
leave_out_what_was_ignored
put_back
write_patch
if [ "$size" -gt "$AC_LARGEST" ]; then
  leave_out_largest_parts
  put_back
  write_patch
fi
sort -zrn "$out/left" | sed -zn 1,200p |
  while IFS= read -r -d '' line; do printf 'left_out=%s %q\n' "${line%% *}" "${line#* }"; done
read -r sha256 _ < <(sha256sum "$out/patch")
printf 'size=%s\nsha256=%s\npatch=%s\n' "$size" "$sha256" "$AC_STORE/collected/patch"
"""
"""Prints `size`, `sha256` and `patch` (its path), and `left_out=BYTES NAME` for what is not in it; or `lost=`."""
