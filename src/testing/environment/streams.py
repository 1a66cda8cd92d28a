"""What a command reads and prints."""

import asyncio
import tracemalloc

import pytest

from ...domain.ports import Sandbox
from ...domain.sandbox import SandboxSpec
from .setting import ContractSetting, argv, root_of, sh

ALL_BYTES = bytes(range(256))
MEBIBYTE = 1024 * 1024
MEMORY_LIMIT = 64 * MEBIBYTE


class StreamContract(ContractSetting):
    """Promises of `exec` about standard input, output and error."""

    async def test_output_and_errors_are_told_apart(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(sh("echo out; echo err >&2"))

        assert (result.stdout, result.stderr) == ("out\n", "err\n")
        assert (result.stdout_bytes, result.stderr_bytes, result.truncated) == (4, 4, False)

    async def test_two_hundred_short_outputs_lose_no_byte(self, sandbox: Sandbox) -> None:
        limit = asyncio.Semaphore(10)

        async def printed(number: int) -> str:
            async with limit:
                return (await sandbox.exec(argv("printf", "%s", f"<{number}>"))).stdout

        outputs = await asyncio.gather(*map(printed, range(200)))

        assert outputs == [f"<{number}>" for number in range(200)]

    async def test_no_byte_is_added_or_changed(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(sh(r"printf ' \r\n\ta\000b\033[1m\r\n\n '"))

        assert result.stdout == " \r\n\ta\0b\033[1m\r\n\n "

    async def test_bytes_that_are_not_utf8_are_replaced(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(sh(r"printf 'ok\377\376ok'; printf '\300' >&2"))

        assert (result.exit_code, result.stdout, result.stdout_bytes) == (0, "ok\ufffd\ufffdok", 6)
        assert (result.stderr, result.stderr_bytes) == ("\ufffd", 1)

    async def test_a_character_may_come_in_pieces(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(sh(r"printf '\342'; sleep 1; printf '\202'; sleep 1; printf '\254'"))

        assert result.stdout == "€"

    async def test_output_as_long_as_the_limit_is_whole(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(sh("cat", stdin=b"x" * 1000, max_output_bytes=1000))

        assert (result.stdout, result.truncated) == ("x" * 1000, False)

    @pytest.mark.parametrize("letter", ["x", "é", "漢", "🦉"])
    async def test_longer_output_keeps_head_and_tail_to_the_character(self, sandbox: Sandbox, letter: str) -> None:
        text = f"head{letter * 5000}tail"
        for limit in (1000, 1001, 1002, 1003):
            result = await sandbox.exec(sh("cat", stdin=text.encode(), max_output_bytes=limit))
            kept_bytes = len(f"headtail{letter * result.stdout.count(letter)}".encode())

            assert (result.truncated, result.stdout_bytes) == (True, len(text.encode()))
            assert result.stdout.startswith(f"head{letter}")
            assert result.stdout.endswith(f"{letter}tail")
            assert "\ufffd" not in result.stdout
            assert limit - 20 <= kept_bytes <= limit

    async def test_errors_are_cut_likewise(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(sh("cat >&2", stdin=b"head" + b"x" * 5000 + b"tail", max_output_bytes=100))

        assert (result.truncated, result.stdout, result.stderr_bytes) == (True, "", 5008)
        assert result.stderr.startswith("headx")
        assert result.stderr.endswith("xtail")

    async def test_a_flood_of_output_leaves_memory_bounded(self, sandbox: Sandbox) -> None:
        script = f"dd if=/dev/zero bs=1000000 count={self.large_output_mb} 2> /dev/null; printf end"
        tracemalloc.start()
        try:
            result = await sandbox.exec(sh(script, timeout_s=300))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert (result.exit_code, result.truncated) == (0, True)
        assert result.stdout_bytes == self.large_output_mb * 1_000_000 + 3
        assert result.stdout.endswith("\0end")
        assert peak < MEMORY_LIMIT

    async def test_endless_output_does_not_stop_the_kill(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(sh("while :; do echo flood; done", timeout_s=1, max_output_bytes=1000))

        assert (result.timed_out, result.exit_code) == (True, None)
        assert result.truncated
        assert result.stdout.startswith("flood\n")

    async def test_without_stdin_a_command_reads_nothing(self, sandbox: Sandbox) -> None:
        by_script = await sandbox.exec(sh("cat; test -t 0 || echo no terminal"))
        by_argv = await sandbox.exec(argv("cat"))

        assert (by_script.exit_code, by_script.stdout) == (0, "no terminal\n")
        assert (by_argv.exit_code, by_argv.stdout) == (0, "")

    async def test_empty_stdin_ends_at_once(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(sh("cat; echo end", stdin=b""))

        assert result.stdout == "end\n"

    async def test_stdin_is_the_commands_and_not_the_scripts(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(sh("read line\necho got $line\ncat", stdin=b"one\necho two\n"))

        assert result.stdout == "got one\necho two\n"

    async def test_a_megabyte_of_stdin_arrives_whole(self, sandbox: Sandbox, spec: SandboxSpec) -> None:
        data = ALL_BYTES * 4096 + b"end"
        result = await sandbox.exec(sh("cat > received", stdin=data))
        received = await sandbox.read_bytes(root_of(spec) / "received", 2 * MEBIBYTE)

        assert result.ok
        assert received == data

    async def test_stdin_that_nobody_reads_is_no_failure(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec(sh("exit 3", stdin=b"x" * MEBIBYTE))

        assert result.exit_code == 3
