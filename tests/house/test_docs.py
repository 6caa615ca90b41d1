"""Every code block in README and docs does what it says."""

from __future__ import annotations

import ast
import builtins
import importlib
import os
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner

from plait.cli import main
from plait.store import canonical_address
from plait.store.process import STORES
from tests.cli.shell import COMMAND
from tests.providers.chat_server import ChatServer, Reply
from tests.support import private_postgres, run_forked
from tests.support.servers import uvicorn_server

ROOT = Path(__file__).parents[2]
PLAIT = ROOT / "src" / "plait"
ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)[^)]*\)")
COMING = {"cli.md"}  # pages that land with what they describe
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
# a block that begins so is that file, in the folder of the page's program
FILE = re.compile(r"# (\w+\.py)\n")
# what a command says with its exit code is a part of what it shows
EXITS = re.compile(r"# exits with (\d+)")

# What the shell blocks may say, besides `plait …`, which is run. These run this very suite, or
# install.
SERVER = re.compile(r"(?:\w+=\S+ )*uvicorn (.*)")
COMMANDS = re.compile(r"(?:\w+=\S+ )*plait ")
SETTING = re.compile(r"export (\w+)=(\S+)")
SERVED = "@db/agents"  # the database of pages that use one
KNOWN = {
    "make demo",
    "make test",
    "make quick",
    "make check",
    "make test-outside",
    "make scoreboard",
    "make versus-openrath",
    "pip install .",
    "pip install 'plait[postgres]'",
}
# commands of the system that pages show; they are run
SHOWN = re.compile(r"(cat|ls|sort) [\w./| -]+")
PROGRAMS = {
    "demo",
    "run",
    "resume",
    "replay",
    "whatif",
    "check",
    "debug",
    "bisect",
    "eval",
    "chat",
    "submit",
    "worker",
}  # they load a program


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_blocks_of(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))  # no store is looked for above it
    monkeypatch.delenv("PLAIT_STORE", raising=False)
    module = ModuleType("page")  # as a program has one: dataclasses look for it
    monkeypatch.setitem(sys.modules, "page", module)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = dict(os.environ)
    with ExitStack() as servers:
        try:
            run_blocks(page, tmp_path, module, servers)
        finally:
            _close_served()
            os.environ.clear()
            os.environ.update(before)
    for address in [
        address
        for address in STORES.by_address
        if address.startswith(canonical_address(str(tmp_path)))
    ]:
        STORES.by_address.pop(address).close()


def run_blocks(page: Path, folder: Path, module: ModuleType, servers: ExitStack) -> None:
    """Run the blocks of a page as one program. A server runs until the page ends."""
    shell = Shell(folder, servers)
    text = page.read_text()
    if f"export PLAIT_STORE=postgresql://plait{SERVED}" in text:
        text = text.replace(SERVED, start_database(servers))
    for language, code in BLOCK.findall(text):
        if language == "python" and (named := FILE.match(code)):
            Path(named[1]).write_text(code)
            sys.modules.pop(Path(named[1]).stem, None)  # another page may have had one of that name
            importlib.invalidate_caches()
        elif language == "python":
            # the blocks of a page are one program
            exec(compile(code, str(page), "exec", dont_inherit=True), vars(module))
        elif language == "sh":
            shell.run(code)
        else:
            assert language in ("text", "json"), (
                f"{page.name}: a block in {language or 'no language'} is not checked"
            )


def start_database(servers: ExitStack) -> str:
    """Start the server that a page calls `db`, with its users; return the rest of its address."""
    server = servers.enter_context(private_postgres())
    for user in ("plait_admin", "plait", "plait_guest"):
        server.execute(f"CREATE ROLE {user} LOGIN")
    server.execute("CREATE DATABASE agents OWNER plait_admin")
    return f"@127.0.0.1:{server.port}/agents"


def _close_served() -> None:
    for address in [each for each in STORES.by_address if each.startswith("postgresql:")]:
        STORES.by_address.pop(address).close()


