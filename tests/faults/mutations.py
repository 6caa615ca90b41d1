"""A small store with something of everything in it, and ways to tamper with it. What it means is
read by `tests.raw`.

A mutation takes the raw database, chance and the store as it was, changes something, and says what
it was aimed at.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from plait import Session, open_store
from plait.event.kinds import Placement, PlacementChanged
from plait.session.fold import state_at
from plait.session.ports import Act, Draft, writer_of
from plait.session.state import to_snapshot
from plait.session.value import position_of
from plait.store import Store
from plait.workspace.base import TreeEntry
from plait.workspace.tree import encode
from tests.support import RawSql, tree

# ── the store ────────────────────────────────────────────────────────────────────────────────


class Image(NamedTuple):
    """The files of a store."""

    main: bytes
    log: bytes = b""  # the write-ahead log

    @classmethod
    def of(cls, folder: Path) -> Image:
        log = folder / "store.db-wal"
        return cls((folder / "store.db").read_bytes(), log.read_bytes() if log.exists() else b"")

    def put(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in (("store.db", self.main), ("store.db-wal", self.log)):
            (folder / name).unlink(missing_ok=True)
            if data:
                (folder / name).write_bytes(data)
        (folder / "store.db-shm").unlink(missing_ok=True)
        return folder / "store.db"


def build(folder: Path) -> tuple[Image, Image, list[Image]]:
    """A store as it was once and as it is now, and then after each of some commits that stand in
    its write-ahead log alone.
    """
    store = open_store(folder)
    root = Session(
        "Why?", title="cart bug", user="u-17", project="shop", tags={"team": "web"}, store=store
    )
    root = root.say("a long story " * 500).attach(
        "plot", bytes(range(256)) * 3, media_type="image/png"
    )
    plain = Session("tell me", title="plain", store=store)
    store.close()
    old = Image.of(folder)
    store = open_store(folder)
    root = root.fact("db", "postgres 15", because=root).fact(
        "schema", "".join(random.Random(1).choices("abcdefgh", k=5000))
    )
    strict, lenient = (
        root.fork("strict").decide("verdict", "reject"),
        root.fork("lenient").decide("verdict", "clamp", because=root),
    )
    merged = strict.say("hm").rewind(strict.seq).merge(lenient, resolve={"verdict": "reject"})
    merged.close()
    store.keep_snapshot(
        root.id, root.seq, to_snapshot(state_at(store, root.id, root.seq), root.head)
    )
    store.put_blob(b"nobody points here " * 20)
    _place(store, Session(title="placed", durability="async", store=store))
    for i in range(6):
        plain = plain.say(
            f"{i} and again {i}, and so on and so forth, which is long enough to be packed "
            * (1 + i % 3)
        )
    store.close()
    new = Image.of(folder)
    store, logged = open_store(folder), list[Image]()
    for i in range(5):
        plain = plain.say(f"late {i}")
        logged.append(Image.of(folder))
    store.close()
    return old, new, logged


def _place(store: Store, session: Session) -> None:
    """Record a tree with folders in it."""
    inner = tree(store, cart__py="print('cart')\n" * 50, empty="")
    middle = store.put_blob(
        encode(
            [
                TreeEntry("deep", "folder", 0o755, 0, (inner,)),
                TreeEntry("link", "link", 0o777, 0, (), "deep"),
            ]
        )
    )
    notes = b"notes, too short to be packed"
    entries = [
        TreeEntry("src", "folder", 0o755, 0, (middle,)),
        TreeEntry("notes", "file", 0o644, len(notes), (store.put_blob(notes),)),
    ]
    placed = PlacementChanged(Placement("local"), store.put_blob(encode(entries)))
    writer_of(None).append(position_of(session), [Draft(placed, Act("human:u-17"))])


# ── aims ─────────────────────────────────────────────────────────────────────────────────────


class Aim(NamedTuple):
    """The target of tampering: a fault must name one of these events or the one after it, or one of
    these words.
    """

    what: str
    events: tuple[tuple[str, int], ...] = ()
    words: tuple[str, ...] = ()


class Scene:
    """The store as it was, for choosing what to tamper with."""

    def __init__(self, sql: RawSql, old: RawSql) -> None:
        self.logs: dict[int, str] = {key: _uuid(id) for key, id in sql("SELECT key, id FROM log")}
        self.events: list[tuple[int, int, int]] = sql("SELECT number, log, seq FROM event")
        self.begins: dict[str, int] = {
            _uuid(id): place + 1 for id, place in sql("SELECT id, place FROM log")
        }
        self.tips: dict[int, int] = dict(sql("SELECT key, tip FROM log"))
        self.blobs: dict[int, str] = {
            key: digest.hex() for key, digest in sql("SELECT key, digest FROM blob")
        }
        self.attachments: list[tuple[int, int]] = sql("SELECT event, blob FROM attachment")
        self.kinds: list[int] = [code for (code,) in sql("SELECT DISTINCT kind FROM event")]
        (plain,) = sql("SELECT log FROM p_session__session WHERE title = 'plain'")[0]
        # a log that nothing else refers to
        self.plain = next(key for key, id in self.logs.items() if id == plain)
        self.old = {
            table: old(f"SELECT * FROM {table}") for table in ("log", "event", "blob", "attachment")
        }

    def at(self, number: int) -> tuple[str, int]:
        """The log and place of an event by its commit number."""
        return next(
            ((self.logs[log], seq) for each, log, seq in self.events if each == number), ("", 0)
        )

    def pointing(self, blob: int) -> tuple[tuple[str, int], ...]:
        return tuple(self.at(event) for event, key in self.attachments if key == blob)


def _uuid(raw: bytes) -> str:
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


Mutation = Callable[[RawSql, random.Random, Scene], Aim]


# ── one value ────────────────────────────────────────────────────────────────────────────────


def edit_event(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    number, log, _ = chance.choice(scene.events)
    column = chance.choice(
        (
            "number",
            "log",
            "seq",
            "kind",
            "short",
            "codec",
            "salt",
            "header",
            "body",
            "body",
            "header",
        )
    )
    (value,) = sql(f"SELECT {column} FROM event WHERE number = ?", (number,))[0]
    other = _other(column, value, chance, scene)
    sql(f"UPDATE event SET {column} = ? WHERE number = ?", (other, number))
    into = ((scene.logs[log], other),) if column == "seq" else ()
    return Aim(
        f"event.{column}",
        (scene.at(number), *into),
        ("commit number",) if column == "number" else (),
    )


def edit_header(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """A field of the header, in JSON that is still in its one spelling."""
    number, _, _ = chance.choice(scene.events)
    (raw,) = sql("SELECT plain(codec, header) FROM event WHERE number = ?", (number,))[0]
    header = json.loads(raw)
    field = chance.choice(
        ("time", "actor", "origin", "behalf", "run", "call", "causes", "seq", "kind", "body")
    )
    other = {
        "time": header["time"] + 1,
        "actor": "human:mallory",
        "origin": "tool",
        "behalf": "human:mallory",
        "run": "r",
        "call": "c",
    }
    other |= {"causes": ["0" * 64], "seq": header["seq"] + 1, "kind": "Rewound", "body": "0" * 64}
    if header[field] == other[field]:
        other[field] = "tool" if field != "kind" else "Linked"
    header[field] = other[field]
    sql(
        "UPDATE event SET header = ?, codec = codec & 7 WHERE number = ?",
        (_canonical(header), number),
    )
    return Aim(f"header {field}", (scene.at(number),))


def edit_log(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    key = chance.choice(list(scene.logs))
    column = chance.choice(("key", "id", "parent", "place", "head", "tip", "lazy", "epoch"))
    (value,) = sql(f"SELECT {column} FROM log WHERE key = ?", (key,))[0]
    sql(f"UPDATE log SET {column} = ? WHERE key = ?", (_other(column, value, chance, scene), key))
    words = tuple(_uuid(id) for (id,) in sql("SELECT id FROM log")) if column == "id" else ()
    dangling = (f"row {key} of log refers to a row of log",) if column == "parent" else ()
    return Aim(f"log.{column}", (), (scene.logs[key], "belong to no log", *words, *dangling))


def edit_blob(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    key = chance.choice(list(scene.blobs))
    column = chance.choice(("key", "digest", "size", "codec", "refs", "data"))
    (value,) = sql(f"SELECT {column} FROM blob WHERE key = ?", (key,))[0]
    other = _other(column, value, chance, scene)
    sql(f"UPDATE blob SET {column} = ? WHERE key = ?", (other, key))
    return Aim(
        f"blob.{column}",
        scene.pointing(key),
        (scene.blobs[key], other.hex() if column == "digest" else "-"),
    )


def edit_attachment(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    event, blob = chance.choice(scene.attachments)
    column, other = chance.choice(
        (
            ("event", chance.choice(scene.events)[0]),
            ("event", 900),
            ("blob", chance.choice([*scene.blobs, 900])),
        )
    )
    sql(
        f"UPDATE OR REPLACE attachment SET {column} = ? WHERE event = ? AND blob = ?",
        (other, event, blob),
    )
    return Aim(
        f"attachment.{column}",
        tuple(scene.at(number) for number in (event, other)),
        (scene.blobs[blob], scene.blobs.get(other, "-")),
    )


def edit_kind(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    code = chance.choice(scene.kinds)
    if chance.random() < 0.5:
        sql("UPDATE kind SET code = 900 WHERE code = ?", (code,))
    else:
        sql("UPDATE kind SET name = name || 'x' WHERE code = ?", (code,))
    return Aim(
        "kind",
        tuple(
            scene.at(number)
            for (number,) in sql("SELECT number FROM event WHERE kind = ?", (code,))
        ),
    )


def spoil_store(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """The store's own id: gone, twice, or of another length."""
    statements = (
        "DELETE FROM store",
        "INSERT INTO store SELECT randomblob(16), 0",
        "UPDATE store SET id = substr(id, 2)",
    )
    sql(chance.choice(statements))
    return Aim("store")


