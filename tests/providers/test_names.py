"""Models by name over real HTTP: the path, the headers and the query that each provider wants, and
the settings of plait.toml.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plait import Agent, Budget, Session
from plait.calls.model_call import Retry
from plait.errors import BadSettings, MissingKey, MissingSetting, NoModel
from plait.event import kinds as k
from plait.model import find
from plait.model.prices import TokenPrice
from plait.model.providers import PROVIDERS
from plait.model.settings import ModelSettings, parse_settings, settings_of
from tests.providers.wire import Asked, Wire, whole
from tests.support import bodies

pytest.importorskip("openai")

KEY = "key-0123456789"
BODY = {
    "model": "m-1",
    "choices": [{"message": {"content": "Here."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1000, "completion_tokens": 500},
}


@pytest.fixture(autouse=True)
def place(own_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store and no settings; returns where plait.toml would be."""
    for name in ("PLAIT_MODEL", "PLAIT_SETTINGS", "AZURE_OPENAI_API_VERSION"):
        monkeypatch.delenv(name, raising=False)
    for provider in PROVIDERS.values():
        for name in (provider.key_variable, provider.address_variable):
            monkeypatch.delenv(name, raising=False)
    return own_store.parent / "plait.toml"


def ask(name: str | None, wire: Wire, **given: Any) -> tuple[Session, Asked]:
    wire.play(whole(BODY))
    agent = Agent("Answer.", model=name, retry=Retry(attempts=1), **given)
    session = agent(Session("Hello?"))
    assert session.text == "Here."
    return session, wire.requests[0]


# ── rows ─────────────────────────────────────────────────────────────────────────────────────

WANTED = {
    "ollama": ("/v1/chat/completions", None, "max_tokens"),
    "gemini": ("/v1beta/openai/chat/completions", ("authorization", f"Bearer {KEY}"), "max_tokens"),
    "openrouter": ("/api/v1/chat/completions", ("authorization", f"Bearer {KEY}"), "max_tokens"),
    "azure": (
        "/openai/deployments/m/chat/completions?api-version=2024-10-21",
        ("api-key", KEY),
        "max_completion_tokens",
    ),
}


