"""POSIX sh scripts for what Modal has no call for: the first answer, another user, files, and killing everything."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from ...support.shell_supervision import SHELL

MISSING, NO_FILE, TOO_LARGE = 44, 45, 46
"""Exit codes of the scripts below."""

_ANSWER = r"""umask 022
[ -z "$1" ] || [ -d "$1" ] || { mkdir -p "$1" && chmod 0777 "$1"; } || exit 1
shift
for directory; do
    mkdir -p "$directory" && chmod 1777 "$directory" || exit 1
done
tar= pids=
command -v tar >/dev/null 2>&1 && tar=tar
for process in /proc/[0-9]*; do
    [ "${process#/proc/}" = "$$" ] || pids="$pids ${process#/proc/}"
done
uid=$(id -u 2>/dev/null)
printf '%s\0' "$uid" "$tar" "$pids" "$PWD"
"""

_AS_USER = r"""ac_user=$1 ac_home=$2 ac_group= ac_name= ac_uid= ac_gid= ac_here=$PWD
shift 2
case $ac_user in *:*) ac_group=${ac_user#*:} ac_user=${ac_user%%:*} ;; esac
while IFS=: read -r ac_1 ac_2 ac_3 ac_4 ac_5 ac_6 ac_7; do
    if [ "$ac_1" = "$ac_user" ] || [ "$ac_3" = "$ac_user" ]; then
        ac_name=$ac_1 ac_uid=$ac_3 ac_gid=$ac_4 ac_home=${ac_home:-$ac_6}
        break
    fi
done 2>/dev/null </etc/passwd
if [ -z "$ac_uid" ]; then
    case $ac_user in *[!0-9]* | '') echo "there is no user $ac_user in the sandbox" >&2; exit 126 ;; esac
    ac_uid=$ac_user ac_gid=0
fi
case $ac_group in
'') ;;
*[!0-9]*)
    ac_gid=
    while IFS=: read -r ac_1 ac_2 ac_3 ac_4; do
        [ "$ac_1" != "$ac_group" ] || ac_gid=$ac_3
    done 2>/dev/null </etc/group
    [ -n "$ac_gid" ] || { echo "there is no group $ac_group in the sandbox" >&2; exit 126; } ;;
*) ac_gid=$ac_group ;;
esac
export HOME="${ac_home:-/}"
if setpriv --reuid "$ac_uid" --regid "$ac_gid" --clear-groups true 2>/dev/null; then
    exec setpriv --reuid "$ac_uid" --regid "$ac_gid" --clear-groups -- "$@"
fi
if chroot --userspec "$ac_uid:$ac_gid" / true 2>/dev/null; then
    exec chroot --userspec "$ac_uid:$ac_gid" / /bin/sh -c 'cd "$0" && exec "$@"' "$ac_here" "$@"
fi
if [ -n "$ac_name" ] && [ -z "$ac_group" ] && su -s /bin/sh -c true -- "$ac_name" >/dev/null 2>&1; then
    exec su -s /bin/sh -c 'export HOME="$0" && cd "$1" && shift && exec "$@"' -- "$ac_name" "$HOME" "$ac_here" "$@"
