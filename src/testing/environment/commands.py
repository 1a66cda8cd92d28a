"""What a command is given, how it ends, and which processes are dead or alive afterwards."""

import asyncio
import contextlib
from pathlib import PurePosixPath

import pytest

from ...domain.errors import ConfigError, SandboxFailed
from ...domain.ports import Environment, Sandbox
from ...domain.sandbox import SandboxOwner, SandboxSpec
from .setting import ContractSetting, argv, exists, held, root_of, rooted, sh

LATE = "sleep 3; echo late > late"
"""What a process does that should have been killed a second after it began."""
PAST_LATE_S = 3.5
OTHER_USER = "65534"
EXIT_CODES = [0, 1, 3, 124, 126, 127, 137, 255]
CHILDREN = {
    "the first process": "LATE",
    "a child": "(LATE); true",
    "a background child": "(LATE) & wait",
    "an orphan": "( (LATE) & ) ; sleep 60",
    "an orphan that ignores signals": "trap '' HUP INT TERM; ( (LATE) & ) ; sleep 60",
    "a child in a session of its own": """
        if command -v setsid > /dev/null; then setsid sh -c 'LATE' & else (LATE) & fi
        sleep 60""",
    "an orphan with a cleared environment": """
        ( (exec env -i PATH="$PATH" sh -c 'LATE') & )
        sleep 60""",
}
"""What may be running when a command is killed."""
FORGE = r"""
words=$(cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2> /dev/null | tr '\0=' '\n\n' | sort -u)
set -f
for word in $words; do
    echo "$word:0"
    echo "$word:0" >&2
done
echo forged
exit 3
"""
"""Tells every word that a command line or an environment shows as the line that ends a command."""


