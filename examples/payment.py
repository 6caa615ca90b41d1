"""A payment whose process is killed (kill -9) after the money left, and before it could say so.

`python examples/payment.py` needs no key and no network. It runs the three commands below in
processes of their own, in a folder that it throws away, turns the log round, and prints:

    $ KILL=1 plait run payment.py:clerk -i "Pay invoice 7."
    killed by signal 9. At the bank: 1 transfer
    $ plait resume @
    ACME is paid.
    At the bank: 1 transfer
    $ plait log @ --oneline
    @1  opened
    @2  user: Pay invoice 7.
    @3  run started: Agent
    @4  clerk started
    @5  asked scripted
    @6  reply: → wire
    @7  wire {"amount":120,"to":"ACME"}
    @8  run resumed
    @9  nobody knows whether it happened: the process ended while it was being made
    @10  happened: by the tool itself
    @11  asked scripted
    @12  reply: ACME is paid.
    @13  finished
    @14  run finished
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from signal import SIGKILL

from plait import Agent, Happened, ScriptedModel, ToolCall, tool

BANK = Path("bank.txt")  # stands for the world: one line per transfer


def find_transfer(idempotency_key: str) -> Happened | None:
    """Look for a transfer at the bank. The key is the same for this call in every process."""
    if BANK.exists() and idempotency_key in BANK.read_text():
        return Happened("120 sent to ACME")
    return None


@tool(effect="probeable", probe=find_transfer)
def wire(to: str, amount: int, idempotency_key: str) -> str:
    """Send money."""
    with BANK.open("a") as bank:
        bank.write(f"{amount} to {to}, {idempotency_key}\n")
    if "KILL" in os.environ:
        os.kill(os.getpid(), SIGKILL)  # the money has left, and the log does not know
    return f"{amount} sent to {to}"


# With a key, say model="openai:gpt-5" instead of a script.
script = ScriptedModel([ToolCall("wire", to="ACME", amount=120), "ACME is paid."])
clerk = Agent("Pay what is due.", name="clerk", model=script, tools=[wire])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        killed = plait(folder, "run", "payment.py:clerk", "-i", "Pay invoice 7.", KILL="1")
        print(f"killed by signal {-killed.returncode}. At the bank: {transfers(folder)}")
        print(plait(folder, "resume", "@").stdout, end="")
        print(f"At the bank: {transfers(folder)}")
        log = plait(folder, "log", "@", "--oneline").stdout.splitlines()
        print("\n".join(f"@{line.partition('@')[2]}" for line in reversed(log)))


def plait(folder: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Print a command and run it in a process of its own."""
    shown = [f'"{word}"' if " " in word else word for word in words]
    print("$", *[f"{name}={value}" for name, value in environment.items()], "plait", *shown)
    program = Path(__file__).resolve()
    command = [sys.executable, "-c", "from plait.cli import main; main()", *words]
    command = [word.replace("payment.py", str(program)) for word in command]
    settings = {"PLAIT_STORE": f"{folder}/.plait", "PLAIT_ACTOR": "human:ann", **environment}
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **settings}, capture_output=True, text=True
    )


def transfers(folder: str) -> str:
    count = len((Path(folder) / BANK).read_text().splitlines())
    return f"{count} transfer{'' if count == 1 else 's'}"


if __name__ == "__main__":
    main()
