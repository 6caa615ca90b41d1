"""E2B: the contract, over real HTTP with the vendor's SDK; what goes over the wire, and what does
not.
"""

from __future__ import annotations

import os
import sys

import pytest

from plait.errors import MissingExtra, MissingKey, NotSupported, SandboxFailed, SandboxGone
from plait.sandbox import Limits, backend, backends
from plait.sandbox.e2b import E2B
from plait.store import MemoryStore
from plait.testing import SandboxContract
from plait.testing.sandbox.trees import PLAIN, nodes_of, put_tree
from plait.workspace import NewEntry
from tests.sandbox.remote.loopback import Server

START = "/process.Process/Start"


@pytest.mark.ci
class TestE2B(SandboxContract):
    @pytest.fixture
    def backend(self, e2b_server: Server) -> E2B:
        return E2B()

    def test_what_is_asked_for(self, backend: E2B, e2b_server: Server, store: MemoryStore) -> None:
        with self.new_sandbox(backend, store, image="other", options={"timeout_s": 120}) as sandbox:
            (machine,) = e2b_server.cloud.machines.values()
            assert (machine.template, machine.timeout_s, machine.network) == ("other", 120, False)
            assert sandbox.placement.image == "other"
            sandbox.renew(777)
            assert machine.timeout_s == 777
        with self.new_sandbox(backend, store, network="on") as sandbox:
            assert [machine.network for machine in e2b_server.cloud.machines.values()] == [True]
            assert (sandbox.placement.network, sandbox.placement.image) == ("on", "base")

    def test_nothing_of_this_machine_is_sent(
        self, backend: E2B, e2b_server: Server, store: MemoryStore
    ) -> None:
        canary = "canary-5d41402abc4b2a76"
        os.environ["PLAIT_CANARY"] = canary
        try:
            with self.new_sandbox(backend, store, PLAIN, env={"GIVEN": "given-to-it"}) as sandbox:
                assert "given-to-it" in sandbox.exec(["env"]).output.view()
                sandbox.snapshot()
        finally:
            del os.environ["PLAIT_CANARY"]
        sent = b"\n".join(e2b_server.cloud.bodies)
        assert canary.encode() not in sent
        assert os.environ["E2B_API_KEY"].encode() not in sent

    def test_a_connection_that_breaks_costs_nothing(
        self, backend: E2B, e2b_server: Server, store: MemoryStore
    ) -> None:
        with self.new_sandbox(backend, store) as sandbox:
            seen: list[bytes] = []

            def cut(data: bytes) -> None:
                seen.append(data)
                if len(seen) == 1:
                    e2b_server.cloud.breaks.append(START)

            ran = sandbox.exec(
                ["sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.3; done; exit 5"], on_output=cut
            )
            assert (ran.exit_code, b"".join(seen)) == (5, b"1\n2\n3\n")
            assert e2b_server.cloud.breaks == []

    def test_only_what_changed_travels(
        self, backend: E2B, e2b_server: Server, store: MemoryStore
    ) -> None:
        big = {f"big{number}": NewEntry("file", 0o644, os.urandom(300_000)) for number in range(4)}
        with self.new_sandbox(backend, store, big) as sandbox:
            sandbox.begin()
            sandbox.files.write("small", b"new")
            e2b_server.cloud.bodies.clear()
            found = sandbox.snapshot()
            assert found.changed == ("small",)
            assert len(found.blobs) == 2  # the file and its folder
            before = put_tree(store, big)
            sandbox.files.write("big1", b"other")
            e2b_server.cloud.bodies.clear()
            sandbox.restore(before)
            assert 300_000 < sum(map(len, e2b_server.cloud.bodies)) < 500_000

    def test_what_nobody_looked_at_is_found_by_another_handle(
        self, backend: E2B, store: MemoryStore
    ) -> None:
        with self.new_sandbox(backend, store, PLAIN) as sandbox:
            sandbox.exec(["sh", "-c", "rm README; echo more > more"])
            again = backend.attach(
                sandbox.placement, self.new_wanted(store, put_tree(store, PLAIN))
            )
            found = again.snapshot()
            store.put_blobs(found.blobs)
            assert found.changed == ("README", "more")
            assert nodes_of(store, found.tree).keys() == {*PLAIN, "more"} - {"README"}

    def test_a_fork_is_the_vendors_own_where_it_can_be(
        self, backend: E2B, e2b_server: Server, store: MemoryStore
    ) -> None:
        with self.new_sandbox(backend, store, PLAIN) as sandbox:
            sandbox.fork(self.new_wanted(store, put_tree(store, PLAIN))).destroy()
            assert [route.rpartition("/")[2] for _, route in e2b_server.cloud.requests].count(
                "fork"
            ) == 1
            sandbox.files.write("new", b"new")
            other = sandbox.fork(self.new_wanted(store, put_tree(store, PLAIN), network="on"))
            assert other.files.read("new") == b"new"
            assert [route.rpartition("/")[2] for _, route in e2b_server.cloud.requests].count(
                "fork"
            ) == 1
            other.destroy()

    def test_a_long_script_goes_as_a_file(self, backend: E2B, store: MemoryStore) -> None:
        with self.new_sandbox(backend, store, limits=Limits(time_s=60)) as sandbox:
            words = "x" * 100_000
            assert (
                sandbox.exec(["sh", "-c", "printf %s $# ${#1}", "sh", words, "y"]).output.view()
                == "2100000"
            )

    def test_what_could_not_be_filled_does_not_stay(
        self, backend: E2B, e2b_server: Server, store: MemoryStore
    ) -> None:
        e2b_server.cloud.refuses.append("/files")
        with pytest.raises(SandboxFailed):
            backend.create(self.new_wanted(store, put_tree(store, PLAIN)))
        assert e2b_server.cloud.machines == {}

    def test_what_ends_by_itself_is_gone(
        self, backend: E2B, e2b_server: Server, store: MemoryStore
    ) -> None:
        with self.new_sandbox(backend, store) as sandbox:
            e2b_server.cloud.machines.popitem()[1].end()
            with pytest.raises(SandboxGone):
                sandbox.exec(["true"])
            with pytest.raises(SandboxGone):
                sandbox.files.read("x")


