"""Bash functions that save what is at some paths of a tree, and put it back."""

from collections.abc import Sequence

SAVE_AND_PUT_BACK = r"""
# Sets `obstacle` to the first part of the way to a path that is no directory, if there is one.
find_obstacle() {
  local way=. rest=$1
  obstacle=
  while [[ $rest == */* ]]; do
    way=$way/${rest%%/*}
    rest=${rest#*/}
    if [ -L "$way" ] || { [ -e "$way" ] && [ ! -d "$way" ]; }; then obstacle=$way; return; fi
  done
}
# What lies beyond a link or a file is not the tree's: it is left alone, here and in put_back.
save() { # FOLDER NUMBER PATH
  [ -d "$1" ] || mkdir -p "$1" || return 1
  find_obstacle "$3"
  if [ -n "$obstacle" ]; then : > "$1/$2.left-alone"
  elif [ -e "./$3" ] || [ -L "./$3" ]; then cp -a -- "./$3" "$1/$2.entry"; fi
}
put_back() { # FOLDER NUMBER PATH
  [ -e "$1/$2.left-alone" ] && return
  find_obstacle "$3"
  [ -n "$obstacle" ] && rm -f -- "$obstacle"
  if [ -e "./$3" ] || [ -L "./$3" ]; then rm -rf -- "./$3"; fi
  if [ -e "$1/$2.entry" ] || [ -L "$1/$2.entry" ]; then
    mkdir -p -- "$(dirname -- "./$3")" && cp -a -- "$1/$2.entry" "./$3"
  fi
}
"""


def bash_array(name: str, paths: Sequence[str]) -> str:
    """An assignment in ASCII, whatever bytes the paths are of."""
    words = " ".join(f"$'{_escaped(path)}'" for path in paths)
    return f"{name}=({words})\n"


def _escaped(path: str) -> str:
    return "".join(
        chr(byte) if chr(byte).isalnum() and byte < 128 else f"\\{byte:03o}"
        for byte in path.encode("utf-8", "surrogateescape")
    )
