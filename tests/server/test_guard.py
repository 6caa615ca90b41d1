"""What is let in: by host, origin, token, method, size and depth."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive

from plait import Session, errors, open_store
from plait.server.app import make_app
from plait.server.guard import COOKIE_S, LocalGuard
from plait.server.refusals import RequestRefusal, error_shape, status_of
from plait.server.requests import BODY_MAX
from tests.server.clients import BASE, KEY, KNOWN, PORT, TOKEN, app_client, local_guard, now_s


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session("hello", store=open_store(tmp_path / ".plait"))


@pytest.fixture
def client(session: Session) -> Iterator[TestClient]:
    with app_client(open_store(session.store)) as client:
        yield client


@pytest.fixture
def stranger(session: Session) -> Iterator[TestClient]:
    """A client without a token."""
    with app_client(open_store(session.store), headers={}) as client:
        yield client


# ── hosts and origins ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT + 1}", "", "[::1]"],
)
@pytest.mark.parametrize("path", ["/", "/s/x", "/api/store", "/api/hello", "/assets/x.js"])
def test_another_host_is_misdirected(client: TestClient, host: str, path: str) -> None:
    """A page of another name that resolves to 127.0.0.1 reads nothing."""
    answer = client.get(path, headers={"host": host})
    assert answer.status_code == 421 and answer.json()["error"] == "WrongHost"


@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"LOCALHOST:{PORT}"])
def test_names_of_loopback_are_its_own(client: TestClient, host: str) -> None:
    assert client.get("/api/store", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", f"https://127.0.0.1:{PORT}", ""])
def test_another_origin_is_refused(client: TestClient, session: Session, origin: str) -> None:
    path = f"/api/sessions/{session.id}/acts/say"
    answer = client.post(path, json={"text": "x"}, headers={"origin": origin})
    assert answer.status_code == 403 and answer.json()["error"] == "WrongOrigin"
    assert client.get("/api/store", headers={"origin": origin}).status_code == 403
    assert session.reload() == session


def test_a_request_of_another_site_is_refused(client: TestClient) -> None:
    """An old cookie cannot be used by a page elsewhere, even for a picture or a script."""
    for mode in ("no-cors", "cors", "same-origin"):
        headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": mode}
        assert client.get("/api/store", headers=headers).status_code == 403
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200
    own = {"sec-fetch-site": "same-origin", "origin": BASE}
    assert client.get("/api/store", headers=own).status_code == 200


# ── tokens ───────────────────────────────────────────────────────────────────────────────────


def test_without_a_token_nothing_is_told(stranger: TestClient, session: Session) -> None:
    for path in ("/api/store", f"/api/sessions/{session.id}", "/api/feed", "/api/openapi.json"):
        answer = stranger.get(path)
        assert answer.status_code == 401 and answer.json()["error"] == "NoToken"
        assert session.short not in answer.text
    answer = stranger.post(f"/api/sessions/{session.id}/acts/say", json={"text": "x"})
    assert answer.status_code == 401 and session.reload() == session
    assert stranger.get("/").status_code == 200  # the page has no data


@pytest.mark.parametrize("token", ["", "x", TOKEN[:-1], f"{TOKEN}x", "ä"])
def test_a_wrong_token_is_no_token(stranger: TestClient, token: str) -> None:
    assert stranger.post("/api/hello", json={"token": token}).status_code == 401
    header = f"Bearer {token}".encode()
    answer = stranger.get("/api/store", headers=[(b"authorization", header)])
    assert answer.status_code == 401


def test_the_token_is_exchanged_for_a_strict_cookie(stranger: TestClient) -> None:
    answer = stranger.post("/api/hello", json={"token": TOKEN}, headers={"origin": BASE})
    assert answer.status_code == 200 and answer.json()["actor"] == "human:ana"
    cookie = answer.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", "Path=/"))
    assert TOKEN not in cookie
    assert stranger.get("/api/store").status_code == 200  # the client has it now
    forged = stranger.cookies[f"plait-{PORT}"]
    until, _, sign = forged.partition(".")
    stranger.cookies.clear()
    other = f"{sign[:-1]}{'1' if sign[-1] == '0' else '0'}"
    for wrong in (f"{int(until) + 1}.{sign}", f"{until}.{other}", f"{until}.", sign, "x"):
        headers = {"cookie": f"plait-{PORT}={wrong}"}
        assert stranger.get("/api/store", headers=headers).status_code == 401
    assert stranger.get("/api/store", headers={"cookie": "a;=;\x7f"}).status_code == 401


def test_a_cookie_outlives_its_server_and_ends(session: Session) -> None:
    cookie = local_guard().hello(TOKEN).partition(";")[0]
    later = LocalGuard(PORT, "another token", KEY, now_s, read_only=False)
    later.check_reader({"cookie": cookie})  # the server was started again
    others = [
        LocalGuard(PORT, TOKEN, KEY, lambda: now_s() + COOKIE_S + 1, read_only=False),
        LocalGuard(PORT, TOKEN, b"x" * 32, now_s, read_only=False),
        LocalGuard(PORT + 1, TOKEN, KEY, now_s, read_only=False),
    ]
    for guard in others:
        with pytest.raises(RequestRefusal):
            guard.check_reader({"cookie": cookie})


def test_a_cookie_alone_is_no_proof_of_the_page(stranger: TestClient, session: Session) -> None:
    """Browsers send cookies to every port of a host, so that other servers are sent ours."""
    stranger.post("/api/hello", json={"token": TOKEN}, headers={"origin": BASE})
    path = f"/api/sessions/{session.id}/acts/say"
    for headers in ({}, {"sec-fetch-site": "none"}, {"authorization": "Bearer wrong"}):
        answer = stranger.post(path, json={"text": "x"}, headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (403, "NoOrigin"), headers
        assert "Bearer" in answer.json()["next"]
    assert session.reload() == session
    assert stranger.get("/api/store").status_code == 200
    for headers in ({"origin": BASE}, {"sec-fetch-site": "same-origin"}, KNOWN):
        assert stranger.post(path, json={"text": "x"}, headers=headers).status_code == 200


def test_a_server_that_only_reads_takes_no_acts(session: Session) -> None:
    with app_client(open_store(session.store), read_only=True) as client:
        answer = client.post(f"/api/sessions/{session.id}/acts/say", json={"text": "x"})
        assert answer.status_code == 403 and answer.json()["error"] == "ReadOnly"
        body = {"verb": "resume", "session": session.id}
        assert client.post("/api/runs", json=body).status_code == 403
        assert client.get("/api/store").json()["read_only"] is True
    assert session.reload() == session


# ── forms ────────────────────────────────────────────────────────────────────────────────────


def test_other_methods_are_refused(client: TestClient) -> None:
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        assert client.request(method, "/api/store").status_code == 405
    assert client.post("/api/store", json={}).status_code == 405
    answer = client.get("/api/no/such/route")
    assert answer.status_code == 404 and answer.json()["error"] == "UnknownRoute"


def test_only_json_is_taken(client: TestClient, session: Session) -> None:
    path = f"/api/sessions/{session.id}/acts/say"
    for media in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        answer = client.post(path, content=b'{"text":"x"}', headers={"content-type": media})
        assert answer.status_code == 415, media
    assert session.reload() == session


@pytest.mark.parametrize(
    ("content", "status", "error"),
    [
        (b"", 422, "MalformedJson"),
        (b"{", 422, "MalformedJson"),
        (b"[" * 10_000 + b"]" * 10_000, 422, "TooDeep"),
        (b'{"text":' + b"[" * 10_000 + b"]" * 10_000 + b"}", 422, "TooDeep"),
        (b'{"text":"a","text":"b"}', 422, "DuplicateKey"),
        (b'{"text":NaN}', 422, "InvalidValue"),
        (b'{"text":1}', 422, "InvalidValue"),
        (b'{"text":"x","more":1}', 422, "InvalidValue"),
        (b'{"text":""}', 422, "InvalidValue"),
        (b"[]", 422, "InvalidValue"),
        (b'{"text":"' + b"x" * (BODY_MAX + 1) + b'"}', 413, "TooLarge"),
        (b'{"text":"' + b"x" * 1_000_001 + b'"}', 422, "InvalidValue"),
    ],
)
def test_bad_bodies_are_refused(
    client: TestClient, session: Session, content: bytes, status: int, error: str
) -> None:
    path = f"/api/sessions/{session.id}/acts/say"
    answer = client.post(path, content=content, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]) == (status, error), answer.text
    assert session.reload() == session


def call_raw(
    app: ASGIApp, path: str, receive: Receive, **headers: str
) -> tuple[int, dict[str, object]]:
    """Call an application without a client; return the status and the answer."""
    sent = list[Message]()

    async def send(message: Message) -> None:
        sent.append(message)

    given = {"host": BASE.removeprefix("http://"), "content-type": "application/json", **KNOWN}
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [
            (name.replace("_", "-").encode(), value.encode())
            for name, value in {**given, **headers}.items()
        ],
    }

    async def call() -> None:
        await app(scope, receive, send)

    asyncio.run(call())
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_a_body_that_says_it_is_too_large_is_not_waited_for(session: Session) -> None:
    app = make_app(open_store(session.store), local_guard())

    async def receive() -> Message:
        raise AssertionError("the body is read")

    path = f"/api/sessions/{session.id}/acts/say"
    for size in (str(BODY_MAX + 1), "9" * 400):
        status, answer = call_raw(app, path, receive, content_length=size)
        assert (status, answer["error"]) == (413, "TooLarge")


def test_a_client_that_leaves_is_no_bug(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    app = make_app(open_store(session.store), local_guard())
    pieces: list[Message] = [
        {"type": "http.request", "body": b'{"te', "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return pieces.pop(0)

    status, _ = call_raw(app, f"/api/sessions/{session.id}/acts/say", receive)
    assert status == 400 and session.reload() == session
    assert capsys.readouterr().err == ""


def test_every_answer_has_the_headers_of_the_house(client: TestClient) -> None:
    for path in ("/", "/s/a", "/api/store", "/api/nothing", "/assets/none.js"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
    policy = client.get("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy and "frame-ancestors 'none'" in policy


# ── the page ─────────────────────────────────────────────────────────────────────────────────


def test_a_page_that_is_not_built_says_what_to_type(session: Session, tmp_path: Path) -> None:
    with app_client(open_store(session.store), page=tmp_path / "none") as client:
        for path in ("/", "/s/x@3/files/a.py", "/inbox"):
            answer = client.get(path)
            assert answer.status_code == 200 and "make viewer" in answer.text
        assert client.get("/api/store").status_code == 200


def test_every_address_of_the_page_is_the_page(session: Session, tmp_path: Path) -> None:
    built = tmp_path / "dist"
    (built / "assets").mkdir(parents=True)
    (built / "index.html").write_text("<title>page</title>")
    (built / "assets" / "main-1a2b.js").write_text("let a")
    (tmp_path / "secret.txt").write_text("secret")
    with app_client(open_store(session.store), page=built, headers={}) as client:
        for path in ("/", "/s/x@3", "/compare/a..b", "/inbox"):
            assert client.get(path).text == "<title>page</title>"
        script = client.get("/assets/main-1a2b.js")
        assert script.headers["content-type"].startswith("text/javascript")
        assert "immutable" in script.headers["cache-control"]
        for path in ("/assets/../../secret.txt", "/assets/%2e%2e/%2e%2e/secret.txt", "/assets/"):
            assert "secret" not in client.get(path).text
        for path in ("/assets/%00", "/assets/a%00b.js", f"/assets/{'x' * 5_000}"):
            assert client.get(path).status_code == 404


def test_the_document_of_the_routes_is_whole(client: TestClient) -> None:
    found = client.get("/api/openapi.json").json()
    assert found["openapi"].startswith("3.1")
    schemas = found["components"]["schemas"]

    def references(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            for key, each in value.items():  # pyright: ignore[reportUnknownVariableType]
                if key == "$ref":
                    yield str(each)  # pyright: ignore[reportUnknownArgumentType]
                yield from references(each)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(value, list):
            for each in value:  # pyright: ignore[reportUnknownVariableType]
                yield from references(each)  # pyright: ignore[reportUnknownArgumentType]

    named = set(references(found))
    assert named and {each.rpartition("/")[2] for each in named} <= schemas.keys()
    assert "/api/sessions/{session}/acts/approve" in found["paths"]
    step = found["paths"]["/api/logs/{log}/steps/{seq}"]["get"]
    assert [(each["name"], each["in"]) for each in step["parameters"]] == [
        ("log", "path"),
        ("seq", "path"),
    ]
    for path, methods in found["paths"].items():
        for operation in methods.values():
            assert operation["summary"].endswith("."), path
    assert KNOWN  # the document needs the token like everything else


# ── errors ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.UnknownRevision("x", "no session is called that"), 404),
        (errors.UnknownPlace("s", 9, 3), 404),
        (errors.NoSuchFile("a.py"), 404),
        (errors.StaleHead("l", "a", "b", 3), 409),
        (errors.AlreadyAnswered("s", "a", "ApprovalGranted", "human:bo"), 409),
        (errors.RunHeld("s", "r", "pid 7"), 409),
        (errors.AskExpired("s", "a", 1), 410),
        (errors.MayNotApprove("s", "agent:x", "it asks"), 403),
        (errors.MergeConflict("s", {"k": {"a": 1, "b": 2}}), 422),
        (errors.NeedsWorkflow("s", "m:W", "it is not there"), 422),
        (errors.InvalidValue("x", "wrong"), 422),
        (errors.StoreUnreachable("postgresql://x", "away", 1), 503),
        (errors.DiskFull("/"), 507),
        (errors.StoreCorrupt("x", "y"), 422),
    ],
)
def test_each_error_has_its_status_and_its_own_words(error: errors.PlaitError, status: int) -> None:
    assert status_of(error) == status
    shape = error_shape(error)
    assert shape.error == type(error).__name__ and shape.message == error.record_text
