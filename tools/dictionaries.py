"""Train the dictionaries with which headers and bodies are packed, from events made of the texts in
this repository.

A dictionary that was shipped is part of every store written with it and is never changed: training
again makes the next number, which then has to be taken up in `plait.store.packing` beside the old
ones.

    python tools/dictionaries.py NUMBER
"""

from __future__ import annotations

import random
import sys
from collections.abc import ByteString, Iterator
from hashlib import sha256
from pathlib import Path

import zstandard

from plait.event import Body, Event, seal
from plait.event import kinds as k
from plait.ids import Digest, derive_id
from plait.store.packing import DICTIONARIES

ROOT = Path(__file__).parents[1]
# small on purpose: more costs time on every append and hardly saves bytes
SIZES = {"header": 2048, "body": 2048}
EVENTS = 6000


def texts() -> list[str]:
    """Pieces of prose and of code, of the lengths that people and tools produce."""
    draw = random.Random(1)
    files = [
        *sorted(ROOT.glob("*.md")),
        *sorted(ROOT.glob("docs/**/*.md")),
        *sorted(ROOT.glob("src/**/*.py")),
    ]
    pieces: list[str] = []
    for file in files:
        text, at = file.read_text(), 0
        while at < len(text):
            size = draw.choice((30, 80, 200, 500, 1000))
            pieces.append(text[at : at + size])
            at += size
    draw.shuffle(pieces)
    return pieces


def a_body(draw: random.Random, said: str) -> Body:
    parts = (k.Text(said),)
    digest = Digest(sha256(said.encode()).hexdigest())
    call = f"call_{draw.randbytes(12).hex()}"
    word = said.split()[0] if said.split() else "x"
    usage = k.Usage(draw.randrange(9000), draw.randrange(900), draw.randrange(500))
    path = f"src/{word}.py"
    trees = k.Trees(digest, Digest(digest[::-1]), (path,))
    asked = (
        k.Action(
            call,
            draw.choice(("shell", "read_file", "edit_file", "search")),
            {"path": path, "command": f"grep -n {word}"},
        ),
    )
    return draw.choice(
        [
            k.MessageSaid("user", parts),
            k.MessageSaid("assistant", parts, "judge"),
            k.ModelAsked("openai:gpt-5", digest, {"temperature": 0, "max_output_tokens": 4096}),
            k.ModelReplied(
                parts,
                usage,
                "end",
                (),
                "gpt-5",
                k.Price(draw.randrange(10**8), "genai-prices 0.0.40"),
                draw.randrange(10**7),
            ),
            k.ModelReplied((), usage, "tool_calls", asked, latency_us=draw.randrange(10**7)),
            k.ToolRequested(
                "shell", {"command": f"python -m pytest -q tests/test_{word}.py"}, "workspace"
            ),
            k.ToolReturned(parts, exit_code=0, trees=trees, duration_us=draw.randrange(10**6)),
            k.ToolReturned(
                (k.Data({"stdout": said, "stderr": "", "ok": True}),),
                duration_us=draw.randrange(10**6),
            ),
            k.FactRecorded(word, said[:80], "fact"),
            k.FactRecorded(word, {"value": draw.randrange(99), "why": said[:60]}, "decision"),
            k.ScratchSet(word, draw.randrange(1000)),
            k.PendingAdded(word, said[:80], "step"),
            k.RouteSelected("expand", ("expand", "shorten", "done"), said[:80]),
            k.ForkedFrom(derive_id("log", word), draw.randrange(900), word),
            k.SessionOpened(said[:40], "u-17", "shop", {"team": "web"}, durability="full"),
        ]
    )


def events() -> Iterator[Event]:
    """One long history with everything in it that a header can have."""
    draw, pieces = random.Random(2), texts()
    for seq in range(1, EVENTS):
        body = a_body(draw, draw.choice(pieces))
        parents = [
            Digest(draw.randbytes(32).hex()) for _ in range(2 if draw.random() < 0.03 else 1)
        ]
        actor = draw.choice(
            (
                "human:u-17",
                "human:anna",
                "agent:assistant",
                "agent:review/judge",
                "service:program",
                "human:root",
            )
        )
        run = str(derive_id("run", seq // 40)) if draw.random() < 0.7 else None
        yield seal(
            body,
            log=derive_id("log", seq // 60),
            seq=draw.choice((seq % 60 + 1, seq)),
            parents=tuple(parents),
            time=1_780_000_000_000_000 + draw.randrange(10**14),
            salt=draw.randbytes(16),
            actor=actor,
            origin={"human": "human", "agent": "model"}.get(actor.partition(":")[0], "program"),
            behalf="human:u-17" if run and draw.random() < 0.2 else None,
            run=run,
            call=f"call_{draw.randbytes(12).hex()}" if run and draw.random() < 0.6 else None,
            causes=tuple([Digest(draw.randbytes(32).hex())] if draw.random() < 0.3 else []),
        )


def main() -> int:
    number = int(sys.argv[1])
    made = list(events())
    for name, samples in {
        "header": [event.raw for event in made],
        "body": [event.content for event in made],
    }.items():
        file = DICTIONARIES / f"{name}-{number}.zdict"
        if file.exists():
            print(f"{file.name} was shipped and is in use: train the next number")
            return 1
        trained = zstandard.train_dictionary(SIZES[name], list[ByteString](samples), level=1)
        file.write_bytes(trained.as_bytes())
        print(f"{file.name}: {len(trained)} bytes from {sum(map(len, samples)):,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