fi
echo "the image has no setpriv, chroot or su that could run a command as user $ac_user" >&2
exit 126
"""

_KILL_ALL = r"""set -f
kept=" $* $$ 1 " passes=0
alive() {
    line= last=
    while IFS= read -r line || [ -n "$line" ]; do last=$line; done 2>/dev/null <"/proc/$1/stat"
    case ${last##*)} in '' | ' Z'* | ' X'*) return 1 ;; esac
}
while [ "$passes" -lt 100 ]; do
    found=
    set +f
    set -- /proc/[0-9]*
    set -f
    for process; do
        process=${process#/proc/}
        case $kept in *" $process "*) continue ;; esac
        alive "$process" && found="$found $process"
    done
    [ -n "$found" ] || exit 0
    kill -KILL $found 2>/dev/null
    passes=$((passes + 1))
done
exit 1
"""

_READ = r"""[ -e "$1" ] || exit 44
[ -f "$1" ] || exit 45
size=$(wc -c <"$1") || exit 1
[ "$size" -le "$2" ] || { echo "$size" >&2; exit 46; }
exec cat "$1"
"""

_PACK = r"""export LC_ALL=C
if [ -d "$1" ]; then
    cd "$1" && folder=$(pwd -P) && cd -P .. || exit 1
    exec tar -cf - "./${folder##*/}"
fi
[ -e "$1" ] || exit 44
cd "${1%/*}/" && exec tar -chf - "./${1##*/}"
"""

_UNPACK = r"""umask 022
exec tar -xpf - -C /
"""

_FOLDERS = r"""umask 022
for folder; do [ -d "$folder" ] || mkdir -p "$folder" || exit 1; done
"""

_MODES = r"""while [ "$#" -gt 1 ]; do chmod "$1" "$2" || exit 1; shift 2; done
"""

_LINKS = r"""while [ "$#" -gt 1 ]; do rm -f "$2"; ln -s "$1" "$2" || exit 1; shift 2; done
"""


@dataclass(frozen=True)
class FirstAnswer:
    """What a sandbox tells of itself when it is new."""

    is_root: bool
    has_tar: bool
    first_processes: tuple[str, ...]
    """Pids of what runs before any command: the keep-alive, and Modal's own."""
    working_dir: PurePosixPath


def answer_argv(workspace: PurePosixPath | None, directories: Sequence[PurePosixPath]) -> list[str]:
    """Makes the directories (1777) and the workspace if missing, and tells what `read_answer` reads."""
    return [SHELL, "-c", _ANSWER, "agentcompass", str(workspace or ""), *map(str, directories)]


def read_answer(printed: bytes) -> FirstAnswer:
    """Raises ValueError where it is none."""
    uid, tar, pids, folder, end = printed.decode("utf-8", "surrogateescape").split("\0")
    if end:
        raise ValueError("an answer with a rest")
    return FirstAnswer(uid in ("0", ""), bool(tar), tuple(pids.split()), PurePosixPath(folder or "/"))


def as_user_prefix(user: str, home: str = "") -> tuple[str, ...]:
    """Runs the words that follow it as `user` (name or uid, with an optional `:group`); root may.

    HOME is `home`, or the user's own. Exit code 126 and a line on stderr where it cannot be done: nothing is ever run
    as somebody else.
    """
    return (SHELL, "-c", _AS_USER, "agentcompass", user, home)


def kill_all_argv(kept: Sequence[str]) -> list[str]:
    """Kills every process but those with the pids `kept`, the first one and itself, until none is left."""
    return [SHELL, "-c", _KILL_ALL, "agentcompass", *kept]


def read_argv(path: PurePosixPath, max_bytes: int) -> list[str]:
    """Prints a file; MISSING, NO_FILE, or TOO_LARGE with its size on stderr."""
    return [SHELL, "-c", _READ, "agentcompass", str(path), str(max_bytes)]


def pack_argv(path: PurePosixPath) -> list[str]:
    """Prints a tar archive with one name at its top; MISSING where there is nothing."""
    return [SHELL, "-c", _PACK, "agentcompass", str(path)]


def unpack_argv() -> list[str]:
    """Unpacks a tar archive from its standard input at the root."""
    return [SHELL, "-c", _UNPACK]


def folders_argv(paths: Sequence[str]) -> list[str]:
    """Makes folders, parents first."""
    return [SHELL, "-c", _FOLDERS, "agentcompass", *paths]


def modes_argv(pairs: Sequence[str]) -> list[str]:
    """Takes mode, path, mode, path, ..."""
    return [SHELL, "-c", _MODES, "agentcompass", *pairs]


def links_argv(pairs: Sequence[str]) -> list[str]:
    """Takes target, link, target, link, ..."""
    return [SHELL, "-c", _LINKS, "agentcompass", *pairs]
