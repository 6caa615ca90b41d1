"""A payment whose process is killed (kill -9) after the money left, and before it could say so.

`python examples/payment.py` needs no key and no network. It runs the three commands below in
processes of their own, in a folder that it throws away. The id of the session is a new one each
time. It prints:

    $ KILL=1 plait run payment.py:clerk -i "Pay invoice 7."
    killed by signal 9. At the bank: 1 transfer
    $ plait resume @
    ACME is paid.
    At the bank: 1 transfer
    $ plait log @ --oneline --reverse
     cf5a85b7@1  opened
     cf5a85b7@2  user: Pay invoice 7.
     cf5a85b7@3  run started: Agent
     cf5a85b7@4  clerk started
     cf5a85b7@5  asked scripted
     cf5a85b7@6  reply: → wire
     cf5a85b7@7  wire {"amount":120,"to":"ACME"}
     cf5a85b7@8  run resumed
     cf5a85b7@9  nobody knows whether it happened: its process ended, or lost the run, meanwhile
    cf5a85b7@10  happened: its probe found it
    cf5a85b7@11  asked scripted
    cf5a85b7@12  reply: ACME is paid.
    cf5a85b7@13  clerk finished
    cf5a85b7@14  run finished
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
        print(plait(folder, "log", "@", "--oneline", "--reverse").stdout, end="")


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
