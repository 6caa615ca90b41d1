"""Sessions and memories for a test, each test in a store of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plait import Memory, Session
from plait.event import Event
from plait.event.kinds import MemoryProposed, MemoryRecalled
from plait.memory.index import Index
from plait.memory.items import Hit
from plait.testing.writing import new_log

# One text in each of several scripts, a question about it, and another text of that script.
SCRIPTS = (
    ("Der Kühlschrank in der Küche ist kaputt.", "Kühlschrank", "Das Auto ist neu."),
    ("Сервер стоит в Москве.", "сервер Москве", "Кошка спит дома."),
    ("Η βάση δεδομένων είναι στην Αθήνα.", "βάση Αθήνα", "Ο καφές είναι ζεστός."),
    ("الخادم موجود في القاهرة", "الخادم القاهرة", "القطة تنام في البيت"),
    ("サーバーは東京にあります。", "東京 サーバー", "猫は家で寝ています。"),
    ("서버는 서울에 있습니다.", "서울에 서버는", "고양이는 집에서 잡니다."),
    ("सर्वर दिल्ली में है", "सर्वर दिल्ली", "बिल्ली घर पर सोती है"),
)


class CountingIndex:
    """Passes calls on to an index and counts them, by name."""

    def __init__(self, index: Index) -> None:
        self._index, self.name = index, index.name
        self.calls = {"put": 0, "search": 0, "forget": 0}

    def put(self, id: str, text: str, owner: str) -> None:
        self.calls["put"] += 1
        self._index.put(id, text, owner)

    def search(self, query: str, owners: Sequence[str], limit: int) -> list[tuple[str, float]]:
        self.calls["search"] += 1
        return self._index.search(query, owners, limit)

    def forget(self, id: str) -> None:
        self.calls["forget"] += 1
        self._index.forget(id)

    def close(self) -> None:
        self._index.close()


def new_session(user: str = "u-1", project: str = "shop", store: str | None = None) -> Session:
    """Return a session in a store of its own, or in a store that is there: `store`."""
    address = store if store is not None else f"memory:{new_log()}"
    return Session("Begin.", user=user, project=project, store=address)


def remember(memory: Memory, session: Session, *texts: str, scope: Any = "user") -> Session:
    """Have a person remember texts."""
    for text in texts:
        session = memory.remember(session, text, scope=scope, evidence=session)
    return session


def recall(memory: Memory, session: Session, query: str, **options: Any) -> list[str]:
    """Return the texts that a recall gives, at the end of the session's log as it is now."""
    return [hit.text for hit in hits_of(memory, session, query, **options)]


def hits_of(memory: Memory, session: Session, query: str, **options: Any) -> list[Hit]:
    return memory.recall(session.reload(), query, **options)[1]


def last_recall(session: Session) -> MemoryRecalled:
    body = session.events[-1].body
    assert isinstance(body, MemoryRecalled), body
    return body


def proposals(session: Session) -> list[Event]:
    return [event for event in session.events if event.kind == MemoryProposed.__name__]
