"""Bash that takes out of the image's repository whatever is not part of the state that the agent starts from."""

START = r"""[ -n "${BASH_VERSION:-}" ] || { echo 'broken=it has no bash'; exit 0; }
set -eu -o pipefail
unset ${!GIT_@}
export LC_ALL=C GIT_NO_REPLACE_OBJECTS=1
umask 022
shopt -s dotglob nullglob
tree=${AGENTCOMPASS_ROOT:-}/testbed
store=${AGENTCOMPASS_ROOT:-}$AC_STORE
broken() { printf 'broken=%s\n' "$*"; exit 0; }
"""
"""`broken` ends a script: what it says about the image stands in the printed line."""

OPEN = r"""
command -v git > /dev/null || broken 'it has no git'
cd -P "$tree" 2> /dev/null || broken 'it has no /testbed'
tree=$PWD
[ -e .git ] || broken '/testbed is no git repository'
rm -rf "$store"
mkdir -p "$store"
chmod 700 "$store"

image_git() {
  git --git-dir="$tree/.git" --work-tree="$tree" -c core.hooksPath=/dev/null -c core.fsmonitor= -c gc.auto=0 \
    -c core.logAllRefUpdates=false -c repack.writeBitmaps=false "$@"
}

gitdir=$(image_git rev-parse --absolute-git-dir) || broken '/testbed is no git repository'
[ "$(cd -P "$gitdir" && pwd)" = "$(cd -P "$(image_git rev-parse --git-common-dir)" && pwd)" ] ||
  broken '/testbed is a linked work tree of another repository'
head=$(image_git rev-parse -q --verify 'HEAD^{commit}') || broken '/testbed has no commit'
branch=$(image_git symbolic-ref -q HEAD || true)
parent=$(image_git rev-parse -q --verify 'HEAD^' || true)
base=$(image_git rev-parse -q --verify "$AC_BASE^{commit}" 2> /dev/null || true)
case $base in
  "$head") relation=head ;;
  '')
    [ -z "$parent" ] || broken "$AC_BASE, the base commit, is not in the history of /testbed"
    relation=absent
    ;;
  "$parent") relation=parent ;;
  *) broken "HEAD of /testbed is $head, which is neither the base commit $base nor its child" ;;
esac
"""
"""Images of upstream have one commit of their own above the base commit; one made from an sdist has only its own."""

