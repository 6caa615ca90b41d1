"""The programs of the sessions that viewers are tested with.

They stand in a module, so that a run can be resumed by its name. Run as a program, the module
begins a run in a process of its own: `python -m tests.outline.programs NAME STORE FOLDER`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from plait import (
    Agent,
    Compactor,
    Memory,
    Parallel,
    ScriptedModel,
    Session,
    ToolCall,
    Workflow,
    image,
    tool,
)
from plait.calls.model_call import Retry
from plait.event.kinds import Price, Text, Usage
from plait.model.base import Fault, Reply
from plait.policy import Ask, Policy
from plait.sandbox import Sandbox
from plait.tool import Result
from plait.tools import edit_file, read_file, shell, write_file

FILES = {
    "ISSUE.md": "A coupon larger than the cart gives a negative total.\n",
    "cart.py": (
        '"""The cart."""\n\n\n'
        "def total(prices, coupon=0):\n"
        '    """The amount to pay."""\n'
        "    return sum(prices) - coupon\n"
    ),
    "test_cart.py": (
        "import unittest\n\nfrom cart import total\n\n\n"
        "class TotalTest(unittest.TestCase):\n"
        "    def test_sum(self):\n        self.assertEqual(total([3, 4]), 7)\n\n"
        "    def test_coupon(self):\n        self.assertEqual(total([3, 4], 10), 0)\n\n\n"
        'if __name__ == "__main__":\n    unittest.main()\n'
    ),
}
TESTS = "python3 -B -m unittest -q"
PRICES = "test prices 1"
QUICK = Retry(wait_s=0.0)


def reply(
    *items: str | ToolCall, tokens: tuple[int, int] = (20, 10), nano: int | None = 0
) -> Reply:
    """A reply with words and calls, and its price in billionths of a dollar; None: not known."""
    parts = tuple(Text(item) for item in items if isinstance(item, str))
    calls = tuple(item for item in items if isinstance(item, ToolCall))
    price = None if nano is None else Price(nano, PRICES)
    stop = "calls" if calls else "end"
    return Reply(parts, calls, stop, Usage(*tokens), "small-1", price)


def call(tool: str, /, nano: int | None = 150_000, **arguments: Any) -> Reply:
    """A reply that calls one tool."""
    return reply(ToolCall(tool, **arguments), tokens=(120, 25), nano=nano)


class Strategy(Workflow):
    """Edits the cart in one way, and lets the tests judge it."""

    def __init__(self, new: str, words: str) -> None:
        old = "    return sum(prices) - coupon"
        script = [
            call("read_file", path="cart.py"),
            call("edit_file", path="cart.py", old=old, new=new),
            call("shell", command=f"{TESTS} 2>&1 | tail -4"),
            reply(words, nano=90_000),
        ]
        tools = [read_file, edit_file, shell]
        self.coder = Agent("Mend the cart.", model=ScriptedModel(script), tools=tools)

    def forward(self, session: Session) -> Session:
        session = self.coder(session)
        session = session.use(shell, command=TESTS)
        passed = session.effects[-1].exit_code == 0
        return session.checks.record("tests", passed=passed, detail={"command": TESTS})


class Repair(Workflow):
    """Two strategies in two branches; the one whose tests pass is merged, then a person is asked
    about a command that removes a file.
    """

    policy = Policy(
        Ask("shell", when=lambda call: "rm " in str(call.arguments), name="files are removed")
    )

    def __init__(self) -> None:
        plan = [
            call("read_file", path="ISSUE.md"),
            reply("Clamp the discount, or reject the coupon. Try both.", nano=200_000),
        ]
        self.planner = Agent("Plan.", model=ScriptedModel(plan), tools=[read_file])
        self.reject = Strategy(
            "    if coupon > sum(prices):\n"
            '        raise ValueError("the coupon is larger than the cart")\n'
            "    return sum(prices) - coupon",
            "It is rejected now.",
        )
        self.clamp = Strategy("    return max(0, sum(prices) - coupon)", "Clamped at zero.")
        tidy = [call("shell", command="rm -f ISSUE.md test_cart.py"), reply("Tidy.")]
        self.tidy = Agent("Tidy up.", model=ScriptedModel(tidy), tools=[shell])

    def forward(self, session: Session) -> Session:
        session = self.planner(session)
        rejected = self.reject(session.fork("reject"))
        clamped = self.clamp(session.fork("clamp"))
        passing = [each for each in (rejected, clamped) if each.checks.verdicts[-1].passed]
        session = session.merge(passing[0])
        session = session.decide("strategy", passing[0].lineage.label, reason="its tests pass")
        session = session.fact("tests", "test_cart.py")
        session = session.todo("tell support about coupons", key="support")
        return self.tidy(session)


@tool
def wire(to: str, amount: int) -> str:
    """Send money."""
    if os.environ.get("VIEW_KILL") == "wire":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{amount} sent to {to}"


@tool(effect="pure")
def count_rows(table: str) -> int:
    """Count the rows of a table."""
    if os.environ.get("VIEW_KILL") == "count_rows" and table == "orders":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"orders": 1201, "carts": 88}[table]


class Pay(Workflow):
    """Pays an invoice, if a person consents."""

    policy = Policy(Ask("wire", name="money leaves", expires_s=30 * 86_400))

    def __init__(self) -> None:
        script = [call("wire", to="ACME", amount=120), reply("ACME is paid.")]
        self.clerk = Agent("Pay what is due.", model=ScriptedModel(script), tools=[wire])

    def forward(self, session: Session) -> Session:
        return self.clerk(session)


class Settle(Workflow):
    """Pays at once: killed in the middle, the payment may have happened."""

    def forward(self, session: Session) -> Session:
        session = session.use(wire, to="ACME", amount=90)
        return session.decide("paid", session.result)


class Count(Workflow):
    """Counts two tables; its price is not known. One ask fails, and is made again."""

    def __init__(self) -> None:
        script = [
            reply(
                ToolCall("count_rows", table="carts"),
                ToolCall("count_rows", table="orders"),
                nano=None,
            ),
            Fault("Overloaded", "come back later", retryable=True),
            reply("1,201 orders, 88 carts.", nano=None),
        ]
        self.counter = Agent("Count.", model=ScriptedModel(script), tools=[count_rows], retry=QUICK)

    def forward(self, session: Session) -> Session:
        return self.counter(session)


class Ship(Workflow):
    """Asks a person."""

    def forward(self, session: Session) -> Session:
        session = session.ask("Which port?", ("Kiel", "Hamburg"))
        return session.decide("port", session.result)


class Release(Workflow):
    """Waits at a gate for the verdict of a person, then for a signal."""

    def forward(self, session: Session) -> Session:
        session = session.checks.require("review", by="human:ann")
        session = session.use(count_rows, table="carts")
        return session.wait_for("built", timeout_s=86_400 * 365)


class Fails(Workflow):
    """Fails in its own code, after a tool that failed and was handled by its model."""

    def __init__(self) -> None:
        script = [call("count_rows", table="nothing"), reply("There is no such table.")]
        self.counter = Agent("Count.", model=ScriptedModel(script), tools=[count_rows])

    def forward(self, session: Session) -> Session:
        session = self.counter(session)
        raise ValueError("the warehouse does not answer")


class Debate(Workflow):
    """Two agents at the same time, with their branches merged."""

    def __init__(self) -> None:
        self.both = Parallel(
            pro=Agent("For.", model=ScriptedModel([reply("Short.", nano=1_000)])),
            con=Agent("Against.", model=ScriptedModel([reply("Dry.", nano=2_000)])),
        )

    def forward(self, session: Session) -> Session:
        return self.both(session)


class Remembering(Workflow):
    """Recalls what earlier sessions knew, and compacts a long talk first."""

    def __init__(self, mark: str = "") -> None:
        words = f"No: staging is read-only {mark}.".replace(" .", ".")
        self.compact = Compactor(keep=2)
        self.helper = Agent("Help.", model=ScriptedModel([reply(words)]), memory=Memory())

    def forward(self, session: Session) -> Session:
        return self.helper(self.compact(session))


@tool(effect="workspace")
def draw(name: str, sandbox: Sandbox) -> Result:
    """Write a picture and large files."""
    sandbox.files.write(name, PICTURE)
    sandbox.files.write("data/noise.bin", bytes(range(256)) * 64)
    sandbox.files.write("data/huge.txt", b"".join(b"line %d\n" % n for n in range(200_000)))
    sandbox.files.write("data/wide.txt", b"x" * 3_000_000 + b"\n")
    return Result([image(PICTURE, "image/png", alt="a red dot"), "drawn"])


PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cf"
    "c0000003010100c9fe92ef0000000049454e44ae426082"
)


class Draw(Workflow):
    """Makes a picture, a binary file and very long texts."""

    def __init__(self) -> None:
        script = [
            call("draw", name="dot.png"),
            call("shell", command="cat data/huge.txt"),
            call("shell", command="printf '\\033[31mred\\033[0m \\033[1mbold\\033[0m\\n'; exit 3"),
            reply("It is drawn."),
        ]
        self.artist = Agent("Draw.", model=ScriptedModel(script), tools=[draw, shell])

    def forward(self, session: Session) -> Session:
        return self.artist(session)


@tool(effect="pure")
def repeat(text: str) -> str:
    """Give a text back."""
    return text


class Hostile(Workflow):
    """Has texts that would run, hide or break out, in every field that a text can stand in."""

    def forward(self, session: Session) -> Session:
        for number, text in enumerate(hostile_texts()):
            match number % 5:
                case 0:
                    session = session.say(text)
                case 1:
                    session = session.use(repeat, text=text)
                case 2:
                    session = session.fact(f"k{number} {text}"[:120], text)
                case 3:
                    session = session.todo(text, key=f"t{number}")
                case _:
                    session = session.checks.record(f"v{number} {text}"[:120], True, detail=text)
        return session.use(write_file, path="<img src=x onerror=alert(1)>.txt", content="x\n")


def hostile_texts() -> list[str]:
    """Return 200 texts that are to be shown, and never obeyed."""
    seeds = [
        "<script>alert({n})</script>",
        "<img src=x onerror=alert({n})>",
        "<svg onload=alert({n})><animate onbegin=alert({n})>",
        "<a href='javascript:alert({n})'>click</a>",
        "[click](javascript:alert({n}))",
        "![x](http://192.0.2.{n}/x.png)",
        "<iframe srcdoc='<script>alert({n})</script>'>",
        "</script><script>alert({n})</script>",
        "'\"><b onmouseover=alert({n})>",
        "{{{{constructor.constructor('alert({n})')()}}}}",
        "\x1b[31mred {n}\x1b[0m \x1b]8;;http://192.0.2.1\x07link\x1b]8;;\x07",
        "\x1b[2J\x1b[H cleared {n}",
        "\u202egnp.exe{n}\u202c \u2066hidden\u2069",
        "zero\u200bwidth\u200d{n}\ufeff",
        "\U000e0041\U000e0042 tags {n}",
        "&lt;b&gt; &amp;{n}; &#x3c;script&#x3e;",
        "<!--{n}--><style>*{{display:none}}</style>",
        "<base href=//192.0.2.1/{n}><meta http-equiv=refresh content=0>",
        "%3Cscript%3Ealert({n})%3C/script%3E __proto__ constructor",
        "line\rover{n}\x08\x08\x00\x7f\x9b31m",
    ]
    return [seeds[n % len(seeds)].format(n=n) for n in range(200)]


def main() -> None:
    """Begin a run in this process. A variable has a tool of it kill the process."""
    name, store, id = sys.argv[1:4]
    workflow = {"Settle": Settle, "Count": Count}[name]
    workflow()(Session.open(id, store=Path(store)))


if __name__ == "__main__":
    # under its importable name, so that the run can be resumed by it
    from tests.outline import programs

    programs.main()
