"""POSIX sh scripts that keep a container alive, run a command so that its end can be seen, and kill it whole.

They need a shell and /proc, no bash, no `ps`, no `timeout`. Every process of a command carries two marks: a variable in
its environment, and an inert soft limit (RLIMIT_RSS, which Linux ignores, set to more than any machine's memory). The
limit survives `env -i`, setsid, double forks and setuid, and anyone may read it in /proc/PID/limits.
"""

import math
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

MARK_VARIABLE = "AGENTCOMPASS_EXEC"
SHELL = "/bin/sh"
STOP_SIGNAL = "SIGUSR2"
LONGEST_ARGUMENTS = 100_000
"""Bytes of script or arguments that go on a command line; the kernel takes 128 KiB for one argument."""

_UNUSED_LIMIT_KIB = 1 << 41

_KEEP_ALIVE = r"""# agentcompass: starting
umask 022
[ -z "$3" ] || [ -d "$3" ] || mkdir -p -m 0777 "$3"
lifetime=$1 loop=$2
shift 3
[ "$#" = 0 ] || { mkdir -p "$@" && chmod 1777 "$@"; } || for directory; do
    mkdir -p "$directory" && chmod 1777 "$directory"
done
AGENTCOMPASS_KEEP_ALIVE=$loop exec /bin/sh -c 'eval "$AGENTCOMPASS_KEEP_ALIVE"' agentcompass "$lifetime"
"""

_KEEP_ALIVE_LOOP = r"""trap 'exit 0' USR2
now() { read -r up idle </proc/uptime && up=${up%%.*}; }
now || exit 1
end=$((up + $1))
while now && left=$((end - up)) && [ "$left" -gt 0 ]; do
    [ "$left" -le 30 ] || left=30
    sleep "$left" &
    wait "$!"
    [ "$?" != 127 ] || exit 1
done
"""

# The nonce goes on in a pipe. An old bash makes it a file: where it has no room for one, the word stays.
_HIDE_NONCE = r"""agentcompass_nonce=$1 agentcompass_supervise=$2
shift 2
command exec /bin/sh -c "$agentcompass_supervise" agentcompass "" "$@" 9>&2 2>/dev/null 8<<END
$agentcompass_nonce
END
exec /bin/sh -c "$agentcompass_supervise" agentcompass "$agentcompass_nonce" "$@" 9>&2 2>/dev/null
"""

# A command may leave its output non-blocking and full: then the end line is refused until some of it has been read.
_SUPERVISE = r"""ulimit -S -m "$2"
agentcompass_nonce=$1
[ -n "$1" ] || { read -r agentcompass_nonce <&8; exec 8<&-; }
agentcompass_end() {
    agentcompass_tries=0
    until echo "$1"; do
        [ "$agentcompass_tries" -lt 300 ] || return
        agentcompass_tries=$((agentcompass_tries + 1))
        sleep 0.02 || sleep 1
    done
}
if [ "$3" = wait ]; then
    agentcompass_tries=0
    while read -r agentcompass_line </proc/1/cmdline; do
        case $agentcompass_line in *'# agentcompass: starting'*) ;; *) break ;; esac
        [ "$agentcompass_tries" -lt 300 ] || break
        agentcompass_tries=$((agentcompass_tries + 1))
        sleep 0.02 || sleep 1
    done
fi
(
    exec 2>&9 9>&-
    cd "$4" || exit 1
    unset OLDPWD
    exec <"$6"
    agentcompass_shell=/bin/sh agentcompass_form=$7
    shift 7
    [ "$agentcompass_form" != argv ] || exec "$@"
    agentcompass_text=$1
    shift
    [ "$agentcompass_form" != argv-file ] || exec "$@" /bin/sh "$agentcompass_text"
    if command -v bash >/dev/null 2>&1; then agentcompass_shell=bash; fi
    [ "$agentcompass_form" != script-file ] || exec "$@" "$agentcompass_shell" "$agentcompass_text"
    exec "$@" "$agentcompass_shell" -c "$agentcompass_text" "${agentcompass_shell##*/}"
)
set -- "$agentcompass_nonce:$?" "$5"
[ -z "$2" ] || rm -rf "$2"
agentcompass_end "$1"
agentcompass_end "$1" >&9
"""

