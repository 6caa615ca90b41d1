"""Providers that speak Chat Completions, a row each: address, key, and the ways in which they
differ.

"ollama:qwen3"                the server of Ollama on this machine, or at OLLAMA_HOST
"gemini:gemini-3-flash"       Google's Gemini                             GEMINI_API_KEY
"openrouter:vendor/model"     OpenRouter                                  OPENROUTER_API_KEY
"azure:deployment"            a deployment of Azure OpenAI                AZURE_OPENAI_API_KEY,
                                                                          AZURE_OPENAI_ENDPOINT
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from plait.errors import BadSettings, MissingKey, MissingSetting
from plait.model.files import PDF
from plait.model.settings import FILE_NAME, ModelSettings

NO_FILES: frozenset[str] = frozenset()


class Provider(msgspec.Struct, frozen=True):
    """One provider."""

    address: str = ""  # the base URL without its path; "": it has to be set
    address_variable: str = ""  # the environment variable that has it; "": none
    address_meaning: str = ""  # for the error that it is not set
    path: str = "/v1"  # after the address; {model} is the name of the model
    key_variable: str = ""  # "": it needs no key
    key_header: str = ""  # "": Authorization: Bearer
    version_variable: str = ""  # of the environment; "": it has no versions
    version: str = ""
    tokens_parameter: str = "max_tokens"
    priced_as: str = ""  # in the list of prices; "": it is not there
    is_free: bool = False  # it runs on a machine of the user
    files: frozenset[str] = NO_FILES  # media types that it takes as files; text is sent as text


PROVIDERS: Mapping[str, Provider] = {
    "ollama": Provider(
        address="http://127.0.0.1:11434", address_variable="OLLAMA_HOST", is_free=True
    ),
    "gemini": Provider(
        address="https://generativelanguage.googleapis.com",
        address_variable="GEMINI_BASE_URL",
        path="/v1beta/openai",
        key_variable="GEMINI_API_KEY",
        priced_as="google",
    ),
    "openrouter": Provider(
        address="https://openrouter.ai",
        address_variable="OPENROUTER_BASE_URL",
        path="/api/v1",
        key_variable="OPENROUTER_API_KEY",
        priced_as="openrouter",
        files=PDF,
    ),
    "azure": Provider(
        address_variable="AZURE_OPENAI_ENDPOINT",
        address_meaning="the address of its resource, as in https://NAME.openai.azure.com",
        path="/openai/deployments/{model}",
        key_variable="AZURE_OPENAI_API_KEY",
        key_header="api-key",
        version_variable="AZURE_OPENAI_API_VERSION",
        version="2024-10-21",
        tokens_parameter="max_completion_tokens",
        priced_as="azure",
    ),
}
OWN = Provider()  # a server of the user's


def chat_arguments(name: str, provider: Provider, settings: ModelSettings) -> dict[str, Any]:
    """Return the arguments of a ChatModel for a model of this name; raise if a key or an address is
    not set.
    """
    model = settings.model or name.partition(":")[2]
    given = settings.base_url or os.environ.get(provider.address_variable, "").strip()
    if not given and not provider.address:
        raise MissingSetting(name, provider.address_variable, provider.address_meaning)
    version = os.environ.get(provider.version_variable, "") or settings.api_version
    return {
        "model": model,
        "base_url": _base_url(given or provider.address, provider.path.format(model=model)),
        "api_key": key_of(name, settings, provider.key_variable),
        "name": name,
        "provider": msgspec.structs.replace(provider, version=version or provider.version),
        **shared_arguments(settings),
    }


def own_arguments(name: str, settings: ModelSettings) -> dict[str, Any]:
    """Return the arguments of a ChatModel for a model that plait.toml names, with its address."""
    return {
        "model": settings.model,
        "base_url": settings.base_url,
        "api_key": key_of(name, settings, ""),
        "name": name,
        "provider": msgspec.structs.replace(OWN, version=settings.api_version or ""),
        **shared_arguments(settings),
    }


def shared_arguments(settings: ModelSettings) -> dict[str, Any]:
    """Return the arguments that every adapter takes."""
    arguments: dict[str, Any] = {}
    if settings.timeout_s is not None:
        arguments["timeout_s"] = settings.timeout_s
    if settings.headers is not None:
        arguments["headers"] = settings.header_values()
    return arguments


def key_of(name: str, settings: ModelSettings, variable: str) -> str | None:
    """Return the key of a model: that of the variable which its settings name, else of this one.
    None: it needs none.
    """
    variable = settings.key or variable
    is_name = variable in os.environ or re.fullmatch(r"[A-Z_][A-Z0-9_]*", variable) is not None
    if variable and not is_name:  # it is not shown: it may be the key itself
        why = "it takes the name of an environment variable, in capitals, not a key"
        step = "put the key into the environment, and its variable here"
        raise BadSettings(FILE_NAME, 0, f"models.{name}.key", why, step)
    if not variable:
        return None
    if not (key := os.environ.get(variable, "").strip()):
        raise MissingKey(name, variable)
    return key


def _base_url(address: str, path: str) -> str:
    """Return an address with its path. Variables of other programs leave out the scheme, or have
    the path already.
    """
    address = (address if "://" in address else f"http://{address}").rstrip("/")
    return address if address.endswith(path) else address + path
