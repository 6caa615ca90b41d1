"""Addresses of PostgreSQL stores: `postgresql://user@host:port/database?schema=team`.

An address is part of session values, events and errors, so it never has a password. A password in
an address that this process was given is kept in memory, and handed to the driver alone; else the
driver looks for one as every program of PostgreSQL does: PGPASSWORD, a password file, a service.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from plait.errors import BadAddress, MissingExtra
from plait.secrets import learn_key

SCHEMES = ("postgresql", "postgres")
DEFAULT_SCHEMA = "plait"

_SCHEMA = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,47}\Z")
_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]*)?\Z")
_BEGINNING = r"^\s*[A-Za-z][\w+.-]*:/+[^/?:]*"  # of an address, up to the password or the port
_PORT = re.compile(r"[0-9]{1,5}\Z")
_NUMBERS = (
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
)
_OURS = ("schema", "blobs")
# Parameters of the driver that may stand in an address. Others could carry a secret, or change
# what the store relies on.
_DRIVER = (
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslcrl",
    "sslnegotiation",
    "channel_binding",
    "gssencmode",
    "krbsrvname",
    "require_auth",
    "target_session_attrs",
    "load_balance_hosts",
    "hostaddr",
    "host",
    "port",
    "dbname",
    "user",
    "service",
    *_NUMBERS,
)
_LOCAL = frozenset({"", "localhost", "127.0.0.1", "::1"})


class PostgresAddress(NamedTuple):
    """The parts of an address, without a password."""

    user: str
    hosts: str  # as they stand in the address, with ports; "": the driver's default
    database: str
    schema: str
    blobs: str  # where large blobs are kept, as `s3://bucket/prefix`; "": in the database
    options: tuple[tuple[str, str], ...]  # parameters of the driver, sorted

    @property
    def text(self) -> str:
        """The one spelling of the address."""
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        query = [("schema", self.schema)] if self.schema != DEFAULT_SCHEMA else []
        query += [("blobs", self.blobs)] if self.blobs else []
        query += self.options
        tail = f"?{urlencode(query, safe='/:,', quote_via=quote)}" if query else ""
        return f"postgresql://{user}{self.hosts}/{quote(self.database, safe='')}{tail}"

    @property
    def driver_address(self) -> str:
        """The address for the driver, which knows neither schemas nor blobs of ours."""
        options = dict(self.options)
        if "sslmode" not in options and not self.is_local:
            options["sslmode"] = "require"
        tail = f"?{urlencode(sorted(options.items()), quote_via=quote)}" if options else ""
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        return f"postgresql://{user}{self.hosts}/{quote(self.database, safe='')}{tail}"

    @property
    def shared_name(self) -> str:
        """The name of the store for all users of the server."""
        return f"postgresql/{self.hosts}/{self.database}/{self.schema}"

    @property
    def is_local(self) -> bool:
        """True if no network lies between this process and the server, as far as the address says
        so: of a service it says nothing, and the connection tells later.
        """
        options = dict(self.options)
        if "service" in options:
            return True
        named = options.get("hostaddr") or options.get("host") or self.hosts
        named = named or os.environ.get("PGHOSTADDR") or os.environ.get("PGHOST") or ""
        return all(map(is_local_host, named.split(",")))


class _Passwords:
    """Passwords that stood in addresses which this process was given, by address."""

    def __init__(self) -> None:
        self._by_address: dict[str, str] = {}

    def keep(self, address: str, password: str) -> None:
        self._by_address[address] = password
        if password not in address:  # `postgres` is no secret, and hiding it would hide addresses
            learn_key(password, "STORE_PASSWORD")

    def find(self, address: str) -> str | None:
        return self._by_address.get(address)


PASSWORDS = _Passwords()


def check_driver() -> None:
    """Raise unless the driver is installed."""
    if find_spec("psycopg") is None:
        raise MissingExtra("a PostgreSQL store", "postgres", "psycopg")


def check_bucket_client() -> None:
    """Raise unless the client for buckets is installed."""
    if find_spec("obstore") is None:
        raise MissingExtra("a bucket for blobs", "s3", "obstore")


def is_postgres(address: str) -> bool:
    """True if an address is meant for a PostgreSQL server, be it well written or not."""
    return address.partition(":")[0].strip().lower() in SCHEMES


def parse_address(address: str) -> PostgresAddress:
    """Return the parts of an address; its password, if it has one, is kept for the driver.

    Raises `BadAddress`, without the password, for one that names no store.
    """
    shown = without_password(address)
    if re.search(r"[\x00-\x20\x7f]", address):
        raise BadAddress(shown, "it has blanks or line breaks in it")
    try:
        parts = urlsplit(address)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise BadAddress(shown, "it cannot be read as an address") from error
    if parts.fragment or not address.partition(":")[2].startswith("//"):
        raise BadAddress(shown, "it is not like postgresql://user@host:5432/database")
    options = dict(pairs)
    if len(options) < len(pairs):
        raise BadAddress(shown, "a parameter stands in it twice")
    password = _taken_password(options, parts.netloc)
    for name in options:
        if name not in _OURS and name not in _DRIVER:
            raise BadAddress(shown, f"the parameter {name!r} cannot stand in an address")
    user, _, hosts = parts.netloc.rpartition("@")
    _check_numbers(shown, hosts, options)
    database = unquote(parts.path.removeprefix("/"))
    if "/" in database:
        why = "a database is one name without a slash, and / @ ? # : in a password are written as"
        raise BadAddress(shown, f"{why} %2F %40 %3F %23 %3A")
    found = PostgresAddress(
        unquote(user.partition(":")[0]),
        hosts,
        database,
        _checked_schema(shown, options.pop("schema", DEFAULT_SCHEMA)),
        _checked_blobs(shown, options.pop("blobs", "")),
        tuple(sorted(options.items())),
    )
    if password:
        PASSWORDS.keep(found.text, password)
    return found


def without_password(address: str) -> str:
    """Return an address with its password taken out, however wrong its spelling is.

    It is for texts that people read: of an address that is wrong, too much may be taken out.
    """
    text = re.sub(r"(?i)(password=)[^&#\s]*", r"\1…", address)
    text = re.sub(rf"(?s)({_BEGINNING}):.*@", r"\1:…@", text)
    return re.sub(rf"({_BEGINNING}):(?![0-9]+(?:[,/?]|\Z))[^@/?]*\Z", r"\1:…", text)


def _taken_password(options: dict[str, str], netloc: str) -> str:
    user, at, _ = netloc.rpartition("@")
    _, colon, password = user.partition(":")
    given = options.pop("password", "")
    return unquote(password) if at and colon else given


def _checked_schema(shown: str, schema: str) -> str:
    if not _SCHEMA.match(schema) or schema.startswith("pg_"):
        raise BadAddress(
            shown, f"the schema {schema!r} is not a name of letters, digits, - and _ (48 at most)"
        )
    return schema


def _checked_blobs(shown: str, blobs: str) -> str:
    if blobs and (not _BUCKET.match(blobs) or "//" in blobs.removeprefix("s3://")):
        raise BadAddress(shown, f"blobs={blobs!r} is not like s3://bucket/prefix")
    return blobs.rstrip("/")


def _check_numbers(shown: str, hosts: str, options: Mapping[str, str]) -> None:
    """Raise unless ports and times are numbers: the driver would say so for a server that does not
    answer.
    """
    ports = [port for each in hosts.split(",") if (port := _port_of(each)) is not None]
    ports += options.get("port", "").split(",") if options.get("port") else []
    if not all(_PORT.match(port) and 0 < int(port) < 65536 for port in ports):
        raise BadAddress(shown, "its port is not a number from 1 to 65535")
    for name in _NUMBERS:
        if not re.match(r"[0-9]{0,9}\Z", options.get(name, "")):
            raise BadAddress(shown, f"its parameter {name} is not a number")


def _port_of(host: str) -> str | None:
    """Return what stands after the colon of a host; None: nothing does."""
    after = host.rpartition("]")[2] if host.startswith("[") else host
    _, colon, port = after.rpartition(":")
    return port if colon and port else None


def is_local_host(host: str) -> bool:
    return _host_of(host) in _LOCAL or _is_socket(host)


def _host_of(host: str) -> str:
    host = unquote(host)
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host if host.count(":") > 1 else host.partition(":")[0]


def _is_socket(host: str) -> bool:
    return unquote(host).startswith(("/", "@"))
