"""MiniWoB++: pages made to measure agents, solved through the browser tools by a program that reads
what a model would read.

The reward is the one that the page's own code gives out and writes to its console; every step has
its picture.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from plait.sandbox import Sandbox
from plait.tool import Result
from plait.tools.browser import browser_click, browser_open, browser_type
from tests.support import report, result_text
from tests.tools.screens import PNG, placed, require, require_browser

_REWARD = re.compile(r"console log: reward: (-?[\d.]+) \(raw: (-?[\d.]+)\)")
_LINE = re.compile(r"- '?(?P<role>\w+)(?: \"(?P<name>[^\"]*)\")?[^\n]*?\[ref=(?P<ref>\w+)\]")


class Element(NamedTuple):
    role: str
    name: str
    ref: str


class Player:
    """Plays one page and keeps every step."""

    def __init__(self, sandbox: Sandbox, page: str) -> None:
        self.sandbox = sandbox
        self.steps: list[Result] = [browser_open(f"miniwob/{page}.html", sandbox)]
        self.click("START")

    @property
    def seen(self) -> str:
        return result_text(self.steps[-1])

    @property
    def task(self) -> str:
        """Return the task on the page: the first words on it."""
        first = next(
            line for line in self.seen.splitlines() if re.search(r"- generic \[ref=\w+\]: ", line)
        )
        return first.partition("]: ")[2].strip("\"'").replace('\\"', '"')

    def click(self, target: str) -> None:
        self.steps.append(browser_click(target, self.sandbox))

    def type(self, target: str, words: str) -> None:
        self.steps.append(browser_type(target, words, self.sandbox))

    def ref(self, role: str, name: str | None = None) -> str:
        elements = [Element(*map(str, found.groups(""))) for found in _LINE.finditer(self.seen)]
        return next(
            each.ref for each in elements if each.role == role and name in (None, each.name)
        )

    def reward(self) -> tuple[float, float]:
        found = _REWARD.search("\n".join(map(result_text, self.steps)))
        assert found, self.seen
        return float(found[1]), float(found[2])


def asked(player: Player, pattern: str) -> str:
    found = re.search(pattern, player.task)
    assert found, player.task
    return found[1]


def click_test(player: Player) -> None:
    player.click(player.ref("button", "Click Me!"))


def click_button(player: Player) -> None:
    player.click(player.ref("button", asked(player, r'Click on the "(.+)" button')))


def enter_text(player: Player) -> None:
    player.type(player.ref("textbox"), asked(player, r'Enter "(.+)" into'))
    player.click(player.ref("button", "Submit"))


def focus_text(player: Player) -> None:
    player.click(player.ref("textbox"))


def click_checkboxes(player: Player) -> None:
    wanted = asked(player, r"Select (.+) and click Submit")
    for name in [] if wanted == "nothing" else wanted.split(", "):
        player.click(player.ref("checkbox", name))
    player.click(player.ref("button", "Submit"))


def choose_list(player: Player) -> None:
    player.type(player.ref("combobox"), asked(player, r"Select (.+) from the list"))
    player.click(player.ref("button", "Submit"))


def click_tab(player: Player) -> None:
    player.click(player.ref("link", asked(player, r"Click on (Tab #\d)")))


def login_user(player: Player) -> None:
    name, word = asked(player, r'username "(.+?)"'), asked(player, r'password "(.+?)"')
    fields = [found["ref"] for found in _LINE.finditer(player.seen) if found["role"] == "textbox"]
    player.type(fields[0], name)
    player.type(fields[1], word)
    player.click(player.ref("button", "Login"))


SOLVERS: list[Callable[[Player], None]] = [
    *(
        click_test,
        click_button,
        enter_text,
        focus_text,
        click_checkboxes,
        choose_list,
        click_tab,
        login_user,
    )
]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    require_browser()
    spec = find_spec("miniwob")
    html = (
        Path(spec.submodule_search_locations[0], "html")
        if spec and spec.submodule_search_locations
        else None
    )
    require(html is not None, "pip install miniwob")
    assert html is not None
    used = [
        path
        for folder in ("core", "common", "miniwob")
        for path in (html / folder).rglob("*")
        if path.is_file()
    ]
    files = {str(path.relative_to(html)): path.read_bytes() for path in used}
    with placed(tmp_path_factory.mktemp("miniwob"), files) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("solve", SOLVERS, ids=lambda solve: solve.__name__)
def test_a_page_is_solved_with_evidence_for_each_step(
    sandbox: Sandbox, solve: Callable[[Player], None]
) -> None:
    player = Player(sandbox, solve.__name__.replace("_", "-"))
    solve(player)
    reward, raw = player.reward()
    assert raw == 1.0 and 0 < reward <= 1.0
    assert f"Last reward: {reward:.2f}" in player.seen.replace('"', "")
    assert all(
        step.parts[1].content.startswith(PNG) and step.parts[2].name == "page.yaml"
        for step in player.steps
    )
    report(f"MiniWoB++ {solve.__name__}", f"reward {reward:.2f} after {len(player.steps)} steps")