def swap_kinds(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    one, other = chance.sample(scene.kinds, 2)
    numbers = sql("SELECT number FROM event WHERE kind IN (?, ?)", (one, other))
    for code, into in ((one, 901), (other, one), (901, other)):
        sql("UPDATE kind SET code = ? WHERE code = ?", (into, code))
    return Aim("kinds swapped", tuple(scene.at(number) for (number,) in numbers))


def _other(column: str, value: Any, chance: random.Random, scene: Scene) -> Any:
    """Another value of the same type, near the old one, or far from it."""
    if column in ("log", "parent"):
        return chance.choice(
            [
                key
                for key in (*scene.logs, 900, None)
                if key != value and (key is not None or column == "parent")
            ]
        )
    if column == "kind":
        return chance.choice([code for code in (*scene.kinds, 900) if code != value])
    if column == "codec":
        return chance.choice(
            [codec for codec in (0, 1, 2, 3, 4, 8, 9, 10, 11, 16) if codec != value]
        )
    if column == "lazy":
        return 1 - value
    if column in ("number", "key"):
        return 900 + chance.randrange(99)
    if column == "refs":
        return value + chance.choice((1, 2))
    if column == "size":
        return max(0, value + chance.choice((-1, 1, 10**12)))
    if isinstance(value, int):
        return (
            value ^ 1 << chance.randrange(62)
            if column == "short"
            else value + chance.choice((-1, 1, 7))
        )
    return _flipped(value, chance)


def _flipped(data: bytes, chance: random.Random) -> bytes:
    """A bit flipped, a byte lost, or a byte more."""
    at, how = chance.randrange(len(data)), chance.randrange(8)
    if how == 0:
        return data[:at] + data[at + 1 :]
    if how == 1:
        return data[:at] + bytes([chance.randrange(256)]) + data[at:]
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _canonical(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


# ── whole rows ───────────────────────────────────────────────────────────────────────────────


def delete_event(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    number, _, _ = chance.choice(scene.events)
    sql("DELETE FROM event WHERE number = ?", (number,))
    return Aim("event deleted", (scene.at(number),))


def delete_log(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    key = chance.choice(list(scene.logs))
    sql("DELETE FROM log WHERE key = ?", (key,))
    return Aim("log deleted", (), (scene.logs[key], "belong to no log"))


def delete_blob(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    key = chance.choice([blob for _, blob in scene.attachments])
    sql("DELETE FROM blob WHERE key = ?", (key,))
    return Aim("blob deleted", scene.pointing(key), (scene.blobs[key],))


def delete_attachment(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    event, blob = chance.choice(scene.attachments)
    sql("DELETE FROM attachment WHERE event = ? AND blob = ?", (event, blob))
    return Aim("attachment deleted", (scene.at(event),), (scene.blobs[blob],))


def delete_kind(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    code = chance.choice(scene.kinds)
    sql("DELETE FROM kind WHERE code = ?", (code,))
    return Aim(
        "kind deleted",
        tuple(
            scene.at(number)
            for (number,) in sql("SELECT number FROM event WHERE kind = ?", (code,))
        ),
    )


def copy_event(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """The same event a second time: at its own place, at the end, or in another log."""
    number, log, seq = chance.choice(scene.events)
    into, place = chance.choice(
        (
            (log, seq),
            (log, scene.tips[log] + 1),
            (other := chance.choice(list(scene.logs)), scene.tips[other] + 1),
        )
    )
    sql(
        f"INSERT INTO event SELECT NULL, ?, ?, {_REST} FROM event WHERE number = ?",
        (into, place, number),
    )
    return Aim(
        "event copied", (scene.at(number), (scene.logs[into], place), (scene.logs[into], place - 1))
    )


_REST = "kind, short, codec, salt, header, body"


_ROW = "parent, place, head, tip, lazy, epoch"


def copy_log(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """A second row of a log, under its own id or another."""
    key, id = chance.choice(list(scene.logs)), bytes.fromhex("0123456789ab7abc8abc0123456789ab")
    sql(f"INSERT INTO log (id, {_ROW}) SELECT ?, {_ROW} FROM log WHERE key = ?", (id, key))
    if chance.random() < 0.5:
        sql("UPDATE log SET id = (SELECT id FROM log WHERE key = ?) WHERE id = ?", (key, id))
    return Aim("log copied", (), (scene.logs[key], _uuid(id)))


def copy_attachment(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """An event points to one more blob."""
    event = chance.choice([*[number for number, _, _ in scene.events], 900])
    blob = chance.choice([key for key in scene.blobs if (event, key) not in scene.attachments])
    sql("INSERT INTO attachment VALUES (?, ?)", (event, blob))
    return Aim(
        "attachment inserted",
        (scene.at(event),),
        (scene.blobs[blob], "of attachment refers to a row of event"),
    )


def restore_row(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """A row of a log or a blob as it once was."""
    table = chance.choice(("log", "blob"))
    row = chance.choice(scene.old[table])
    sql(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    words = (scene.logs[row[0]], "belong to no log") if table == "log" else (scene.blobs[row[0]],)
    return Aim(f"old {table} row", () if table == "log" else scene.pointing(row[0]), words)


# ── several rows ─────────────────────────────────────────────────────────────────────────────


def _two(chance: random.Random, scene: Scene, same_log: bool = True) -> tuple[int, int]:
    """Two events by number, the earlier first."""
    while True:
        one, other = sorted(chance.sample(scene.events, 2))
        if (one[1] == other[1]) == same_log:
            return one[0], other[0]


def _swap(sql: RawSql, one: int, other: int, *columns: str) -> None:
    names = ", ".join(columns)
    (mine,), (yours,) = (
        sql(f"SELECT {names} FROM event WHERE number = ?", (number,)) for number in (one, other)
    )
    for number, values in ((one, yours), (other, mine)):
        sql(
            f"UPDATE event SET ({names}) = ({', '.join('?' * len(columns))}) WHERE number = ?",
            (*values, number),
        )


def swap_places(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    one, other = _two(chance, scene)
    _swap(sql, one, other, "seq")
    return Aim("places swapped", (scene.at(one), scene.at(other)))


def swap_events(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """Two events change places, in one log or between two, with everything the store knows of them
    but where they stand.
    """
    one, other = _two(chance, scene, same_log=chance.random() < 0.5)
    _swap(sql, one, other, "kind", "short", "codec", "salt", "header", "body")
    return Aim("events swapped", (scene.at(one), scene.at(other)))


def swap_bodies(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    one, other = _two(chance, scene, same_log=chance.random() < 0.5)
    _swap(
        sql, one, other, *chance.choice((("codec", "body"), ("codec", "body", "salt"), ("salt",)))
    )
    return Aim("bodies swapped", (scene.at(one), scene.at(other)))


def swap_numbers(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """Two events of one log change commit numbers, and so do the rows that point to them."""
    one, other = _two(chance, scene)
    renumber(sql, one, other)
    return Aim("numbers swapped", (scene.at(one), scene.at(other)))


def renumber(sql: RawSql, one: int, other: int) -> None:
    for number, into in ((one, -1), (other, one), (-1, other)):
        sql("UPDATE event SET number = ? WHERE number = ?", (into, number))
        sql("UPDATE attachment SET event = ? WHERE event = ?", (into, number))


def move_event(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """An event goes to the end of another log, whose row says so or not."""
    number, log, seq = chance.choice(scene.events)
    into = chance.choice([key for key in scene.logs if key != log])
    place = scene.tips[into] + 1
    sql("UPDATE event SET log = ?, seq = ? WHERE number = ?", (into, place, number))
    if chance.random() < 0.5:
        head = event_id(
            sql("SELECT plain(codec, header) FROM event WHERE number = ?", (number,))[0][0]
        )
        sql("UPDATE log SET tip = ?, head = ? WHERE key = ?", (place, head, into))
    return Aim("event moved", ((scene.logs[log], seq),))


def cut_tail(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """The last events of a log are gone, and its row does not know."""
    key = chance.choice(list(scene.logs))
    places = [seq for _, log, seq in scene.events if log == key]
    first = chance.choice(places)
    sql("DELETE FROM event WHERE log = ? AND seq >= ?", (key, first))
    return Aim("tail cut", ((scene.logs[key], first),))


def cut_tail_inside(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """The last events of a log are gone and its row is adjusted, but others were committed after
    them.
    """
    key = chance.choice([key for key in scene.logs if key != scene.plain])
    places = [seq for _, log, seq in scene.events if log == key]
    drop_tail(sql, key, chance.choice(places[1:] or places))
    return Aim("tail cut, row adjusted", (), ("commit numbers", scene.logs[key]))


def rewrite_event(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """An event says something else, with its hashes made anew; whoever follows it, or the log's
    row, still has the old id.
    """
    number, log, seq = chance.choice(scene.events)
    reseal(sql, number, {"time": 1}, None)
    return Aim("event rewritten", (scene.at(number), (scene.logs[log], seq + 1)))


def recompress(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """The same content in other bytes: nothing has changed."""
    if chance.random() < 0.3:
        sql(
            "UPDATE event SET header = plain(codec, header), codec = codec & 7 WHERE number = ?",
            (chance.choice(scene.events)[0],),
        )
        return Aim("header unpacked", (), ("compressed",))
    table, key, data = chance.choice((("event", "number", "body"), ("blob", "key", "data")))
    row, codec, packed = chance.choice(
        sql(f"SELECT {key}, codec, plain_body(codec, {data}) FROM {table} WHERE codec & 7 != 2")
    )
    again = (
        (0, packed)
        if chance.random() < 0.5
        else (1, zstandard.compress(packed, chance.choice((1, 19))))
    )
    sql(
        f"UPDATE {table} SET codec = ?, {data} = ? WHERE {key} = ?",
        (codec & 8 | again[0], again[1], row),
    )
    return Aim("packed anew", (), ("compressed",))


# ── packed values ────────────────────────────────────────────────────────────────────────────

_SKIPPED = b"\x50\x2a\x4d\x18\x04\0\0\0hide"  # a frame that every reader passes over


def append_bytes(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """Something after the frame of a packed value, or before it."""
    table, key, column, packed = chance.choice(
        (
            ("event", "number", "header", "codec & 8"),
            ("event", "number", "body", "codec & 7 IN (1, 3)"),
            ("blob", "key", "data", "codec = 1"),
            ("snapshot", "key", "data", "true"),
        )
    )
    row, data = chance.choice(sql(f"SELECT {key}, {column} FROM {table} WHERE {packed}"))
    extra = chance.choice(
        (b"\0", b"more", data, zstandard.compress(b""), zstandard.compress(b"two"), _SKIPPED)
    )
    other = extra + data if chance.random() < 0.2 else data + extra
    sql(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (other, row))
    if table == "event":
        return Aim(f"bytes beside a {column}", (scene.at(row),))
    return Aim(
        f"bytes beside a {table}",
        scene.pointing(row),
        (scene.blobs[row] if table == "blob" else "snapshot",),
    )


def edit_salt(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """A byte moves between the salt and the body: what is hashed stays the same."""
    number, codec, salt, body = chance.choice(
        sql(
            "SELECT number, codec & 8, salt, plain_body(codec, body) FROM event WHERE codec & 7"
            " != 2"
        )
    )
    moved = (salt[:-1], salt[-1:] + body) if chance.random() < 0.5 else (salt + body[:1], body[1:])
    sql("UPDATE event SET codec = ?, salt = ?, body = ? WHERE number = ?", (codec, *moved, number))
    return Aim("salt", (scene.at(number),))


def edit_snapshot(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """A snapshot of another place or log, a second one, one that says something else, or one that
    cannot be unpacked.
    """
    ((key, log, seq, data),) = sql("SELECT key, log, seq, data FROM snapshot")
    state = json.loads(zstandard.decompress(data))
    state["state"]["story"]["facts"]["db"]["json"] = '"forged"'
    forged, other = (
        zstandard.compress(_canonical(state)),
        chance.choice([each for each in scene.logs if each != log]),
    )
    how = chance.choice(("seq", "log", "copy", "beyond", "forged", "junk"))
    if how in ("seq", "beyond"):
        sql(
            "UPDATE snapshot SET seq = ? WHERE key = ?",
            (seq - 1 if how == "seq" else scene.tips[log] + 5, key),
        )
    elif how == "log":
        sql("UPDATE snapshot SET log = ? WHERE key = ?", (other, key))
    elif how == "copy":
        sql("INSERT INTO snapshot (log, seq, data) VALUES (?, ?, ?)", (log, seq - 1, data))
    else:
        sql(
            "UPDATE snapshot SET data = ? WHERE key = ?",
            (forged if how == "forged" else b"junk", key),
        )
    return Aim(f"snapshot {how}", (), ("snapshot",))


# ── blobs and trees ──────────────────────────────────────────────────────────────────────────


def plant_blob(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """A row under the digest of something that nobody has put yet, with another content, or none
    that fits its size.
    """
    content = chance.randbytes(40)
    digest, put = sha256(content), chance.choice((content[::-1], b"", content + b"\0"))
    sql(
        "INSERT INTO blob (digest, size, codec, refs, born, data) VALUES (?, ?, 0, 0, 0, ?)",
        (digest.digest(), len(put), put),
    )
    return Aim("blob planted", (), (digest.hexdigest(),))


def edit_tree(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """What a tree leads to is changed, gone, or under each other's digest: contents, folders, and
    the tree itself.
    """
    rows = sql(
        "SELECT key, digest, size, plain_body(codec, data) FROM blob WHERE born = (SELECT max(born)"
        " FROM blob)"
    )
    key, digest, size, content = chance.choice(rows)
    how = chance.choice(("delete", "content", "size", "swap"))
    if how == "delete":
        sql("DELETE FROM blob WHERE key = ?", (key,))
    elif how == "content":
        sql(
            "UPDATE blob SET codec = 0, data = ? WHERE key = ?",
            (_flipped(content, chance)[:size].ljust(size, b"x"), key),
        )
    elif how == "size":
        sql(
            "UPDATE blob SET codec = 0, data = ?, size = size + 1 WHERE key = ?",
            (content + b"x", key),
        )
    else:
        other = chance.choice([row for row in rows if row[0] != key])
        for into, name in ((key, bytes(32)), (other[0], digest), (key, other[1])):
            sql("UPDATE blob SET digest = ? WHERE key = ?", (name, into))
    return Aim(
        f"tree {how}",
        scene.pointing(key),
        tuple(row[1].hex() for row in rows) if how == "swap" else (digest.hex(),),
    )


# ── what stands beside the logs ──────────────────────────────────────────────────────────────


def alter_schema(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """Something more in the schema, or something less, or something else."""
    statement, word = chance.choice(
        (
            (
                "CREATE TRIGGER silent BEFORE INSERT ON event BEGIN SELECT RAISE(IGNORE); END",
                "silent",
            ),
            (
                (
                    "CREATE TRIGGER p_session__silent AFTER UPDATE ON log BEGIN DELETE FROM"
                    " snapshot; END"
                ),
                "p_session__silent",
            ),
            ("CREATE VIEW shown AS SELECT * FROM log", "shown"),
            ("CREATE VIEW p_session__shown AS SELECT 1", "p_session__shown"),
            ("CREATE TABLE notes (note TEXT)", "notes"),
            ("CREATE TABLE p_other__notes (note TEXT) STRICT", "p_other__notes"),
            ("CREATE TABLE p_session__notes (note TEXT) STRICT", "p_session__notes"),
            ("CREATE VIRTUAL TABLE words USING fts5(word)", "words"),
            ("CREATE UNIQUE INDEX narrow ON log (tip, id)", "narrow"),
            ("CREATE INDEX wide ON event (seq)", "wide"),
            (
                "CREATE UNIQUE INDEX p_session__session_9 ON p_session__session (log)",
                "p_session__session_9",
            ),
            ("DROP INDEX p_session__session_0", "p_session__session_0"),
            (
                (
                    "DROP INDEX p_session__tag_0; CREATE INDEX p_session__tag_0 ON p_session__tag"
                    " (value)"
                ),
                "p_session__tag_0",
            ),
            ("ALTER TABLE p_session__tag ADD COLUMN more TEXT", "p_session__tag"),
            ("ALTER TABLE p_session__tag RENAME COLUMN value TO worth", "p_session__tag"),
            ("DROP TABLE p_graph__merge", "p_graph__merge"),
            ("DROP TABLE p_inbox__ask", "p_inbox__ask"),
            ("DROP INDEX event_id", "event_id"),
            ("DROP INDEX log_lazy", "log_lazy"),
            ("ALTER TABLE blob ADD COLUMN more TEXT", "blob"),
            ("ALTER TABLE store RENAME TO shop", "store"),
        )
    )
    sql(statement)
    return Aim("schema", (), (word,))


def edit_marks(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    name = chance.choice(("user_version", "application_id"))
    ((value,),) = sql(f"PRAGMA {name}")
    sql(
        f"PRAGMA {name} ="
        f" {chance.choice([each for each in (0, 1, value - 1, value + 1) if each != value])}"
    )
    return Aim(name, (), (name,))


def edit_projection(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """Another version of one of ours hides its rows, if it is higher; a lower one
    is folded anew.
    """
    name = chance.choice(("session", "graph", "inbox"))
    sql(
        "UPDATE projection SET version = version + ? WHERE name = ?",
        (chance.choice((-1, 1, 10**6)), name),
    )
    return Aim("projection", (), (f"projection {name}",))


def edit_rows(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """A row of a projection is changed, gone, or there without an event."""
    tables = ("p_session__session", "p_session__tag", "p_graph__cause", "p_graph__merge")
    table = chance.choice([each for each in tables if sql(f"SELECT 1 FROM {each}")])
    columns = [(name, type) for _, name, type, *_ in sql(f"PRAGMA table_info({table})")]
    row = chance.choice(sql(f"SELECT * FROM {table}"))
    same = " AND ".join(f"[{name}] IS ?" for name, _ in columns)
    how = chance.choice(("edit", "null", "delete", "insert"))
    at = chance.randrange(len(columns))
    other = (row[at] or 0) + 700 if columns[at][1] == "INTEGER" else f"{row[at] or ''}x"
    if how == "delete":
        sql(f"DELETE FROM {table} WHERE {same}", row)
    elif how == "insert":
        more = [
            value if value is None else value + 900 if isinstance(value, int) else f"{value}y"
            for value in row
        ]
        sql(f"INSERT INTO {table} VALUES ({', '.join('?' * len(more))})", more)
    else:
        value = (
            None
            if how == "null" and columns[at][0] in ("title", "label", "user", "value")
            else other
        )
        sql(f"UPDATE {table} SET [{columns[at][0]}] = ? WHERE {same}", (value, *row))
    return Aim(f"{table} {how}", (), (table.rpartition("__")[2],))


def rename_store(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """Another store's id, with or without what names the true one."""
    id = bytes.fromhex("0123456789ab7abc8abc") + chance.randbytes(6)
    sql("UPDATE store SET id = ?", (id,))
    words = [_uuid(id), "house"]
    how = chance.choice(("alone", "house gone", "house renamed"))
    if how == "house gone":
        sql("DELETE FROM event WHERE number = 0")
        sql("DELETE FROM log WHERE key = 0")
    elif how == "house renamed":
        raw = bytearray(
            sha256(
                json.dumps(["plait/house/1", _uuid(id)], separators=(",", ":")).encode()
            ).digest()[:16]
        )
        raw[6], raw[8] = raw[6] & 0x0F | 0x80, raw[8] & 0x3F | 0x80
        sql("UPDATE log SET id = ? WHERE key = 0", (bytes(raw),))
        words.append(_uuid(bytes(raw)))
    return Aim(f"store.id, {how}", (), tuple(words))


def edit_unused_kind(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """Rows of kinds that no event has."""
    code = chance.choice(
        [code for (code,) in sql("SELECT code FROM kind") if code not in scene.kinds]
    )
    how = chance.choice(("rename", "renumber", "insert", "delete"))
    if how == "rename":
        sql("UPDATE kind SET name = name || 'x' WHERE code = ?", (code,))
    elif how == "renumber":
        sql("UPDATE kind SET code = 950 WHERE code = ?", (code,))
    elif how == "insert":
        sql("INSERT INTO kind (name) VALUES ('Evil')")
    else:
        sql("DELETE FROM kind WHERE code = ?", (code,))
    return Aim(f"kind {how}", (), ("kind",))


def edit_counters(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """Values that no store of ours has written."""
    statement, word = chance.choice(
        (
            ("UPDATE log SET lazy = 7 WHERE lazy = 1", "lazy"),
            ("UPDATE log SET lazy = 1 WHERE key = 0", "written"),
            ("UPDATE store SET synced = -1", "syncs"),
            ("UPDATE store SET synced = 9223372036854775807", "syncs"),
            ("UPDATE blob SET born = 10000 WHERE key = 1", "commit 10000"),
            ("UPDATE blob SET born = -1 WHERE key = 1", "commit -1"),
        )
    )
    sql(statement)
    return Aim("counters", (), (word,))


# ── order ────────────────────────────────────────────────────────────────────────────────────


def _put_first(sql: RawSql, numbers: list[int], before: int) -> None:
    """Commits move before another one, in their own order, and whatever stood there moves up."""
    rest = [
        number
        for (number,) in sql(
            "SELECT number FROM event WHERE number >= ? ORDER BY number", (before,)
        )
    ]
    order = [*numbers, *[number for number in rest if number not in numbers]]
    for place, number in enumerate(order):
        for table, column in (("event", "number"), ("attachment", "event")):
            sql(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (-100 - place, number))
    for table, column in (("event", "number"), ("attachment", "event")):
        sql(f"UPDATE {table} SET {column} = ? - 100 - {column} WHERE {column} <= -100", (before,))


def reorder_fork(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """A fork was committed before its fork point, which is in another log: each log alone is still
    in order.
    """
    key, parent, place = chance.choice(
        sql("SELECT key, parent, place FROM log WHERE parent IS NOT NULL")
    )
    ((point,),) = sql("SELECT number FROM event WHERE log = ? AND seq = ?", (parent, place))
    numbers = [number for number, log, _ in scene.events if log == key]
    _put_first(sql, numbers[: chance.randint(1, len(numbers))], point)
    return Aim("fork before its fork point", ((scene.logs[key], place + 1),))


def reorder_merge(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """A merge was committed before the branch that it merges."""
    ((number, log, seq),) = sql(
        "SELECT number, log, seq FROM event WHERE kind = (SELECT code FROM kind WHERE name ="
        " 'Merged')"
    )
    header = json.loads(
        sql("SELECT plain(codec, header) FROM event WHERE number = ?", (number,))[0][0]
    )
    short = int.from_bytes(bytes.fromhex(header["parents"][1])[:8], "big", signed=True)
    ((branch,),) = sql("SELECT number FROM event WHERE short = ?", (short,))
    mine = [
        each for each, key, place in scene.events if key == log and each >= branch and place <= seq
    ]
    _put_first(sql, mine, branch)
    return Aim("merge before its branch", ((scene.logs[log], seq),))


def reorder_cause(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """An event was committed before its cause, which is in another log."""
    found: list[tuple[int, int, int]] = []
    for number, log, raw in sql("SELECT number, log, plain(codec, header) FROM event"):
        for cause in json.loads(raw)["causes"]:
            short = int.from_bytes(bytes.fromhex(cause)[:8], "big", signed=True)
            found += [
                (number, log, each)
                for each, key in sql("SELECT number, log FROM event WHERE short = ?", (short,))
                if key != log
            ]
    number, log, cause = chance.choice(found)
    mine = [each for each, key, _ in scene.events if key == log and cause < each <= number]
    _put_first(sql, mine, cause)
    return Aim(
        "event before its cause",
        ((scene.logs[log], scene.begins[scene.logs[log]]), scene.at(number)),
    )


def reorder_logs(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """Two logs change their ordinals, with all that refers to them: the order in which they are
    listed.
    """
    one, other = chance.sample([key for key in scene.logs if key], 2)
    for key, into in ((one, 800), (other, one), (800, other)):
        for table, column in (
            ("log", "key"),
            ("log", "parent"),
            ("event", "log"),
            ("snapshot", "log"),
        ):
            sql(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (into, key))
    return Aim("ordinals swapped", (), ("listed as newer",))


ROW_MUTATIONS: list[Mutation] = [
    edit_event, edit_event, edit_event, edit_header, edit_log, edit_blob, edit_attachment, edit_kind, spoil_store, swap_kinds,
    delete_event, delete_log, delete_blob, delete_attachment, delete_kind, copy_event, copy_log, copy_attachment, restore_row,
    swap_places, swap_events, swap_bodies, swap_numbers, move_event, cut_tail, cut_tail_inside, rewrite_event, recompress,
    append_bytes, append_bytes, edit_salt, edit_snapshot, plant_blob, edit_tree, edit_tree, alter_schema, alter_schema,
    edit_marks, edit_projection, edit_rows, rename_store, edit_unused_kind, edit_counters,
    reorder_fork, reorder_merge, reorder_cause, reorder_logs,
]  # fmt: skip


# ── what verify says it does not look at ─────────────────────────────────────────────────────


def age_blob(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    sql("UPDATE blob SET born = 1 WHERE born > 1")
    return Aim("blob.born", (), ("blob.born",))


def count_syncs(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    sql("UPDATE store SET synced = synced + 7")
    return Aim("store.synced", (), ("store.synced",))


def analyze(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    sql("ANALYZE")
    return Aim("statistics", (), ("sqlite_stat1",))


def declare_projection(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """Rows of a projection that only another program has."""
    sql(
        "CREATE TABLE p_theirs__note ([log] TEXT, [note] TEXT, PRIMARY KEY ([log])) STRICT, WITHOUT"
        " ROWID"
    )
    sql("CREATE INDEX p_theirs__note_0 ON p_theirs__note ([note])")
    sql("INSERT INTO projection VALUES ('theirs', 3, 0)")
    return Aim("another's projection", (), ("projection theirs",))


def replace_snapshot(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """Bytes that no fold of ours made are not used."""
    sql("UPDATE snapshot SET data = ?", (zstandard.compress(b"no state"),))
    return Aim("snapshot replaced", (), ("1 snapshots",))


def drop_snapshot(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    sql("DELETE FROM snapshot")
    return Aim("snapshot dropped", (), ("which snapshots",))


def add_blob(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """A blob that is what its digest says, and that nothing leads to."""
    content = chance.randbytes(40)
    values = sha256(content).digest(), len(content), content
    sql(
        "INSERT INTO blob (digest, size, codec, refs, born, data) VALUES (?, ?, 0, 0, 0, ?)", values
    )
    return Aim("blob added", (), ("unused blobs",))


def swap_unused_kinds(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """Two kinds that no event has change their codes."""
    one, other = chance.sample(
        [row for row in sql("SELECT code, name FROM kind") if row[0] not in scene.kinds], 2
    )
    for code, name in ((one[0], "between"), (other[0], one[1]), (one[0], other[1])):
        sql("UPDATE kind SET name = ? WHERE code = ?", (name, code))
    return Aim("unused kinds swapped", (), ("kinds",))


def age_projection(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """Rows of ours are said to be old, and are folded anew."""
    edits = (
        "UPDATE projection SET version = version - 1",
        "UPDATE projection SET stale = 1",
        "DELETE FROM projection",
    )
    sql(f"{chance.choice(edits)} WHERE name = ?", (chance.choice(("session", "graph", "inbox")),))
    return Aim("projection marked old", (), ("a projection was marked",))


UNCHECKED_MUTATIONS: list[Mutation] = [
    swap_unused_kinds, age_projection,
    age_blob, count_syncs, analyze, declare_projection, drop_snapshot, replace_snapshot, add_blob, recompress,
]  # fmt: skip


# ── what only an anchor kept elsewhere can tell ──────────────────────────────────────────────


def event_id(header: bytes) -> bytes:
    return sha256(b"plait/event/1" + header).digest()


def reseal(sql: RawSql, number: int, changes: dict[str, Any], body: bytes | None) -> bytes:
    """Rewrite an event with its hashes made anew, and return its new id."""
    codec, salt, raw, packed = sql(
        "SELECT codec & 7, salt, plain(codec, header), body FROM event WHERE number = ?", (number,)
    )[0]
    header = json.loads(raw)
    header |= {
        key: header[key] + value if key == "time" else value for key, value in changes.items()
    }
    if body is not None:
        codec, packed = 0, body
        header["body"] = sha256(b"plait/body/1" + salt + body).hexdigest()
    raw = _canonical(header)
    id = event_id(raw)
    short = int.from_bytes(id[:8], "big", signed=True)
    sql(
        "UPDATE event SET codec = ?, header = ?, body = ?, short = ? WHERE number = ?",
        (codec, raw, packed, short, number),
    )
    return id


def drop_tail(sql: RawSql, key: int, first: int) -> None:
    """Remove a log's events from a place on, and what is counted for them, and adjust its row."""
    gone = "SELECT number FROM event WHERE log = ? AND seq >= ?"
    sql(
        "UPDATE blob SET refs = refs - (SELECT count(*) FROM attachment WHERE blob = key AND event"
        f" IN ({gone}))",
        (key, first),
    )
    sql(f"DELETE FROM attachment WHERE event IN ({gone})", (key, first))
    sql("DELETE FROM event WHERE log = ? AND seq >= ?", (key, first))
    last = sql(
        "SELECT seq, plain(codec, header) FROM event WHERE log = ? ORDER BY seq DESC LIMIT 1",
        (key,),
    )
    if last:
        sql(
            "UPDATE log SET tip = ?, head = ? WHERE key = ?",
            (last[0][0], event_id(last[0][1]), key),
        )
    else:
        sql("DELETE FROM log WHERE key = ?", (key,))


def rewrite_tail(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """From a place on a log says something else, all hashes and its row made anew."""
    numbers = [number for number, log, seq in scene.events if log == scene.plain and seq > 1]
    changes: dict[str, Any] = {"actor": "human:mallory"}
    id = b""
    for number in numbers[chance.randrange(len(numbers)) :]:
        id = reseal(
            sql,
            number,
            changes,
            _canonical({"v": 1, "role": "user", "parts": [{"type": "text", "text": "never said"}]}),
        )
        changes = {"parents": [id.hex()]}
    sql("UPDATE log SET head = ? WHERE key = ?", (id, scene.plain))
    return Aim("tail rewritten")


def lose_tail(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """The last commits of all never happened."""
    places = [
        seq
        for number, log, seq in scene.events
        if log == scene.plain and number > len(scene.events) - 6
    ]
    drop_tail(sql, scene.plain, chance.choice(places))
    return Aim("last commits lost")


def swap_between_logs(sql: RawSql, chance: random.Random, scene: Scene) -> Aim:
    """The order of two commits in different logs, neither of which knows of the other: no hash says
    it.
    """
    mine = [number for number, log, seq in scene.events if log == scene.plain and seq > 2][0]
    late = [number for number, log, _ in scene.events if log != scene.plain][-1]
    renumber(sql, late, mine)
    return Aim("order between logs")


ANCHOR_MUTATIONS: list[Mutation] = [rewrite_tail, lose_tail, swap_between_logs]


# ── bytes ────────────────────────────────────────────────────────────────────────────────────

PAGE = 4096
_FRAME = 24 + PAGE


def mutate_file(image: Image, old: Image, chance: random.Random) -> tuple[str, Image]:
    """The database file with some of its bytes changed."""
    main, pages = bytearray(image.main), len(image.main) // PAGE
    how = chance.choice(
        (
            "flip",
            "flip",
            "flip",
            "overwrite",
            "zero",
            "swap",
            "double",
            "restore",
            "truncate",
            "shift",
            "append",
        )
    )
    one, other = (chance.randrange(pages) * PAGE for _ in range(2))
    if how == "flip":
        for _ in range(chance.choice((1, 1, 1, 3))):
            main[chance.randrange(len(main))] ^= 1 << chance.randrange(8)
    elif how == "overwrite":
        at = chance.randrange(len(main))
        junk = chance.randbytes(chance.randrange(1, 64))
        main[at : at + len(junk)] = junk
    elif how == "zero":
        main[one : one + PAGE] = bytes(PAGE)
    elif how == "swap":
        main[one : one + PAGE], main[other : other + PAGE] = (
            image.main[other : other + PAGE],
            image.main[one : one + PAGE],
        )
    elif how == "double":
        main[one : one + PAGE] = image.main[other : other + PAGE]
    elif how == "restore":
        at = chance.randrange(len(old.main) // PAGE) * PAGE
        main[at : at + PAGE] = old.main[at : at + PAGE]
    elif how == "truncate":
        # an empty file is a store that is not made yet: only a head kept elsewhere shows that loss
        del main[max(1, chance.choice((one, chance.randrange(len(main))))) :]
    elif how == "shift":
        main[one : one + PAGE] = image.main[one + 1 : one + PAGE] + b"\0"
    else:
        main += chance.randbytes(chance.choice((1, PAGE)))
    return how, Image(bytes(main), image.log)


def mutate_log(image: Image, older: Image, chance: random.Random) -> tuple[str, Image]:
    """The write-ahead log with some of its bytes changed."""
    log, frames = bytearray(image.log), (len(image.log) - 32) // _FRAME
    how = chance.choice(("flip", "flip", "overwrite", "truncate", "swap", "drop", "none", "older"))
    one, other = (32 + chance.randrange(frames) * _FRAME for _ in range(2))
    if how == "flip":
        log[chance.randrange(len(log))] ^= 1 << chance.randrange(8)
    elif how == "overwrite":
        at = chance.randrange(len(log) - 64)
        log[at : at + 64] = chance.randbytes(64)
    elif how == "truncate":
        del log[chance.choice((one, chance.randrange(len(log)))) :]
    elif how == "swap":
        log[one : one + _FRAME], log[other : other + _FRAME] = (
            image.log[other : other + _FRAME],
            image.log[one : one + _FRAME],
        )
    elif how == "drop":
        del log[one : one + _FRAME]
    elif how == "none":
        log.clear()
    else:
        log = bytearray(older.log)
    return f"log {how}", Image(image.main, bytes(log))