CLEAN = r"""
# Tags of releases before the base commit stay: set-up tools read the version from them.
old_tags() {
  local date id name limit
  read -r limit id < <(image_git rev-list --timestamp -n 1 "${base:-$head}")
  image_git for-each-ref --merged="${base:-$head}" --format='%(creatordate:unix) %(objectname) %(refname)' refs/tags |
    while read -r date id name; do
      if [ -n "$name" ] && [ "$date" -le "$limit" ]; then echo "create $name $id"; fi
    done
}

remove_worktrees() {
  local path count=0
  while IFS= read -r path; do
    image_git worktree remove --force --force -- "$path" 2> /dev/null || [ ! -e "$path" ] ||
      broken "$path, a linked work tree of /testbed, cannot be removed"
    count=$((count + 1))
  done < <(image_git worktree list --porcelain | sed -n 's/^worktree //p' | sed 1d)
  echo "removed.worktrees=$count"
}

remove_refs() {
  local before after
  before=$(image_git for-each-ref --format=x | wc -l)
  old_tags > "$store/tags"
  for entry in "$gitdir"/*; do
    case ${entry##*/} in
      HEAD | config | config.worktree | index | sharedindex.*) ;;
      info | modules | objects | shallow) ;;
      *) rm -rf -- "$entry" ;;
    esac
  done
  for entry in "$gitdir"/info/*; do
    case ${entry##*/} in attributes | exclude | sparse-checkout) ;; *) rm -rf -- "$entry" ;; esac
  done
  mkdir -p "$gitdir/refs/heads" "$gitdir/refs/tags"
  [ -z "$branch" ] || echo "create $branch $head" >> "$store/tags"
  image_git update-ref --no-deref --stdin < "$store/tags"
  image_git pack-refs --all
  after=$(image_git for-each-ref --format=x | wc -l)
  [ "$after" = "$(wc -l < "$store/tags")" ] || broken 'some refs of /testbed cannot be removed'
  [ "$(image_git rev-parse HEAD)" = "$head" ] || broken 'HEAD of /testbed does not stay'
  echo "removed.refs=$((before - after))"
  echo "checked.refs=$after"
}

# Of the submodules' repositories those stay that an entry of the index names: by path, by .gitmodules or by its folder.
remove_modules() {
  local count=0 entry key line module path
  image_git ls-files -s -z | sed -zn 's/^160000 [^\t]*\t//p' > "$store/gitlinks"
  while IFS= read -r -d '' path; do
    printf '%s\0' "$gitdir/modules/$path"
    if [ -f "$path/.git" ] && IFS= read -r line < "$path/.git"; then
      (cd -P "$path" && cd -P "${line#gitdir: }" && printf '%s\0' "$PWD") 2> /dev/null || true
    fi
  done < "$store/gitlinks" > "$store/modules"
  { image_git config --file .gitmodules -z --get-regexp '^submodule\..*\.path$' 2> /dev/null || true; } |
    while IFS= read -r -d '' entry; do
      key=${entry%%$'\n'*} path=${entry#*$'\n'}
      key=${key#submodule.}
      if grep -Fxzq -e "$path" "$store/gitlinks"; then printf '%s\0' "$gitdir/modules/${key%.path}"; fi
    done >> "$store/modules"
  while IFS= read -r -d '' module; do
    if grep -Fxzq -e "$module" "$store/modules"; then
      printf 'nested=%q\n' "${module#"$tree/"}"
    else
      rm -rf -- "$module"
      count=$((count + 1))
    fi
  done < <(find "$gitdir/modules" -type d -exec test -e '{}/HEAD' ';' -print0 -prune 2> /dev/null || true)
  echo "removed.modules=$count"
}

remove_settings() {
  local section
  { image_git config --file "$gitdir/config" --name-only --get-regexp '^(remote|branch|alias)\.' || true; } |
    sed 's/\.[^.]*$//' | sort -u | while IFS= read -r section; do
      image_git config --file "$gitdir/config" --remove-section "$section"
    done
}

count_staged() {
  local options=(--cached --no-renames --ignore-submodules=all --diff-filter=d --name-only)
  echo "checked.staged=$(image_git diff-index "${options[@]}" "$head" | wc -l)"
}

remove_stray_files() (
  local known='[0-9a-f]{2}/[0-9a-f]{38,62}|pack/pack-[^/]*\.(pack|idx|rev|promisor|mtimes)|info/alternates'
  cd "$gitdir/objects"
  rm -f pack/*.keep
  for pack in pack/*.pack; do [ -e "${pack%.pack}.idx" ] || rm -f -- "$pack"; done
  find . -type f -print0 | { grep -zEv "^\./($known)\$" || true; } | xargs -0 -r rm -f --
)

reachable_objects() { image_git rev-list --objects --indexed-objects --all "$head" | cut -d ' ' -f 1; }
all_objects() { image_git cat-file --batch-all-objects --batch-check='%(objectname)'; }

remove_objects() {
  local reachable found left alternates=$gitdir/objects/info/alternates
  [ ! -e "$gitdir/index" ] || image_git update-index --clear-resolve-undo
  reachable=$(reachable_objects | wc -l) || broken 'the history of /testbed is not complete'
  found=$(all_objects | wc -l)
  left=$found
  if [ "$found" != "$reachable" ] || [ -e "$alternates" ]; then
    image_git repack -a -d -n -q
    rm -rf "$gitdir"/objects/[0-9a-f][0-9a-f]
    left=$(all_objects | wc -l)
  fi
  [ "$left" = "$reachable" ] || broken "$((left - reachable)) objects beyond the history of /testbed cannot be removed"
  if [ -e "$alternates" ]; then
    rm -f "$alternates"
    [ "$(all_objects | wc -l)" = "$reachable" ] || broken 'the objects of /testbed are in another repository'
  fi
  echo "removed.objects=$((found - reachable))"
  echo "checked.objects=$reachable"
}

remove_worktrees
remove_refs
remove_modules
remove_settings
remove_stray_files
remove_objects
count_staged
[ -O "$gitdir" ] || chown -R -h --reference="$gitdir" "$gitdir"
echo "head=$head"
echo "relation=$relation"
"""
"""Prints `removed.WHAT=COUNT` and `checked.WHAT=COUNT`, and `nested=PATH` for each submodule's repository that stays.

All objects of the repository are counted against those that HEAD, the refs kept and the index need; more are packed
away, and counted again. Nothing of the work tree or the index is touched, but for linked work trees, which are removed
whole.
"""
