"""Write a log of Inspect with one sample of so many events: replies and calls of tools.

.venv-peers/bin/python benchmarks/viewer_peer_log.py FOLDER EVENTS
"""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from inspect_ai.event import ModelEvent, ToolEvent  # type: ignore
from inspect_ai.log import (  # type: ignore
    EvalConfig,
    EvalDataset,
    EvalLog,
    EvalSample,
    EvalSpec,
    write_eval_log,
)
from inspect_ai.model import (  # type: ignore
    ChatMessageAssistant,
    ChatMessageUser,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.tool import ToolCall  # type: ignore

OUTPUT = "def total(prices, coupon=0):\n    return sum(prices) - coupon\n" * 4


def events_of(count: int) -> list[ModelEvent | ToolEvent]:
    now = datetime.now(UTC)
    asked = [ChatMessageUser(content="Repair everything.")]
    found: list[ModelEvent | ToolEvent] = []
    for at in range(count // 2):
        call, arguments = f"c{at}", {"path": f"file_{at % 40:02}.py"}
        message = ChatMessageAssistant(
            content=f"Step {at}: look at the next file.",
            tool_calls=[ToolCall(id=call, function="read_file", arguments=arguments)],
        )
        output = ModelOutput.from_message(message)
        output.usage = ModelUsage(input_tokens=900, output_tokens=50, total_tokens=950)
        found.append(
            ModelEvent(
                model="small-1",
                input=asked,
                tools=[],
                tool_choice="auto",
                config=GenerateConfig(),
                output=output,
                timestamp=now,
            )
        )
        found.append(
            ToolEvent(
                id=call, function="read_file", arguments=arguments, result=OUTPUT, timestamp=now
            )
        )
    return found


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    task = EvalSpec(
        created=datetime.now(UTC).isoformat(),
        task="repair",
        dataset=EvalDataset(samples=1),
        model="small-1",
        config=EvalConfig(),
    )
    sample = EvalSample(
        id="repair-1",
        epoch=1,
        input="Repair everything.",
        target="",
        messages=[ChatMessageUser(content="Repair everything.")],
        output=ModelOutput(model="small-1"),
        events=events_of(count),
    )
    log = EvalLog(status="success", eval=task, samples=[sample])
    write_eval_log(log, str(folder / "repair.eval"))


if __name__ == "__main__":
    main()
