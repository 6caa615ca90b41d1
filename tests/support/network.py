"""A network of the tests' own: programs in namespaces, behind links that lose and delay packets.

A link is two tunnel devices, one here and one in the namespace; a thread carries packets between
them. It needs root, and `ip`. No packet leaves the machine.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import secrets
import select
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from itertools import count

import pytest

_DEVICE = "/dev/net/tun"
_SET, _TUN_WITHOUT_HEADER = 0x400454CA, 0x1001
_PACKET_BYTES = 4096


class NetworkLink:
    """A namespace, and the link to it. `command` is what runs a program in there."""

    def __init__(self, number: int, chance: int) -> None:
        token = secrets.token_hex(3)
        self.name, here, there = f"plait-{token}", f"plh{token}", f"plt{token}"
        self.host = f"10.213.{number}.1"
        """The address of this side, for programs in the namespace."""
        self.command = ["ip", "netns", "exec", self.name]
        self.delay_s, self.loss = 0.0, 0.0
        self.is_cut = False
        """True: all packets are lost, in both directions, and nobody is told."""
        self.carried = self.lost = 0
        self._chance = random.Random(chance)
        self._ends = [_open_tunnel(here), _open_tunnel(there)]
        _ip("netns", "add", self.name)
        _ip("link", "set", there, "netns", self.name)
        _ip("addr", "add", f"{self.host}/30", "dev", here)
        _ip("link", "set", here, "up")
        inside = ["-n", self.name]
        _ip(*inside, "addr", "add", f"10.213.{number}.2/30", "dev", there)
        _ip(*inside, "link", "set", there, "up")
        _ip(*inside, "link", "set", "lo", "up")
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="link", daemon=True)
        self._thread.start()

    def _carry(self) -> None:
        on_the_way: list[tuple[float, int, int, bytes]] = []
        order = count()
        while not self._is_over.is_set():
            now = time.monotonic()
            while on_the_way and on_the_way[0][0] <= now:
                _, _, end, packet = heapq.heappop(on_the_way)
                os.write(end, packet)
            wait_s = min(0.05, on_the_way[0][0] - now) if on_the_way else 0.05
            for end in select.select(self._ends, [], [], wait_s)[0]:
                packet = os.read(end, _PACKET_BYTES)
                if self.is_cut or self._chance.random() < self.loss:
                    self.lost += 1
                    continue
                self.carried += 1
                due = time.monotonic() + self.delay_s * (0.5 + self._chance.random())
                other = self._ends[1 - self._ends.index(end)]
                heapq.heappush(on_the_way, (due, next(order), other, packet))

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()
        for end in self._ends:
            os.close(end)
        _ip("netns", "del", self.name)


@contextmanager
def linked(number: int, chance: int) -> Generator[list[NetworkLink]]:
    """So many namespaces, each behind a link of its own."""
    if os.geteuid() != 0 or shutil.which("ip") is None or not os.path.exists(_DEVICE):
        pytest.skip("namespaces need root, ip and tunnel devices")
    with ExitStack() as ends:
        links: list[NetworkLink] = []
        first = os.getpid() % 120 * 2
        for each in range(number):
            try:
                links.append(NetworkLink((first + each) % 250, chance + each))
            except (OSError, subprocess.CalledProcessError) as error:
                pytest.skip(f"no namespaces here: {error}")
            ends.callback(links[-1].close)
        yield links


def _open_tunnel(name: str) -> int:
    """Make a tunnel device; return the file that its packets are read from and written to."""
    end = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(end, _SET, struct.pack("16sH22x", name.encode(), _TUN_WITHOUT_HEADER))
    return end


def _ip(*arguments: str) -> None:
    """Run `ip`, and raise if it refuses."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