_KILL = r"""set -f
variable=$1 limit=$2 folder=$3 alone=$4 born=$5
found= users= passes=0
read_limit() {
    soft=
    while read -r a b c soft rest; do
        case "$a $b $c" in 'Max resident set') return ;; esac
    done 2>/dev/null <"/proc/$1/limits"
    soft=
}
read_stat() {
    line= last=
    while IFS= read -r line || [ -n "$line" ]; do last=$line; done 2>/dev/null <"/proc/$1/stat"
    set -- ${last##*)}
    state=$1 parent=$2 start=${20}
    case $state in '' | Z | X) return 1 ;; esac
}
read_variables() {
    line= marks=
    { true <"/proc/$1/environ"; } 2>/dev/null || return
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in *"$variable"*) marks=own ;; *AGENTCOMPASS_*) marks=${marks:-other} ;; esac
        line=
    done 2>/dev/null <"/proc/$1/environ"
}
note_user() {
    while read -r key value rest; do
        case $key in Uid:) uid=$value ;; Gid:) gid=$value ;; esac
    done 2>/dev/null <"/proc/$1/status"
    case " $users " in *" $uid:$gid "*) ;; *) users="$users $uid:$gid" ;; esac
}
own() {
    [ -n "$born" ] && [ "$born" -le "$start" ] || born=$start
}
is_own() {
    read_limit "$1"
    case $soft in
    "$limit") read_stat "$1" && own; return ;;
    225[1-6]????????????) return 1 ;;
    esac
    read_stat "$1" || return 1
    case $found in *" $parent "*) return 0 ;; esac
    read_variables "$1" || { note_user "$1"; return 1; }
    case $marks in own) own; return ;; other) return 1 ;; esac
    [ -n "$alone" ] && [ -n "$born" ] && [ "$parent" = 1 ] && [ "$start" -ge "$born" ]
}
while [ "$passes" -lt 100 ]; do
    found=' ' before=
    while [ "$found" != "$before" ]; do
        before=$found
        set +f
        set -- /proc/[0-9]*
        set -f
        for process; do
            process=${process#/proc/}
            case " 1 $$ $found" in *" $process "*) continue ;; esac
            is_own "$process" || continue
            kill -STOP "$process" 2>/dev/null
            found="$found$process "
        done
    done
    [ "$found" != ' ' ] || break
    kill -KILL $found 2>/dev/null
    passes=$((passes + 1))
    [ "$passes" -lt 3 ] || sleep 0.02 2>/dev/null || sleep 1 2>/dev/null
done
[ -z "$folder" ] || rm -rf "$folder"
echo "born $born"
for user in $users; do echo "user $user"; done
"""


@dataclass(frozen=True)
class Mark:
    """What tells one command's processes and the end of its output from all others."""

    name: str = field(default_factory=lambda: secrets.token_hex(16))
    """Value of MARK_VARIABLE in the environment of every process of the command."""
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    """Begins the line `NONCE:STATUS` that ends both of its streams."""

    @property
    def limit_kib(self) -> int:
        """The soft limit that all its processes inherit; in bytes it has 16 digits and begins with 2251 to 2256."""
        return _UNUSED_LIMIT_KIB + int(self.name[:8], 16)


