"""The shell side of a verifier: putting the hidden tests in, running them, telling what they left. POSIX sh."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from .sandbox_logs import SIZE_FUNCTION, size_call

NOT_READY, DISTURBED = 94, 95
"""Exit codes beside NOT_ROOT: the tests could not be put in; something goes on writing where they belong."""
MAX_TOLD = 50
"""So many of the files that were removed are told, and of the tools that were changed."""
_SETUP = """R="${AGENTCOMPASS_ROOT:-}"
[ -L "$R/logs" ] && rm -f "$R/logs"
ac_clear() {
  for ac_try in 1 2 3; do
    rm -rf "$1" 2>/dev/null
    if [ -d "$1" ] && [ ! -L "$1" ]; then
      [ -n "$(ls -A "$1")" ] || return 0
    elif [ ! -e "$1" ] && [ ! -L "$1" ]; then
      return 0
    fi
  done
  echo "$1 cannot be emptied" >&2
  exit DISTURBED
}
ac_clear "$R/tests"
ac_clear "$R/logs/verifier"
if [ -d "$R/logs/verifier" ]; then chmod 777 "$R/logs/verifier"; else mkdir -p -m 777 "$R/logs/verifier"; fi &&
  if [ -d "$R/tests" ]; then
    cp -a "${R}STAGED/." "$R/tests/" && rm -rf "${R}STAGED"
  else
    mv "${R}STAGED" "$R/tests"
  fi || exit NOT_READY