def test_a_template_that_is_not_there(e2b_server: Server, store: MemoryStore) -> None:
    with pytest.raises(SandboxFailed, match="nowhere.*template"):
        E2B().create(TestE2B().new_wanted(store, image="nowhere"))


def test_a_wrong_key(
    e2b_server: Server, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("E2B_API_KEY", "wrong-key-0123456789abcdef")
    with pytest.raises(SandboxFailed, match="check E2B_API_KEY") as caught:
        E2B().create(TestE2B().new_wanted(store))
    assert "wrong-key" not in str(caught.value)


def test_no_key(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    with pytest.raises(MissingKey, match="E2B_API_KEY"):
        E2B().create(TestE2B().new_wanted(store))
    (found,) = [
        capability for capability in E2B().probe().capabilities if capability.name == "exec"
    ]
    assert (found.offered, found.why) == (False, "E2B_API_KEY is not set")


def test_no_package(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "e2b", None)
    with pytest.raises(MissingExtra, match=r"plait\[e2b\]"):
        E2B().create(TestE2B().new_wanted(store))


def test_a_folder_of_this_machine_is_not_worked_on_in_place(
    e2b_server: Server, store: MemoryStore
) -> None:
    with pytest.raises(NotSupported, match="apply"):
        E2B().create(TestE2B().new_wanted(store, in_place=True))


def test_the_label_holds_for_the_version_it_was_earned_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert E2B().probe().label == "wire-tested 2026-11-16 e2b 2.63.0"
    monkeypatch.setattr(E2B, "version", lambda self: "9.9")  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    assert E2B().probe().label == "untested with e2b 9.9; wire-tested 2026-11-16 e2b 2.63.0"


def test_all_of_them_are_found_by_name() -> None:
    assert {"e2b", "opensandbox", "cube"} <= set(backends())
    assert [backend(name).name for name in ("e2b", "opensandbox", "cube")] == [
        "e2b",
        "opensandbox",
        "cube",
    ]