def test_the_first_agent_takes_ten_lines_at_most() -> None:
    first = next(
        code
        for language, code in BLOCK.findall((ROOT / "README.md").read_text())
        if language == "python"
    )
    assert "Agent(" in first and "@tool" in first
    assert len([line for line in first.splitlines() if line.strip()]) <= 10


def test_the_readme_is_a_page() -> None:
    assert (ROOT / "README.md").read_text().count("\n") <= 135


def test_the_payment_prints_what_it_says() -> None:
    example = ast.parse((ROOT / "examples" / "payment.py").read_text())
    _, _, printed = (ast.get_docstring(example) or "").partition("prints:\n\n")
    command = [sys.executable, str(ROOT / "examples" / "payment.py")]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert re.sub(r"\b[0-9a-f]{8}@", "cf5a85b7@", ran).strip() == dedent(printed).strip() != ""


def test_the_page_on_chats_shows_the_example() -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "chat.md").read_text())
    (shown,) = [code for _, code in blocks if code.startswith("# chat_server.py\n")]
    example = (ROOT / "examples" / "chat_server.py").read_text()
    assert shown.partition("\n")[2] == example.partition('"""\n\n')[2] != ""


def test_links_lead_to_files() -> None:
    broken = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in LINK.findall(page.read_text())
        if not (page.parent / target).exists() and Path(target).name not in COMING
    ]
    assert broken == []


def test_tests_that_pages_name_exist() -> None:
    named = {name for page in PAGES for name in NAMED_TEST.findall(page.read_text())}
    assert named
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text(), f"{file}::{test}"


def test_rooms_that_extending_names_exist() -> None:
    text = (ROOT / "docs" / "EXTENDING.md").read_text()
    rooms = r"cli|event|model|session|store|tools"
    named = set(re.findall(rf"`((?:{rooms})/[\w./]*|tests/[\w./]+|\w+\.py)`", text))
    assert len(named) > 10
    for name in named:
        below = ROOT if name.startswith("tests/") else ROOT / "src" / "plait"
        assert (below / name).exists() or (below / f"{name}.py").exists(), name


def test_names_that_the_samples_of_extending_use_exist() -> None:
    """The samples are pieces of modules and cannot be run, but their names can be looked up."""
    text = (ROOT / "docs" / "EXTENDING.md").read_text()
    source = "\n".join(path.read_text() for path in PLAIT.rglob("*.py"))
    samples = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    trees = [ast.parse(sample) for sample in samples]
    own = {
        name
        for tree in trees
        for node in ast.walk(tree)
        for name in (getattr(node, "name", None), getattr(node, "arg", None))
        if name
    }
    used = {
        node.id if isinstance(node, ast.Name) else node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, (ast.Name, ast.Attribute))
    }
    assert len(samples) >= 5
    for name in used - own - set(dir(builtins)) - set(dir(click)):
        ways = (rf"(def|class) {name}\b", rf"import .*\b{name}\b", rf"^ *(self\.)?{name}\b.*[=:]")
        assert any(re.search(way, source, re.MULTILINE) for way in ways), name


def test_every_module_stands_once_in_the_tables_of_the_architecture() -> None:
    """A name is below the package of its heading, and ends in "/" if it stands for a package."""
    named: list[str] = []
    package, header = "", ""
    for line in ARCHITECTURE.read_text().splitlines():
        if line.startswith("## "):
            package = next(iter(re.findall(r"`(\w+/)`", line)), "")
        header = "" if not line.startswith("|") else header or line
        if header == "| module | subject |":
            named += [package + name for name in re.findall(r"`([\w/.]+)`", line.split("|")[1])]
    modules = {
        path.relative_to(PLAIT).as_posix()
        for path in PLAIT.rglob("*.py")
        if path.name != "__init__.py"
    }
    times = {
        module: sum(name == module or name[-1] == "/" and module.startswith(name) for name in named)
        for module in modules
    }
    assert {module: count for module, count in times.items() if count != 1} == {}
    assert [name for name in named if not (PLAIT / name).exists()] == []


