"""Limits per minute that all processes of a store keep together, by model and account.

Each limit is an allowance of the store. A process draws parts of it in advance, more and more while
it uses them up, so that most asks need no question to the store; a part that it has not used within
a second goes back with the next draw. An ask that finds nothing left has its amount set aside, and
is told how long to wait. Time is handed in.
"""

from __future__ import annotations

from threading import Lock

from plait.ids import digest
from plait.model.base import Model
from plait.store import Store

LEASE_S = 1.0  # for so long a process uses a part without a question to the store
LATE_S = 5.0  # an amount that was set aside for an earlier time is asked for again
_BURST_S = 10.0  # an allowance holds as much as refills in this time
_NAME_MAX = 120  # bytes of a model's name in that of an allowance


class _DrawnPart:
    """The part of one allowance that this process has drawn."""

    def __init__(self, store: Store, name: str, per_minute: int | None) -> None:
        self._store, self.name = store, name
        self._per_s = (per_minute or 0) / 60
        self._size = max(1.0, self._per_s * _BURST_S) if per_minute else 0.0
        self._left = 0.0
        self._drawn_s = -LEASE_S  # when it was drawn
        self._chunk = 0.0  # to be drawn at a time, if there is so much
        self.owed = 0.0  # to be drawn with the next amount; below 0: to be put back

    def take(self, amount: float, now_s: float, *, reserves: bool) -> float:
        """Take an amount, and return the seconds until it may be used. Without `reserves` nothing
        is taken if that is not at once.
        """
        if not self._per_s:
            amount = 0.0
        is_fresh = now_s - self._drawn_s < LEASE_S
        if is_fresh and self._left >= amount:
            self._left -= amount
            return 0.0
        used_up = is_fresh and amount > 0
        self._chunk = min(max(self._chunk, amount) * 2, self._size / 4) if used_up else 0.0
        wanted = amount - self._left + self.owed
        drawn = self._store.draw(
            self.name,
            wanted,
            per_s=self._per_s,
            size=self._size,
            most=max(self._chunk, 0.0),
            reserves=reserves,
        )
        if drawn.wait_s == 0 or reserves or wanted <= 0:
            self._left, self.owed = max(0.0, drawn.amount - wanted), 0.0
            self._drawn_s = now_s if drawn.wait_s == 0 else -LEASE_S
        if drawn.wait_s and not reserves and wanted <= 0:
            self.owed -= amount  # it was closed, and the amount was not used
        return drawn.wait_s

    def take_late(self, amount: float) -> float:
        """Return the seconds until an amount may be used that was set aside for an earlier time:
        those that are late come one after another, too.
        """
        if not self._per_s:
            return 0.0
        late = self._store.draw(f"{self.name}/late", amount, per_s=self._per_s, size=self._size)
        return late.wait_s

    def closed_s(self) -> float:
        return self._store.draw(self.name, 0, per_s=self._per_s, size=self._size).wait_s

    def close(self, seconds: float) -> None:
        self._store.close_allowance(self.name, seconds)
        self.owed -= self._left
        self._left, self._drawn_s = 0.0, -LEASE_S


class SharedLimiter:
    """The limits of one model for one account, in one store. All threads of a process share it."""

    def __init__(
        self,
        store: Store,
        name: str,
        requests_per_minute: int | None,
        tokens_per_minute: int | None,
    ) -> None:
        self.limits = requests_per_minute, tokens_per_minute
        self._lock = Lock()
        # it is there without a limit, too: a provider that wants to be left alone closes it
        self._requests = _DrawnPart(store, f"{name}/requests", requests_per_minute)
        self._tokens = (
            _DrawnPart(store, f"{name}/tokens", tokens_per_minute) if tokens_per_minute else None
        )

    def start(self, tokens: int, now_s: float, *, reserves: bool = True) -> float:
        """Return the seconds until an ask with so many tokens may be made, and set it aside.

        Without `reserves` it is set aside only if that is at once.
        """
        with self._lock:
            wait_s = self._requests.take(1, now_s, reserves=reserves)
            if self._tokens is None or (wait_s and not reserves):
                return wait_s
            tokens_wait_s = self._tokens.take(tokens, now_s, reserves=reserves)
            if tokens_wait_s and not reserves:
                self._requests.owed -= 1
            return max(wait_s, tokens_wait_s)

    def start_reserved(self, tokens: int, late_s: float) -> float:
        """Return the seconds that an ask still has to wait after its wait is over. 0: it is made
        now. `late_s`: how long ago its time was.
        """
        with self._lock:
            wait_s = self._requests.closed_s()
            if wait_s == 0 and late_s > LATE_S:
                wait_s = self._requests.take_late(1)
                if wait_s == 0 and self._tokens is not None:
                    wait_s = self._tokens.take_late(tokens)
            return wait_s

    def settle(self, estimated: int, counted: int | None) -> None:
        """Correct an estimate by the tokens that the provider counted. None: nothing was sent."""
        with self._lock:
            if counted is None:
                self._requests.owed -= 1
            if self._tokens is not None:
                self._tokens.owed += (counted or 0) - estimated

    def close(self, seconds: float) -> None:
        """Let no process ask for so long."""
        with self._lock:
            self._requests.close(seconds)


def allowance_name(store: Store, model: Model) -> str:
    """Return the name for the allowances of a model, without its key."""
    account = str(getattr(model, "account", ""))
    name = model.name
    if len(name.encode()) > _NAME_MAX:
        name = digest(b"plait/model/1", name.encode())[:32]
    return f"{name}/{digest(b'plait/allowance/1', store.id.encode(), account.encode())[:12]}"


def account_of(key: str | None) -> str:
    """Return a digest by which processes with the same key know each other. "": there is none."""
    return digest(b"plait/account/1", key.encode())[:32] if key else ""
