"""Objects in S3-compatible storage: the only module that knows its client.

Endpoint, region and credentials come from the environment: AWS_ENDPOINT_URL, AWS_REGION,
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the others of that family. A request is repeated for as
long as one to the database would be.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from plait.errors import (
    DiskFull,
    PlaitError,
    StoreDenied,
    StoreFailed,
    StoreUnreachable,
)

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import S3Config

T = TypeVar("T")

_CONNECT_S = 10
_SLOWEST = 1 << 20  # bytes in a second; a bucket that is slower counts as away
_STEP = 64 << 20  # clients differ in their time limit, by steps of this size
_PAGE = 1000
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_RETRIES_MAX = 10_000  # the time limits them

_DENIALS = (
    (
        r"NoSuchBucket",
        "there is no such bucket",
        "create it, or check AWS_ENDPOINT_URL and AWS_REGION",
    ),
    (
        r"InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken|401 Unauthorized"
        r"|169\.254\.|[Cc]redential",
        "the bucket does not take these credentials, or there are none",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    (
        r"AccessDenied|403 Forbidden|AllAccessDisabled",
        "these credentials may not do it",
        "give them the rights to list, read, write and delete objects there",
    ),
    (
        r"PermanentRedirect|AuthorizationHeaderMalformed|301 Moved",
        "the bucket is in another region",
        "set AWS_REGION",
    ),
    (
        r"URL scheme is not allowed|builder error",
        "its endpoint does not speak TLS, which is required over a network",
        "use an https endpoint, or set AWS_ALLOW_HTTP=true if the network is safe",
    ),
)
_FULL = re.compile(r"507 |QuotaExceeded|StorageFull|InsufficientStorage|InsufficientCapacity")
_AWAY = re.compile(r"HTTP error|error sending request|timed? ?out|\b5\d\d |SlowDown")


class Bucket:
    """The objects of one store, below a prefix."""

    def __init__(self, address: str, store_id: str, wait_s: float) -> None:
        self.address = address
        bucket, _, prefix = address.removeprefix("s3://").partition("/")
        self._bucket, self._prefix = bucket, "/".join(filter(None, [prefix, store_id]))
        self._wait_s = wait_s
        self._clients: dict[int, S3Store] = {}

    def put(self, name: str, data: bytes) -> bool:
        """Put an object if there is none of that name. Returns False if there is one."""
        try:
            self._ask(lambda: self._client(len(data)).put(name, data, mode="create"))
        except AlreadyExistsError:
            return False
        return True

    def replace(self, name: str, data: bytes) -> None:
        """Put an object, whatever is there."""
        self._ask(lambda: self._client(len(data)).put(name, data, use_multipart=False))

    def get(self, name: str, size: int) -> bytes | None:
        """Return an object of about this size; None: it is not there."""
        try:
            return self._ask(lambda: bytes(self._client(size).get(name).bytes()))
        except FileNotFoundError:
            return None

    def names(self) -> Generator[list[str]]:
        """Yield the names of all objects, in pages."""
        pages = self._ask(lambda: self._list())
        while page := self._ask(lambda: next(pages, None)):
            yield [each["path"] for each in page]

    def _list(self) -> Iterator[Sequence[ObjectMeta]]:
        return self._client(0).list(chunk_size=_PAGE)  # pyright: ignore[reportUnknownMemberType]

    def remove(self, names: Sequence[str]) -> None:
        if names:
            self._ask(lambda: self._client(0).delete(list(names)))

    def check(self) -> None:
        """Raise unless the bucket is there and can be listed."""
        next(self.names(), None)

    def _client(self, size: int) -> S3Store:
        """Return a client with a time limit for requests of this size."""
        _check_process(self.address)
        steps = size // _STEP
        if steps not in self._clients:
            limit_s = max(self._wait_s, 1.0) + steps * _STEP / _SLOWEST
            self._clients[steps] = _new_client(self._bucket, self._prefix, limit_s, self._wait_s)
        return self._clients[steps]

    def _ask(self, request: Callable[[], T]) -> T:
        try:
            return request()
        except AlreadyExistsError:
            raise
        except (BaseError, FileNotFoundError, PermissionError, OSError) as error:
            text = str(error).partition("Debug source")[0]
            if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in text:
                raise
            raise self._error_of(text) from error

    def _error_of(self, text: str) -> PlaitError:
        why = _first_line(text)
        if _FULL.search(text):
            return DiskFull(self.address)
        for pattern, reason, step in _DENIALS:
            if re.search(pattern, text):
                return StoreDenied(self.address, f"{reason} ({why})", step)
        if _AWAY.search(text):
            return StoreUnreachable(self.address, why, self._wait_s)
        return StoreFailed(self.address, why)


def _new_client(bucket: str, prefix: str, limit_s: float, wait_s: float) -> S3Store:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    is_plain = endpoint.startswith("http://") and (
        urlsplit(endpoint).hostname in _LOCAL or os.environ.get("AWS_ALLOW_HTTP") == "true"
    )
    config: S3Config = {"checksum_algorithm": "sha256"}
    if endpoint:
        config["endpoint"] = endpoint
    return S3Store(
        bucket,
        prefix=prefix,
        config=config,
        client_options={
            "allow_http": is_plain,
            "connect_timeout": timedelta(seconds=_CONNECT_S),
            "timeout": timedelta(seconds=limit_s),
        },
        retry_config={
            "max_retries": _RETRIES_MAX,
            "retry_timeout": timedelta(seconds=wait_s),
            "backoff": {
                "init_backoff": timedelta(milliseconds=50),
                "max_backoff": timedelta(seconds=1),
                "base": 2,
            },
        },
    )


# ── forks ────────────────────────────────────────────────────────────────────────────────────


class _Owner:
    """The process that the client's threads belong to."""

    process = 0  # 0: it has none yet


def _check_process(address: str) -> None:
    """Raise in a child that was forked after the first request: the threads of the client are
    gone there, and it would wait for them for ever.
    """
    if _Owner.process not in (0, os.getpid()):
        raise StoreDenied(
            address,
            "this process was forked from one that has used the bucket, and its client does not"
            " outlive a fork",
            "start it anew instead of forking it (multiprocessing: 'spawn'), or fork earlier",
        )
    _Owner.process = os.getpid()


def _first_line(text: str) -> str:
    code = re.search(r"<Code>(\w+)</Code>", text)
    line = text.partition("<?xml")[0].partition("<Error>")[0]
    line = " ".join(line.split()).rstrip(":").strip()
    return f"{line[:300]}{f' ({code[1]})' if code else ''}"