def test_functions_and_tests_that_the_architecture_names_exist() -> None:
    text = ARCHITECTURE.read_text()
    named = set(re.findall(r"`([\w/]+\.py):(?:\w+\.)?(\w+)`", text))
    named |= {(file, name) for name, file in re.findall(r"^ *(\w+) +([\w/]+\.py)\b", text, re.M)}
    assert len(named) > 60
    for file, name in named:
        assert re.search(rf"^ *(async )?(def|class) {name}\b", (PLAIT / file).read_text(), re.M), (
            f"{file}:{name}"
        )
    for test in re.findall(r"`(tests/[\w/]+\.py)`", text):
        assert (ROOT / test).exists(), test


class Shell:
    """The terminal of a page: runs its commands, keeps a server going, and lets curl ask it."""

    def __init__(self, folder: Path, servers: ExitStack) -> None:
        self._folder, self._servers, self._address = folder, servers, ""

    def run(self, code: str) -> None:
        if "curl " in code:
            self._run_script(code)
            return
        for line in code.strip().splitlines():
            command = line.split("#")[0].strip()
            if not command or command in KNOWN:
                continue
            if setting := SETTING.fullmatch(command):
                os.environ[setting[1]] = setting[2]
                continue
            if command.startswith("unset "):
                os.environ.pop(command.split()[1], None)
                continue
            if served := SERVER.match(command):
                self._serve(served[1])
                continue
            if command.startswith("cd "):
                os.chdir(command.split()[1])
                sys.path.insert(0, os.getcwd())
                continue
            assert COMMANDS.match(command) or SHOWN.fullmatch(command), (
                f"{command!r} is neither run nor known"
            )
            said = EXITS.search(line)
            status, output = run_command(command)
            # a shell says 128 and the number of the signal
            status = 128 - status if status < 0 else status
            assert status == (int(said[1]) if said else 0), f"{command}: {status} {output}"

    def _serve(self, arguments: str) -> None:
        """Start a server on a free port, with a model on loopback."""
        model = self._servers.enter_context(ChatServer(answer_customer))
        settings = {"PLAIT_MODEL": f"{model.url}/v1#any"}
        server = uvicorn_server(*arguments.split(), folder=self._folder, **settings)
        self._address = self._servers.enter_context(server)

    def _run_script(self, code: str) -> None:
        """Run a block as one script, with the variables of those before it."""
        script = code.replace("localhost:8000", self._address)
        ask = 'curl() { command curl --silent --show-error --fail "$@"; }'
        kept = f"{ask}; set -ea; ! test -e .variables || . ./.variables"
        self._check(f"{kept}\n{script}\nset +e; declare -p chat ask > .variables; true", code, 0)

    def _check(self, command: str, shown: str, code: int) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", command],
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": path},
        )
        assert done.returncode == code, f"{shown}: {done.returncode} {done.stdout}{done.stderr}"
        assert "event: error" not in done.stdout, done.stdout


def answer_customer(body: dict[str, Any]) -> Reply:
    """The model of the chat server that a page shows."""
    last = body["messages"][-1]
    if last["role"] == "user" and "Refund" in last["content"]:
        return [("refund", {"order": 17, "euros": 40})]
    return "Hello, what can I do for you?"


def run_command(command: str) -> tuple[int, str]:
    """Return the exit code and the output. A process of its own has what runs a program or needs a
    shell; the others are called here, since a start takes longer than all they do.
    """
    words = shlex.split(command)
    plain = words[0] == "plait" and not set("$|&;<>") & set(command)
    if plain and not PROGRAMS & set(words):
        result = CliRunner().invoke(main, words[1:], catch_exceptions=False)
        return result.exit_code, result.output
    if plain and not set("*?~") & set(command):
        done = run_forked([*COMMAND, *words[1:]])
        return done.returncode, done.stdout + done.stderr
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    return done.returncode, done.stdout + done.stderr