@pytest.mark.parametrize("scheme", PROVIDERS)
def test_each_provider_is_asked_as_it_wants(
    scheme: str, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, (path, header, tokens) = PROVIDERS[scheme], WANTED[scheme]
    monkeypatch.setenv(provider.address_variable, wire.url)
    if provider.key_variable:
        monkeypatch.setenv(provider.key_variable, KEY)
    session, asked = ask(f"{scheme}:m", wire, parameters={"tokens_max": 9})
    assert asked.path == path
    if header is not None:
        assert asked.headers[header[0]] == header[1]
    if header is None or header[0] != "authorization":
        assert KEY not in asked.headers.get("authorization", "")
    if provider.key_header:
        assert "authorization" not in asked.headers
    assert asked.json["model"] == "m" and asked.json[tokens] == 9
    assert bodies(session, k.ModelAsked)[0].model == f"{scheme}:m"
    price = bodies(session, k.ModelReplied)[0].price
    assert (price is not None and price.cost_usd_nano == 0) if provider.is_free else price is None


@pytest.mark.parametrize("scheme", [name for name, row in PROVIDERS.items() if row.key_variable])
def test_a_missing_key_is_named(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = PROVIDERS[scheme]
    monkeypatch.setenv(provider.address_variable, "http://127.0.0.1:9")
    with pytest.raises(MissingKey, match=f"{scheme}:other needs a key.*{provider.key_variable}"):
        find(f"{scheme}:other")


def test_a_missing_address_is_named() -> None:
    with pytest.raises(MissingSetting, match="AZURE_OPENAI_ENDPOINT") as error:
        find("azure:other")
    assert "https://NAME.openai.azure.com" in str(error.value) and "plait.toml" in str(error.value)


def test_an_address_may_lack_its_scheme_or_have_its_path(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address in (wire.url.removeprefix("http://"), f"{wire.url}/", f"{wire.url}/v1/"):
        monkeypatch.setenv("OLLAMA_HOST", address)
        _, asked = ask(f"ollama:m{len(address)}", wire)
        assert asked.path == "/v1/chat/completions"


# ── plait.toml ───────────────────────────────────────────────────────────────────────────────


def test_the_file_names_a_server_of_its_own(
    place: Path, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOUSE_KEY", KEY)
    monkeypatch.setenv("TEAM", "team-of-search")
    place.write_text(f"""
model = ["nowhere", "house"]    # where an agent names none

[models.house]
base_url = "{wire.url}/v1"
model = "qwen3"
key = "HOUSE_KEY"
headers = {{ x-team = "$TEAM", x-kind = "test" }}
price = [1, 2]

[models.nowhere]
base_url = "http://127.0.0.1:9/v1"
timeout_s = 5
""")
    session, asked = ask(None, wire)
    assert asked.json["model"] == "qwen3" and asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["x-team"] == "team-of-search" and asked.headers["x-kind"] == "test"
    assert [body.model for body in bodies(session, k.ModelAsked)] == ["nowhere", "house"]
    price = bodies(session, k.ModelReplied)[0].price
    assert price is not None and price.cost_usd_nano == (1000 * 1 + 500 * 2) * 1000
    # with a price, a budget in dollars can be kept
    wire.play(whole(BODY))
    paid = Agent("Answer.", model="house")(Session("Hello?", budget=Budget(cost_usd_max=1)))
    assert paid.budget.cost.dollars == pytest.approx(0.002)


def test_a_change_of_the_file_is_seen(place: Path, wire: Wire) -> None:
    with pytest.raises(NoModel):
        find("mine")
    place.write_text(f'[models.mine]\nbase_url = "{wire.url}/a"\nmodel = "m"')
    assert ask("mine", wire)[1].path == "/a/chat/completions"
    place.write_text(f'[models.mine]\nbase_url = "{wire.url}/bc"\nmodel = "m"')
    assert ask("mine", wire)[1].path == "/bc/chat/completions"


def test_a_provider_has_a_table_and_so_has_each_of_its_models(
    place: Path, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", KEY)
    place.write_text(f"""
[models.openrouter]
base_url = "{wire.url}"
headers = {{ x-title = "shop" }}
timeout_s = 20
[models."openrouter:a/b"]
timeout_s = 30
concurrency = 2
price = {{ input = 1.0, output = 2.0, cached = 0.1 }}
""")
    _, asked = ask("openrouter:a/b", wire)
    assert asked.path == "/api/v1/chat/completions" and asked.headers["x-title"] == "shop"
    found = settings_of("openrouter:a/b")
    assert (found.timeout_s, found.concurrency) == (30, 2)
    assert found.price == TokenPrice(1.0, 2.0, 0.1)
    assert settings_of("openrouter:c/d").timeout_s == 20
    monkeypatch.setenv("PLAIT_TIMEOUT_S", "7.5")  # the environment is before the file
    assert settings_of("openrouter:a/b").timeout_s == 7.5
    assert settings_of("anthropic:x") == ModelSettings(timeout_s=7.5)


@pytest.mark.parametrize(
    "text, line, key, why",
    [
        ("model = 'a'\nmodels = [", 2, "", "not TOML"),
        ("[models.a]\ncolour = 1", 2, "models.a.colour", "no such setting"),
        ("colour = 1", 1, "colour", "no such setting"),
        ("model = 7", 1, "model", "not a name or a list"),
        ("\n[models]\na = 7", 3, "models.a", "not a table"),
        ("[models.a]\n\ntimeout_s = 'soon'", 3, "models.a.timeout_s", "Expected"),
        (
            "[models.a]\ntimeout_s = 1\n[models.b]\ntimeout_s = 0",
            4,
            "models.b.timeout_s",
            "above 0",
        ),
        ("[models.a]\nconcurrency = 1.5", 2, "models.a.concurrency", "Expected"),
        ("[models.a]\nprice = [1]", 2, "models.a.price", "not a price"),
        ("[models.a]\nprice = [-1, 2]", 2, "models.a.price", "not a price"),
        ('[models.a]\nbase_url = "ftp://x"', 2, "models.a.base_url", "not an address of the web"),
        ('[models."a:b"]\nheaders = { x = 1 }', 2, "models.a:b.headers", "Expected"),
    ],
)
def test_a_bad_file_names_its_line_and_key(text: str, line: int, key: str, why: str) -> None:
    with pytest.raises(BadSettings, match=why) as error:
        parse_settings(text, "plait.toml")
    assert (error.value.line, error.value.key) == (line, key)
    assert f"plait.toml, line {line}" in str(error.value)


def test_bad_settings_are_found_before_anything_is_written(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session("Hello?")
    place.write_text("[models.a]\nbase_url = 'http://127.0.0.1:9'\nheaders = { x = '$NOWHERE' }")
    with pytest.raises(BadSettings, match="NOWHERE is not set"):
        Agent("Answer.", model="a")(session)
    for key in ("sk-secret", "hf_SECRETsecret"):  # it may be the key itself: it is not shown
        place.write_text(f"[models.a]\nbase_url = 'http://127.0.0.1:9'\nkey = '{key}'")
        with pytest.raises(BadSettings, match="not a key") as error:
            Agent("Answer.", model="a")(session)
        assert key not in str(error.value)
    place.unlink()
    place.mkdir()
    with pytest.raises(BadSettings, match="cannot be read"):
        Agent("Answer.", model="a")(session)
    place.rmdir()
    monkeypatch.setenv("PLAIT_CONCURRENCY", "many")
    with pytest.raises(BadSettings, match="PLAIT_CONCURRENCY: 'many' is not a number above 0"):
        Agent("Answer.", model="a")(session)
    monkeypatch.delenv("PLAIT_CONCURRENCY")
    monkeypatch.setenv("PLAIT_SETTINGS", str(place.parent / "gone.toml"))
    with pytest.raises(BadSettings, match="there is no such file"):
        Agent("Answer.", model="a")(session)
    assert session.reload().head == session.head