[ -f "$R/tests/test.sh" ] || { echo "$R/tests does not stay" >&2; exit DISTURBED; }
[ -x "$R/tests/test.sh" ] || chmod a+x "$R/tests/test.sh" || exit NOT_READY
"""
# A folder that stays and is empty is a volume of the image's, which can be filled but not removed.
_OPEN_TO_ALL = 'chmod -R a+rX "$R/tests" || exit NOT_READY\n'
# A settings file of pytest's in / (an agent's, say) would rule the hidden tests, were there none beside them.
_PIN_PYTEST = ': > "$R/tests/pytest.ini"\n'
_PYTHONS = (
    *("/usr/lib*/python3*", "/usr/local/lib*/python3*", "/opt/*/lib/python3*"),
    *('"$PWD"/*/lib/python3*', '"$PWD"/.venv/lib/python3*'),
    *(
        f"{home}/{place}/lib/python3*"
        for home in ("/root", "/home/*")
        for place in (".local", ".local/share/uv/*/*", ".pyenv/versions/*", ".cache/uv/archive-v*/*")
    ),
)
_STARTUP_PLACES = (
    "/etc/python3*",
    *_PYTHONS,
    *(f"{python}/*-packages/__pycache__" for python in _PYTHONS),
    *(f"{home}/.cache/uv/archive-v*/*/[su]*customize*" for home in ("/root", "/home/*")),
)
"""Debian's Pythons link their own start-up file to /etc; uv puts what its cache unpacked beside the tests' tools."""
# What an agent may have left to run inside the verifier's Python: start-up files made after the machine had started.
# A compiled one counts without its source, but Python itself makes it again and again, so that is not told.
# Field 22 of /proc/1/stat is its start in ticks since boot; a second is added for what the start itself wrote.
_STARTUP_FILES = r"""
if [ -z "$R" ] && read -r ac_stat < /proc/1/stat; then
  set -- ${ac_stat##*) }
  ac_ticks=${20:-0} ac_boot=0
  while read -r ac_key ac_value; do [ "$ac_key" = btime ] && ac_boot=$ac_value; done < /proc/stat
  if [ "$ac_boot" -gt 0 ] && [ "$ac_ticks" -gt 0 ]; then
    ac_since="@$((ac_boot + ac_ticks / 100 + 1))"
    ac_files=$(find /etc/ld.so.preload PLACES \
      -maxdepth 2 \( -name 'sitecustomize*' -o -name 'usercustomize*' -o -name ld.so.preload \) \
      -newerct "$ac_since" 2>/dev/null)
    [ -z "$ac_files" ] || printf '%s\n' "$ac_files" | while IFS= read -r ac_file; do
      rm -rf "$ac_file"
      case $ac_file in (*/__pycache__/*) continue ;; esac
      [ "${ac_told:=0}" -ge MAX_TOLD ] || printf 'removed=%s\n' "$ac_file"
      ac_told=$((ac_told + 1))
    done
    find /usr/local/bin /usr/local/sbin /usr/bin /usr/sbin /bin /sbin /root/.local/bin /root /etc /etc/profile.d \
      -maxdepth 1 \( NAMES -o -path "/etc/profile.d/*" \) ! -type d -newerct "$ac_since" 2>/dev/null |
      head -n MAX_TOLD | while IFS= read -r ac_file; do printf 'changed=%s\n' "$ac_file"; done
  fi
fi
"""
_TOOLS = (
    *("sh", "bash", "env", "cat", "grep", "diff", "python", "python3", "pip", "pip3", "pytest", "uv", "uvx"),
    *("apt-get", "curl", "wget", ".bashrc", ".profile", ".bash_profile", "bash.bashrc", "profile"),
)
"""Whoever replaces one of these may rule a verifier; agents have good reasons to install them as well."""
# The folder was empty a moment ago: who has written there since is neither this script nor the tests.
_STILL_EMPTY = """
for ac_file in "$R"/logs/verifier/*; do
  [ ! -e "$ac_file" ] || { echo "$ac_file is written by a process that was left running" >&2; exit DISTURBED; }
done
"""
_KIT = """
rm -rf "$R/verifier-kit"
mv "${R}STAGED-kit" "$R/verifier-kit" && chmod -R a+rX "$R/verifier-kit" || exit NOT_READY
if [ -f "$R/verifier-kit/setup.sh" ]; then sh "$R/verifier-kit/setup.sh" >&2 || exit NOT_READY; fi
"""
RUN = """R="${AGENTCOMPASS_ROOT:-}"
if command -v bash > /dev/null 2>&1; then ("$R/tests/test.sh"); else (sh "$R/tests/test.sh"); fi \\
  > "$R/logs/verifier/test-stdout.txt" 2>&1
printf 'code=%s\\n' "$?"
"""
"""Nothing of the tests' own is printed: what follows is alone on the stream, whatever they leave running."""
_REPORT = r"""R="${AGENTCOMPASS_ROOT:-}" V="${AGENTCOMPASS_ROOT:-}/logs/verifier"
ac_fifth() { ac_bytes=$5; }
ac_size_of() {
  ac_bytes=+
  while [ -n "$ac_left" ]; do
    ac_line=${ac_left%%"$ac_newline"*} ac_left=${ac_left#"$ac_line"} ac_left=${ac_left#"$ac_newline"}
    case $ac_line in (*" $1") ac_fifth $ac_line ;; esac
  done
  case $ac_bytes in ('' | *[!0-9]*) ac_bytes=+ ;; (*) [ "$ac_bytes" -le "$2" ] || ac_bytes=+ ;; esac
}
ac_look() {
  ac_bytes=- ac_left=$ac_list
  if [ -f "$V/$1" ] && [ ! -L "$V/$1" ]; then ac_size_of "$V/$1" "$2"; fi
  ac_sizes="$ac_sizes $ac_bytes"
}
ac_search() {
  [ -d "$1" ] || return 0
  ac_left=$ac_list
  ac_size_of "$1/." MOST_FOLDER_BYTES
  if [ "$ac_bytes" = + ]; then ac_more=more; return; fi
  for ac_path in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    if [ -e "$ac_path" ] || [ -L "$ac_path" ]; then
      case $ac_path in (KNOWN) ;; (*) ac_more=more; return ;; esac
    fi
  done
}
ac_put() {
  case $2 in ([0-9]*) [ ! -s "$V/$1" ] || head -c "$(($2 + 1))" "$V/$1" 2>/dev/null ;; esac
}
SIZE_FUNCTION
unset BLOCK_SIZE LS_BLOCK_SIZE BLOCKSIZE
ac_newline='
'
ac_list=$(ls -lnd LISTED 2>/dev/null) ac_sizes= ac_more=all
LOOKS
SEARCHES
case $ac_sizes in (*+*) ac_more=more ;; esac
echo "NONCE$ac_sizes $ac_more"
if [ $ac_more = more ]; then
MEASURES
fi
set -- $ac_sizes
PUTS
printf '\n%s\n' NONCE
"""
# One call of ls tells the sizes of all. A byte more than that is asked for, so that a size that is not true tears the
# report, and the files are fetched. A folder of more bytes than these has countless entries, which the shell should not
# spell out.
_MOST_FOLDER_BYTES = 64 * 1024


def setup_script(staged: str, *, closed: bool, pin_pytest: bool, kit: bool) -> str:
    """Wipes /tests and /logs/verifier, and moves what was uploaded to `staged` (and `staged`-kit) in place.

    `closed` tests, that not everyone may read, are opened. Removes, and prints as `removed=PATH`, start-up files of
    Python that were made while the agent had the sandbox. Leaves, and prints as `changed=PATH`, common tools and
    start-up files of shells that were.
    """
    parts = (_SETUP, _OPEN_TO_ALL * closed, _PIN_PYTEST * pin_pytest, _STARTUP_FILES, _STILL_EMPTY, _KIT * kit)
    script = "".join(parts)
    codes = {"NOT_READY": str(NOT_READY), "DISTURBED": str(DISTURBED), "MAX_TOLD": str(MAX_TOLD)}
    names = " -o ".join(f"-name {name}" for name in _TOOLS)
    return _filled(script, STAGED=staged, NAMES=names, PLACES=" ".join(_STARTUP_PLACES), **codes)


def report_script(nonce: str, files: Mapping[str, int], folders: Mapping[PurePosixPath, int]) -> str:
    """Prints the `files` (name -> most bytes) of /logs/verifier, and whether there is more there or in `folders`.

    First a line `NONCE SIZE... all|more`: for each file its size, `-` where there is no such regular file, `+` where it
    is larger than its most. After `more`, what `ac_size` tells of each of `folders` (path -> most bytes), named by its
    path. Then the files' bytes, one after the other, and a line `NONCE`. Links, pipes and devices are never opened.
    """
    paths = [f'"$R{folder}"' for folder in folders]
    known = [f'"$V/{name}"' for name in files]
    measures = [size_call(str(folder), f'"$R{folder}"', most) for folder, most in folders.items()]
    return _filled(
        _REPORT,
        SIZE_FUNCTION=SIZE_FUNCTION,
        MOST_FOLDER_BYTES=str(_MOST_FOLDER_BYTES),
        LISTED=" ".join([*known, *(f"{path}/." for path in paths)]),
        LOOKS="\n".join(f"ac_look {name} {most}" for name, most in files.items()),
        SEARCHES="\n".join(f"ac_search {path}" for path in paths),
        PUTS="\n".join(f'ac_put {name} "${number}"' for number, name in enumerate(files, 1)),
        KNOWN=" | ".join(known),
        MEASURES="".join(measures),
        NONCE=nonce,
    )


def _filled(script: str, **values: str) -> str:
    return re.sub("|".join(map(re.escape, values)), lambda match: values[match[0]], script)
