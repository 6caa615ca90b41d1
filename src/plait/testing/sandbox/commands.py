"""Commands: their end, their input and their output."""

from __future__ import annotations

import os
import tracemalloc

from plait.errors import (
    NoSuchFile,
    OutsideWorkspace,
    SandboxError,
)
from plait.sandbox import Backend, Limits, Sandbox
from plait.store import Store
from plait.testing.sandbox.case import SandboxCase, check_refused
from plait.testing.sandbox.trees import PLAIN
from plait.workspace import NewEntry

_BEATS = "( while :; do echo x >> beat; sleep 0.05; done )"


class CommandContract(SandboxCase):
    def test_a_command_ends_with_its_code(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store) as sandbox:
            ran = sandbox.exec(["sh", "-c", "echo out; exit 7"])
            assert (ran.exit_code, ran.killed, ran.output.view(), ran.output.size) == (
                7,
                "",
                "out\n",
                4,
            )
            assert ran.duration_us > 0
            assert sandbox.exec(["true"]).exit_code == 0

    def test_a_signal_counts_as_a_shell_counts(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store) as sandbox:
            assert sandbox.exec(["sh", "-c", "kill -TERM $$"]).exit_code == 143

    def test_a_command_that_is_not_there_is_127(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store) as sandbox:
            assert sandbox.exec(["no-such-command-anywhere"]).exit_code == 127

    def test_words_arrive_as_they_are(self, backend: Backend, store: Store) -> None:
        words = ["a b", "", "$HOME", "`x`", "'", '"', "\\", "*", "two\nlines", "ünï"]
        with self.new_sandbox(backend, store) as sandbox:
            ran = sandbox.exec(["printf", "<%s>", *words])
            assert b"".join(ran.output.pieces()) == b"".join(f"<{word}>".encode() for word in words)

    def test_a_word_with_a_nul_is_refused(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store) as sandbox:
            with check_refused(SandboxError):
                sandbox.exec(["echo", "a\0b"])
            with check_refused(SandboxError):
                sandbox.exec(["env"], env={"A": "b\0--option"})

    def test_standard_input(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store) as sandbox:
            assert sandbox.exec(["cat"]).output.size == 0
            small = bytes(range(256))
            assert b"".join(sandbox.exec(["cat"], stdin=small).output.pieces()) == small
            assert (
                sandbox.exec(["wc", "-c"], stdin=b"x" * 300_000).output.view().strip() == "300000"
            )

    def test_the_folder_it_runs_in(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store, PLAIN) as sandbox:
            assert sandbox.exec(["cat", "cart.py"], cwd="src").output.view() == "total = 0\n"
            with check_refused(NoSuchFile):
                sandbox.exec(["true"], cwd="no/such")
            for path in ("..", "/", "src/../.."):
                with check_refused(OutsideWorkspace):
                    sandbox.exec(["true"], cwd=path)

    def test_the_environment_is_what_was_named(self, backend: Backend, store: Store) -> None:
        os.environ["PLAIT_CONTRACT_CANARY"] = "canary-of-the-host"
        try:
            with self.new_sandbox(backend, store, env={"ONE": "1", "TWO": "2"}) as sandbox:
                ran = sandbox.exec(
                    ["sh", "-c", 'echo "$ONE $TWO $THREE"'],
                    env={"TWO": "two words", "THREE": "$3\n'"},
                )
                assert ran.output.view() == "1 two words $3\n'\n"
                assert "canary-of-the-host" not in sandbox.exec(["env"]).output.view()
        finally:
            del os.environ["PLAIT_CONTRACT_CANARY"]

    def test_both_streams_come_in_their_order(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store) as sandbox:
            ran = sandbox.exec(
                ["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done"]
            )
            assert ran.output.view().split() == [
                f"{stream}{i}" for i in range(1, 10) for stream in "oe"
            ]

    def test_output_is_seen_before_the_end(self, backend: Backend, store: Store) -> None:
        if not self._offers(backend, "stream"):
            return
        seen: list[bytes] = []
        with self.new_sandbox(backend, store) as sandbox:
            ran = sandbox.exec(
                ["sh", "-c", "echo one; sleep 2; echo two"],
                on_output=lambda data: seen.append(bytes(data)),
            )
            assert b"".join(seen) == b"one\ntwo\n" == b"".join(ran.output.pieces())
            assert seen[0] == b"one\n"  # in the pause: at the end both come in one piece

    def test_odd_bytes_are_kept(self, backend: Backend, store: Store) -> None:
        data = bytes(range(256)) * 3
        with self.new_sandbox(backend, store, {"data": NewEntry("file", 0o644, data)}) as sandbox:
            output = sandbox.exec(["cat", "data"]).output
            assert b"".join(output.pieces(100)) == data
            assert "\ufffd" in output.view()
            part = sandbox.keep(output, "what it wrote")
            assert b"".join(store.get_blob(blob) for blob in (part.blob, *part.rest)) == data

    def test_much_output_is_kept_whole_and_not_in_memory(
        self, backend: Backend, store: Store
    ) -> None:
        size = 16 << 20
        with self.new_sandbox(backend, store) as sandbox:
            tracemalloc.start()
            try:
                ran = sandbox.exec(["sh", "-c", f"head -c {size} /dev/zero | tr '\\0' x"])
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert (ran.exit_code, ran.output.size) == (0, size)
            assert sum(len(piece) for piece in ran.output.pieces()) == size
            assert len(ran.output.view(1000)) < 1200
            assert peak < size / 2

    def test_too_much_output_ends_it(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store, limits=Limits(output_mb=1, time_s=60)) as sandbox:
            ran = sandbox.exec(["yes"])
            assert ran.killed == "output"
            assert ran.output.size <= 2 << 20
            assert sandbox.exec(["echo", "goes on"]).output.view() == "goes on\n"

    def test_too_long_ends_it_and_all_that_it_started(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store) as sandbox:
            ran = sandbox.exec(
                ["sh", "-c", f"{_BEATS} & echo begun; sleep 300; echo slept"],
                limits=Limits(time_s=4),
            )
            assert (ran.killed, ran.output.view()) == ("time", "begun\n")
            assert ran.exit_code != 0
            self._is_still(sandbox)

    def test_what_it_leaves_behind_ends_with_it(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store) as sandbox:
            # a sandbox that waits for the loop in the background ends it by the limit
            ran = sandbox.exec(["sh", "-c", f"{_BEATS} & echo begun"], limits=Limits(time_s=60))
            assert (ran.exit_code, ran.killed, ran.output.view()) == (0, "", "begun\n")
            self._is_still(sandbox)

    def test_limits_are_only_narrowed(self, backend: Backend, store: Store) -> None:
        with self.new_sandbox(backend, store, limits=Limits(time_s=1)) as sandbox:
            sleeps = ["sh", "-c", "sleep 300; echo slept"]
            ran = sandbox.exec(sleeps, limits=Limits(time_s=500))
            assert (ran.killed, ran.output.view()) == ("time", "")

    def _is_still(self, sandbox: Sandbox) -> None:
        before, after = (
            sandbox.exec(["sh", "-c", "sleep 0.3; cat beat 2> /dev/null | wc -c"]).output.view()
            for _ in range(2)
        )
        assert before == after, "something still runs"