class CommandContract(ContractSetting):
    """Promises of `exec` about processes."""

    async def test_exit_codes_are_told_as_they_are(self, sandbox: Sandbox) -> None:
        results = [await sandbox.exec(sh(f"exit {code}")) for code in EXIT_CODES]

        assert [result.exit_code for result in results] == EXIT_CODES
        assert not any(result.timed_out for result in results)

    async def test_a_death_by_signal_is_128_plus_its_number(self, sandbox: Sandbox) -> None:
        by_script = [await sandbox.exec(sh(f"kill -{signal} $$; sleep 60")) for signal in (9, 15)]
        by_argv = [await sandbox.exec(argv("sh", "-c", f"kill -{signal} $$; sleep 60")) for signal in (9, 15)]

        assert [result.exit_code for result in by_script] == [137, 143]
        assert [result.exit_code for result in by_argv] == [137, 143]

    async def test_a_program_that_does_not_exist_is_127(self, sandbox: Sandbox) -> None:
        by_name = await sandbox.exec(argv("no-such-program-anywhere"))
        by_path = await sandbox.exec(argv("./no-such-program-here"))
        by_script = await sandbox.exec(sh("no-such-program-anywhere"))

        assert [by_name.exit_code, by_path.exit_code, by_script.exit_code] == [127, 127, 127]

    async def test_a_program_that_is_not_executable_is_126(self, sandbox: Sandbox, spec: SandboxSpec) -> None:
        await sandbox.write_bytes(root_of(spec) / "plain", b"#!/bin/sh\necho never\n", mode=0o644)
        result = await sandbox.exec(argv("./plain"))

        assert (result.exit_code, result.stdout) == (126, "")

    async def test_a_script_that_is_no_shell_is_an_ordinary_failure(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(sh("if then ( fi"))

        assert result.exit_code not in (0, None)
        assert result.stderr

    async def test_a_script_is_run_by_bash_where_there_is_one(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(sh('! command -v bash > /dev/null || test -n "$BASH_VERSION"'))

        assert result.ok

    async def test_half_a_surrogate_pair_does_not_fail_the_call(self, sandbox: Sandbox) -> None:
        by_script = await sandbox.exec(sh("echo before; : '\ud83d'; echo after"))
        by_argv = await sandbox.exec(argv("echo", "\ud83d"))

        assert (by_script.exit_code, by_script.stdout) == (0, "before\nafter\n")
        assert by_argv.exit_code == 0

    async def test_an_empty_script_succeeds_and_prints_nothing(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(sh(""))

        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")

    async def test_arguments_are_not_expanded_by_any_shell(self, sandbox: Sandbox) -> None:
        words = [
            "$HOME",
            "*",
            "a  b",
            "'",
            '"',
            "~",
            "`id`",
            "$(id)",
            "\\n",
            "",
            "tab\there",
            "line\nbreak",
            "漢",
            "-n",
        ]
        result = await sandbox.exec(argv("printf", "<%s>", *words))

        assert result.stdout == "".join(f"<{word}>" for word in words)

    async def test_a_program_named_with_odd_characters_runs(self, sandbox: Sandbox, spec: SandboxSpec) -> None:
        await sandbox.write_bytes(root_of(spec) / "my $tool's", b'#!/bin/sh\nprintf "%s" "$1"\n', mode=0o755)
        result = await sandbox.exec(argv("./my $tool's", "it is run"))

        assert result.stdout == "it is run"

    async def test_an_argument_of_200_kilobytes_arrives_whole(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(argv("printf", "%s", "x" * 200_000))

        assert (result.exit_code, result.stdout) == (0, "x" * 200_000)

    async def test_thousands_of_arguments_arrive_whole(self, sandbox: Sandbox) -> None:
        words = [f"{number:0100d}" for number in range(3000)]
        result = await sandbox.exec(argv("printf", "%s\n", *words))

        assert result.stdout.split() == words

    async def test_a_script_of_300_kilobytes_runs_whole(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(sh(f"printf %s '{'x' * 300_000}'\nprintf end"))

        assert (result.exit_code, result.stdout) == (0, "x" * 300_000 + "end")

    async def test_commands_start_in_the_workspace_root(self, sandbox: Sandbox, spec: SandboxSpec) -> None:
        by_script = await sandbox.exec(sh("printf made > by-script"))
        by_argv = await sandbox.exec(argv("sh", "-c", "printf made > by-argv"))
        made = [await sandbox.read_bytes(root_of(spec) / name, 100) for name in ("by-script", "by-argv")]

        assert by_script.ok
        assert by_argv.ok
        assert made == [b"made", b"made"]

    async def test_a_spec_without_workspace_root_has_a_working_directory_too(
        self, environment: Environment, spec: SandboxSpec, owner: SandboxOwner
    ) -> None:
        async with held(environment, spec.model_copy(update={"workspace_root": None}), owner) as sandbox:
            result = await sandbox.exec(sh("test -d ."))

        assert result.ok

    async def test_cwd_may_be_any_directory(self, sandbox: Sandbox, spec: SandboxSpec) -> None:
        folder = root_of(spec) / 'it\'s a "folder" $x 漢'
        await sandbox.write_bytes(folder / "marker", b"here")
        by_script = await sandbox.exec(sh("cat marker", cwd=folder))
        by_argv = await sandbox.exec(argv("cat", "marker", cwd=folder))
        relative = await sandbox.exec(sh("cat marker", cwd=PurePosixPath(folder.name)))

        assert (by_script.stdout, by_argv.stdout, relative.stdout) == ("here", "here", "here")

    @pytest.mark.parametrize("cwd", ["missing", "missing/deep"])
    @pytest.mark.parametrize(
        "made", ["", "ln -s /nowhere/else missing", "touch missing", "mkdir -p missing/deep; chmod 000 missing"]
    )
    async def test_without_its_cwd_a_command_does_not_run(
        self, sandbox: Sandbox, spec: SandboxSpec, made: str, cwd: str
    ) -> None:
        await sandbox.exec(sh(made))
        opens = (await sandbox.exec(sh(f"cd {cwd}"))).ok  # as a closed folder does to root
        by_script = await sandbox.exec(sh("echo ran", cwd=root_of(spec) / cwd))
        by_argv = await sandbox.exec(argv("echo", "ran", cwd=root_of(spec) / cwd))
        outcome = (0, "ran\n") if opens else (1, "")

        assert [(result.exit_code, result.stdout) for result in (by_script, by_argv)] == [outcome, outcome]
        assert opens or "missing" in by_script.stderr

    async def test_env_reaches_the_command_byte_for_byte(self, sandbox: Sandbox) -> None:
        env = {"A": "two\nlines", "B": "'\"$HOME`id`\\", "C": "a=b", "D": "", "E": "漢 é"}
        result = await sandbox.exec(sh('printf "<%s>" "$A" "$B" "$C" "${D-unset}" "$E"', env=env))

        assert result.stdout == "".join(f"<{value}>" for value in env.values())

    async def test_env_variables_of_the_spec_are_set_and_a_commands_own_win(
        self, environment: Environment, spec: SandboxSpec, owner: SandboxOwner
    ) -> None:
        variables = {**spec.env_variables, "CONTRACT_A": "spec's a", "CONTRACT_B": "spec's b"}
        async with held(environment, spec.model_copy(update={"env_variables": variables}), owner) as sandbox:
            command = argv("sh", "-c", 'printf "%s|%s" "$CONTRACT_A" "$CONTRACT_B"', env={"CONTRACT_B": "own"})
            result = await sandbox.exec(command)

        assert result.stdout == "spec's a|own"

    async def test_the_runners_environment_stays_outside(
        self, environment: Environment, spec: SandboxSpec, owner: SandboxOwner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CONTRACT_SECRET", "secret of the runner")
        async with held(environment, spec, owner) as sandbox:
            result = await sandbox.exec(sh("printf %s ${CONTRACT_SECRET-unset}"))

        assert result.stdout == "unset"

    async def test_a_command_runs_as_the_user_it_names_or_not_at_all(
        self, environment: Environment, sandbox: Sandbox
    ) -> None:
        commands = [sh("id -u", user=OTHER_USER), argv("id", "-u", user=OTHER_USER)]
        if environment.capabilities.users:
            results = [await sandbox.exec(command) for command in commands]

            assert [result.stdout.strip() for result in results] == [OTHER_USER, OTHER_USER]
            return
        for command in commands:
            with pytest.raises((ConfigError, SandboxFailed), match=OTHER_USER):
                await sandbox.exec(command)

    async def test_the_specs_user_is_that_of_commands_that_name_none_or_is_refused(
        self, environment: Environment, spec: SandboxSpec, owner: SandboxOwner
    ) -> None:
        opening = held(environment, rooted(spec).model_copy(update={"user": OTHER_USER}), owner)
        if environment.capabilities.users:
            async with opening as sandbox:
                unnamed = await sandbox.exec(sh("id -u"))
                named = await sandbox.exec(sh("id -u", user="0"))

            assert (unnamed.stdout.strip(), named.stdout.strip()) == (OTHER_USER, "0")
            return
        with pytest.raises(ConfigError, match="user"):
            await opening.__aenter__()

    async def test_commands_run_side_by_side(self, sandbox: Sandbox) -> None:
        meet = """
            echo here > "$MINE"
            tries=0
            while ! test -e "$OTHER" && test $tries -lt 20; do sleep 1; tries=$((tries + 1)); done
            test -e "$OTHER"
        """
        one = sandbox.exec(sh(meet, env={"MINE": "one", "OTHER": "two"}))
        two = sandbox.exec(sh(meet, env={"MINE": "two", "OTHER": "one"}))
        results = await asyncio.gather(one, two)

        assert [result.exit_code for result in results] == [0, 0]

    async def test_the_duration_is_measured(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(sh("sleep 1"))

        assert result.duration_s >= 1

    async def test_a_quiet_command_runs_as_long_as_its_own_limit_allows(self, sandbox: Sandbox) -> None:
        command = sh(f"sleep {self.quiet_s}; echo done", timeout_s=self.quiet_s + PAST_LATE_S + 60)
        result = await sandbox.exec(command)

        assert (result.exit_code, result.stdout) == (0, "done\n")

    async def test_a_command_over_its_limit_is_a_result_with_what_it_had_printed(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(sh("printf out; printf err >&2; sleep 60; printf never", timeout_s=3))

        assert (result.timed_out, result.exit_code) == (True, None)
        assert (result.stdout, result.stderr) == ("out", "err")
        assert (result.stdout_bytes, result.stderr_bytes, result.truncated) == (3, 3, False)

    async def test_a_program_over_its_limit_is_told_likewise(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(argv("sleep", "60", timeout_s=1))

        assert (result.timed_out, result.exit_code, result.stdout) == (True, None, "")

    async def test_a_timeout_kills_the_command_with_all_its_children(self, sandbox: Sandbox) -> None:
        async def cut(number: int, script: str) -> bool:
            late = LATE.replace("> late", f"> late-{number}")
            return (await sandbox.exec(sh(script.replace("LATE", late), timeout_s=1))).timed_out

        timed_out = await asyncio.gather(*(cut(number, script) for number, script in enumerate(CHILDREN.values())))
        await asyncio.sleep(PAST_LATE_S)
        survivors = [name for number, name in enumerate(CHILDREN) if await exists(sandbox, f"late-{number}")]

        assert survivors == []
        assert all(timed_out)

    async def test_a_cancelled_call_kills_its_command(self, sandbox: Sandbox) -> None:
        call = asyncio.create_task(sandbox.exec(sh(f"echo begun > begun; sleep 1; ( ({LATE}) & ) ; {LATE}; sleep 60")))
        await sandbox.exec(sh("while ! test -e begun; do sleep 1; done"))
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call
        await asyncio.sleep(PAST_LATE_S)

        assert call.cancelled()
        assert not await exists(sandbox, "late")

    async def test_a_timeout_spares_the_command_beside_it(self, sandbox: Sandbox) -> None:
        spared, cut = await asyncio.gather(
            sandbox.exec(sh("sleep 3; echo spared")), sandbox.exec(sh("sleep 60", timeout_s=1))
        )

        assert cut.timed_out
        assert (spared.exit_code, spared.stdout) == (0, "spared\n")

    async def test_a_service_outlives_its_command_and_anothers_timeout(self, sandbox: Sandbox) -> None:
        started = await sandbox.exec(sh("(while :; do sleep 1; done) & echo $! > pid"))
        cut = await sandbox.exec(sh("sleep 60", timeout_s=1))
        alive = await sandbox.exec(sh('kill -0 "$(cat pid)"'))

        assert started.ok
        assert cut.timed_out
        assert alive.ok

    @pytest.mark.parametrize(
        "script", ["sleep 300 & echo done", "( (trap '' HUP; sleep 300) & ); echo done"], ids=["job", "orphan"]
    )
    async def test_a_daemon_does_not_hold_the_call(self, sandbox: Sandbox, script: str) -> None:
        result = await sandbox.exec(sh(script, timeout_s=30))

        assert (result.exit_code, result.stdout, result.timed_out) == (0, "done\n", False)

    async def test_a_command_cannot_tell_an_end_that_is_not_its_own(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(sh(FORGE))

        assert result.exit_code == 3
        assert result.stdout.endswith("\nforged\n")

    async def test_kill_processes_kills_what_commands_left(self, sandbox: Sandbox) -> None:
        await sandbox.exec(sh(f"({LATE}) & true"))
        await sandbox.exec(sh(f"trap '' HUP INT TERM; ( ({LATE}) & )"))
        await sandbox.exec(sh(f"if command -v setsid; then setsid sh -c '{LATE}' & fi; true"))
        await sandbox.kill_processes()
        await asyncio.sleep(PAST_LATE_S)

        assert not await exists(sandbox, "late")

    async def test_a_sandbox_lives_on_after_kill_processes(self, sandbox: Sandbox, spec: SandboxSpec) -> None:
        await sandbox.write_bytes(root_of(spec) / "kept", b"kept")
        await sandbox.exec(sh("sleep 300 & true"))
        await sandbox.kill_processes()
        await sandbox.kill_processes()
        result = await sandbox.exec(sh("cat kept"))

        assert result.stdout == "kept"
