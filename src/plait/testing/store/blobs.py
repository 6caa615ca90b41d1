"""Blobs: by content, counted, and swept."""

from __future__ import annotations

from plait.errors import (
    CommitmentBroken,
    UnknownBlob,
)
from plait.event.kinds import (
    File,
    MessageSaid,
)
from plait.store.blobs import digest_of
from plait.testing.writing import (
    Opened,
    begin,
    check_refused,
    extend,
    seal_events,
    wait_until_settled,
)


class BlobContract:
    def test_blobs_are_kept_by_content(self, opened: Opened) -> None:
        store = opened()
        for content in (b"", b"\0\xff", b"text " * 1000, bytes(range(256)) * 300):
            digest = store.put_blob(content)
            assert digest == digest_of(content) == store.put_blob(content)
            assert store.get_blob(digest) == content
            assert store.blob_info(digest).size == len(content)

    def test_blobs_are_counted_by_the_events_that_point_to_them(self, opened: Opened) -> None:
        store = opened()
        content = b"evidence " * 100
        digest = store.put_blob(content)
        assert store.blob_info(digest).refs == 0
        log = begin(
            store,
            MessageSaid(
                "user", (File("a.txt", "text/plain", digest), File("b.txt", "text/plain", digest))
            ),
        )
        assert store.blob_info(digest).refs == 1
        extend(store, log, MessageSaid("user", (File("c.txt", "text/plain", digest),)))
        assert store.blob_info(digest).refs == 2

    def test_append_refuses_a_blob_that_is_not_there(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        missing = digest_of(b"never put")
        with check_refused(UnknownBlob, store):
            extend(store, log, MessageSaid("user", (File("a", "text/plain", missing),)))

    def test_blobs_travel_with_their_event(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        head, content = store.log(log).head, b"carried"
        digest = digest_of(content)
        events = seal_events(
            [MessageSaid("user", (File("a", "text/plain", digest),))], log, 2, (head,)
        )
        with check_refused(CommitmentBroken, store):
            store.append(log, events, after=head, blobs={digest: b"swapped"})
        store.append(log, events, after=head, blobs={digest: content})
        assert store.get_blob(digest) == content
        assert store.blob_info(digest).refs == 1

    def test_sweeping_takes_only_old_and_unused_blobs(self, opened: Opened) -> None:
        store = opened()
        used, unused = store.put_blob(b"used"), store.put_blob(b"unused")
        begin(store, MessageSaid("user", (File("a", "text/plain", used),)))
        number = wait_until_settled(store)
        young = store.put_blob(b"young")
        assert store.sweep_blobs(before=number) == 1
        assert store.get_blob(used) == b"used"
        assert store.get_blob(young) == b"young"
        with check_refused(UnknownBlob, store):
            store.get_blob(unused)

    def test_many_blobs_are_put_at_once_or_not_at_all(self, opened: Opened) -> None:
        store = opened()
        contents = {digest_of(content): content for content in (b"", b"one", b"text " * 1000)}
        store.put_blob(b"one")
        with check_refused(CommitmentBroken, store):
            store.put_blobs({**contents, digest_of(b"two"): b"swapped"})
        assert store.missing_blobs([*contents, digest_of(b"two")]) == {
            digest_of(b""),
            digest_of(b"text " * 1000),
            digest_of(b"two"),
        }
        store.put_blobs(contents)
        store.put_blobs(contents)
        store.put_blobs({})
        assert {digest: store.get_blob(digest) for digest in contents} == contents
        assert store.missing_blobs(contents) == store.missing_blobs([]) == set()

    def test_sweeping_leaves_what_is_to_be_kept(self, opened: Opened) -> None:
        store = opened()
        kept, unused = store.put_blob(b"kept"), store.put_blob(b"unused")
        begin(store)
        assert store.sweep_blobs(before=wait_until_settled(store), keep={kept}) == 1
        assert store.missing_blobs([kept, unused]) == {unused}

    def test_asking_for_blobs_makes_them_young(self, opened: Opened) -> None:
        store = opened()
        asked, put, old = store.put_blob(b"asked"), store.put_blob(b"put"), store.put_blob(b"old")
        begin(store)
        number = wait_until_settled(store)
        assert store.missing_blobs([asked]) == set()
        store.put_blobs({put: b"put"})
        assert store.sweep_blobs(before=number) == 1
        assert store.missing_blobs([asked, put, old]) == {old}
