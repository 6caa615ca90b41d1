"""Two clients in namespaces of their own, behind links that delay and lose packets and are cut off
for longer than a lease, compete for one run. `PG_PARTITIONS` says how often a link is cut.

Nobody is told anything by the network: packets vanish, and come again when the link is whole.
"""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from contextlib import ExitStack

import pytest

from plait import Store
from plait.event.kinds import RunResumed, ScratchSet
from plait.ids import LogId
from plait.testing.writing import begin
from tests.faults.postgres_aftermath import Follower, Told, judge, made_store
from tests.support import (
    NetworkLink,
    child_environment,
    dose,
    linked,
    module_command,
    private_postgres,
    report,
    seed,
    wait_until,
)

LEASE_S = 1.5
HURRY = {"sslmode": "disable", "tcp_user_timeout": "1000", "connect_timeout": "2"}


class Contending:
    """A contender in a namespace; a thread takes down what it says."""

    def __init__(self, link: NetworkLink, address: str, name: str, log: LogId) -> None:
        self.told, self.takes, self.name = Told(), list[int](), name
        self._begun = ""
        command = module_command("tests.faults.network_contender", address, name, log)
        self.process = subprocess.Popen(
            [*link.command, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=child_environment(PLAIT_STORE_LEASE_S=str(LEASE_S), PLAIT_STORE_WAIT_S="3"),
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            verb, _, rest = line.strip().partition(" ")
            if verb == "took":
                self.takes.append(int(rest))
            elif verb == "?":
                self._begun = rest
            elif verb == "!":
                self.told.acknowledged.append([self._begun])
                self._begun = ""
            elif verb == "x":
                self.told.refused[rest] += 1
                if self._begun and rest in ("StoreUnreachable", "OutcomeUnknown"):
                    self.told.unsure.append([self._begun])
                self._begun = ""

    def end(self) -> Told:
        """Let it end its turn, and go."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            assert self.process.wait(60) == 0
        finally:
            self.process.kill()
            self.process.wait()
        self._listener.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.told


@pytest.mark.ci
def test_two_holders_behind_a_bad_network_never_write_at_once() -> None:
    cuts, chance = dose("PG_PARTITIONS", short=2, ci=3, long=40), seed()
    with linked(2, chance) as links, ExitStack() as ends:
        hosts = ",".join(["127.0.0.1", *[link.host for link in links]])
        server = ends.enter_context(private_postgres(listen_addresses=hosts))
        with (server.data / "pg_hba.conf").open("a") as access:
            access.write("host all all 10.213.0.0/16 trust\n")
        server.execute("SELECT pg_reload_conf()")
        store, told = made_store(server.address_for(schema="plait")), Told()
        log, follower = begin(store), Follower(store)
        contenders: list[Contending] = []
        for number, link in enumerate(links):
            link.delay_s, link.loss = 0.004, 0.02
            address = server.address_for(schema="plait", **HURRY)
            reached = address.replace("@127.0.0.1:", f"@{link.host}:")
            contenders.append(Contending(link, reached, f"c{number}", log))
            ends.callback(contenders[-1].process.kill)
        _wait_for_takes(contenders, [1, 1])
        for number in range(cuts):
            cut = number % 2
            # it has the run, and is in the middle of its turn
            _wait_for_takes(contenders, [1 - cut, cut])
            links[cut].is_cut = True
            # the other one gets the run: a lease ends
            _wait_for_takes(contenders, [cut, 1 - cut])
            links[cut].is_cut = False
        for each in contenders:
            told.add(each.end())
        writers = _check_epochs(store, log)
        for each in contenders:
            assert all(writers[epoch] == each.name for epoch in each.takes)
        assert told.refused["StaleEpoch"] + told.refused["StoreUnreachable"] > 0
        judge(store, told, follower.end())
        store.close()
        carried, lost = sum(each.carried for each in links), sum(each.lost for each in links)
    report(
        "PostgreSQL, two holders behind links that lose 2 % and are cut",
        f"{cuts} partitions, {carried:,} packets, {lost:,} lost, {len(writers):,} takeovers,"
        f" 0 events of an older epoch, {told.counts}; refused: {dict(told.refused)}",
        chance,
    )


def _wait_for_takes(contenders: list[Contending], wanted: list[int]) -> None:
    """Wait until each of them has taken the run so many times more."""
    before = [len(each.takes) for each in contenders]

    def are_taken() -> bool:
        gone = [each.name for each in contenders if each.process.poll() is not None]
        assert not gone, f"{gone} ended"
        pairs = zip(contenders, before, wanted, strict=True)
        return all(len(each.takes) >= old + more for each, old, more in pairs)

    wait_until(are_taken, 120)


def _check_epochs(store: Store, log: LogId) -> dict[int, str]:
    """Raise unless every event is of the epoch that the log had when it was written, and every
    epoch has one writer. Return the writers.
    """
    epoch, writers, events = 0, dict[int, str](), Counter[int]()
    for event in store.read(log):
        body = event.body
        if isinstance(body, RunResumed):
            epoch += 1
            writers[epoch] = body.holder
        elif isinstance(body, ScratchSet):
            assert body.value == epoch, f"an event of epoch {body.value} in epoch {epoch}"
            assert body.key == writers[epoch], f"two wrote in epoch {epoch}"
            events[epoch] += 1
    assert len(writers) > 1 and sum(events.values()) > len(writers)
    return writers