@dataclass(frozen=True)
class Invocation:
    """What the supervising shell runs, with where it finds it."""

    argv: tuple[str, ...]
    script: str | None
    cwd: str
    stdin_path: str = "/dev/null"
    script_path: str = ""
    """Where the text of `script_file` lies, when there is one."""
    folder: str = ""
    """Removed when the command has ended."""
    odd_variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that a shell does not pass on, because of their names; the program `env` sets them."""
    prefix: tuple[str, ...] = ()
    """A program and its first arguments, which runs the rest: how another user is taken on from within."""
    wait_for_start: bool = False
    """Whether the keep-alive may still be making its directories."""


def keep_alive_argv(lifetime_s: float, workspace: str, directories: Sequence[PurePosixPath]) -> list[str]:
    """The first process of a container: makes `directories` (1777), and `workspace` if missing, and ends by itself.

    It ends at once on STOP_SIGNAL, reaps orphans, and outlives `kill -9 -1`. Commands inside should not end it by
    accident: SIGTERM does nothing, and no word of its command line is one that somebody gives to `pkill -f`.
    """
    lifetime = str(math.ceil(lifetime_s))
    return [SHELL, "-c", _KEEP_ALIVE, "agentcompass", lifetime, _KEEP_ALIVE_LOOP, workspace, *map(str, directories)]


def supervised_argv(mark: Mark, invocation: Invocation) -> list[str]:
    """Runs the invocation and prints the end line of `mark` to both streams when its first process has ended.

    The command must be started with `MARK_VARIABLE=mark.name` in its environment. No command line, environment or open
    file shows it the nonce: it could forge its end only where it may trace the shell that supervises it.
    """
    wait = "wait" if invocation.wait_for_start else ""
    head = [str(mark.limit_kib), wait, invocation.cwd, invocation.folder, invocation.stdin_path]
    return [SHELL, "-c", _HIDE_NONCE, "agentcompass", mark.nonce, _SUPERVISE, *head, *_form(invocation)]


def script_file(argv: Sequence[str], script: str | None, longest: int = LONGEST_ARGUMENTS) -> str | None:
    """The text to be put into a file, when script or arguments have more than `longest` bytes; else None.

    Long arguments become a script of one quoted command, so that a shell's builtin (printf) takes what no exec could.
    """
    if script is not None:
        return script if _size(script) > longest else None
    if sum(_size(word) + 1 for word in argv) <= longest:
        return None
    return " ".join(map(shlex.quote, argv)) + "\n"


def killer_argv(mark: Mark, folder: str = "", *, alone: bool = False, born: str = "") -> list[str]:
    """Kills every process of the command that `mark` marks, until none is left, and removes `folder`. Run it as root.

    Some programs (su and sudo with PAM) take both marks away. Where the command was `alone` in the sandbox, orphans
    without a mark that were born after it are its own, too. Root without CAP_SYS_PTRACE cannot read other users'
    environments: what is printed (see `found_by_killer`) names those users, as whom it is to be run again.
    """
    limit_bytes = str(mark.limit_kib * 1024)
    words = [f"{MARK_VARIABLE}={mark.name}", limit_bytes, folder, "alone" if alone else "", born]
    return [SHELL, "-c", _KILL, "agentcompass", *words]


def found_by_killer(printed: str) -> tuple[str, list[str]]:
    """When the command was born (for `killer_argv`), and the users (`UID:GID`) whose processes root could not tell."""
    words = [line.partition(" ") for line in printed.splitlines()]
    born = next((value for name, _, value in words if name == "born"), "")
    return born, [value for name, _, value in words if name == "user"]


def kill_all_argv() -> list[str]:
    """Kills (as root) every process but the container's first."""
    return [SHELL, "-c", "kill -KILL -1"]


def _form(invocation: Invocation) -> list[str]:
    assignments = [f"{name}={value}" for name, value in invocation.odd_variables.items()]
    before = [*invocation.prefix, *(["env", *assignments] if assignments else [])]
    if invocation.script is not None:
        kind = "script-file" if invocation.script_path else "script"
        return [kind, invocation.script_path or invocation.script, *before]
    if invocation.script_path:
        return ["argv-file", invocation.script_path, *before]
    return ["argv", *before, *invocation.argv]


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
