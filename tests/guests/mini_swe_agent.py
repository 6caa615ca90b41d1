"""mini-swe-agent repairs a small repository, in its own environment: its agent and its scripted
model as they are, our session below.

Reads {"src", "store", "folder", "commands"} and writes what came of it, as JSON.
"""

from __future__ import annotations

import json
import os
import sys

TASK = json.load(sys.stdin)
sys.path.insert(0, TASK["src"])
os.environ["MSWEA_SILENT_STARTUP"] = "1"
os.environ["MSWEA_GLOBAL_CONFIG_DIR"] = TASK["config"]

from minisweagent.agents.default import DefaultAgent  # noqa: E402  # pyright: ignore
from minisweagent.models.test_models import DeterministicModel, make_output  # noqa: E402  # pyright: ignore

from plait import Session  # noqa: E402
from plait.tools.swe import SweEnvironment  # noqa: E402

session = Session("Fix the failing test", store=TASK["store"]).to("local", TASK["folder"])
env = SweEnvironment(session, env={"PAGER": "cat"})
outputs = [make_output("next", [{"command": command}]) for command in TASK["commands"]]  # pyright: ignore
model = DeterministicModel(outputs=outputs, cost_per_call=0.0)  # pyright: ignore[reportUnknownVariableType]
agent = DefaultAgent(  # pyright: ignore[reportUnknownVariableType]
    model,
    env,
    system_template="You repair programs.",
    instance_template="{{task}} on {{system}}",
    cost_limit=0.0,
)  # pyright: ignore
ended = agent.run("Fix the failing test")  # pyright: ignore
said = [message["content"] for message in agent.messages if message["role"] == "user"]  # pyright: ignore
json.dump(
    {"session": env.session.id, "ended": ended, "said": said, "saved": agent.serialize()["info"]},  # pyright: ignore[reportUnknownMemberType]
    sys.stdout,
)
