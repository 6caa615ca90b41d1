"""An argument that was a secret is not on record: it is asked for when a run is taken up again, and
never replaced by its stand-in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from plait import (
    Agent,
    ScriptedModel,
    Secret,
    Session,
    ToolCall,
    Workflow,
    secrets,
    tool,
)
from plait.errors import InvalidValue, NeedsWorkflow
from plait.journal.stops import Parked
from plait.policy import Ask, Policy
from plait.runs.replay import replay
from plait.runs.resume import resume
from plait.runs.whatif import whatif
from plait.tool import Happened, Tool

KEY = "sk-live-0123456789"
SHOWN = "[secret PAY_KEY]"
ANA = "human:ana"
GOT: list[Any] = []
DIES = [False]


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    Secret("PAY_KEY", KEY)
    GOT.clear()
    DIES[:] = [False]
    yield
    secrets.forget("PAY_KEY")


def paying(effect: Any = "idempotent", **more: Any) -> Tool[..., Any]:
    @tool(effect=effect, **more)
    def pay(key: str, amount: int = 1) -> str:
        GOT.append(key)
        if DIES[0]:
            raise KeyboardInterrupt
        return f"paid {amount}"

    return pay


class Pays(Workflow):
    def __init__(self, used: Tool[..., Any]) -> None:
        self._used = used

    def forward(self, session: Session, key: str, note: str = "") -> Session:
        return session.use(self._used, key=key)


def died(run: Any, session: Session, *args: Any, **kwargs: Any) -> Session:
    DIES[:] = [True]
    with pytest.raises(KeyboardInterrupt):
        run(session, *args, **kwargs)
    DIES[:] = [False]
    GOT.clear()
    return session.reload()


@pytest.mark.parametrize("named", [True, False])
def test_what_forward_was_called_with_is_asked_for(named: bool) -> None:
    used = paying()
    session = Session("go", store="memory:")
    session = died(Pays(used), session, **{"key": KEY}) if named else died(Pays(used), session, KEY)
    with pytest.raises(NeedsWorkflow, match=r"key \(\[secret PAY_KEY\]\).*Pays\(…\), key=…"):
        resume(session, Pays(used))
    with pytest.raises(NeedsWorkflow):
        whatif(session, Pays(used))
    assert GOT == [] and session.reload() == session
    done = resume(session, Pays(used), key=KEY)
    assert GOT == [KEY] and done.result == "paid 1"
    assert replay(done, Pays(used)).head == done.head  # nothing is called in a replay
    assert KEY not in str([event.body for event in done.events])


def test_a_secret_within_an_argument_is_asked_for_too() -> None:
    used = paying()
    session = died(Pays(used), Session("go", store="memory:"), KEY, note=f"Bearer {KEY}")
    with pytest.raises(NeedsWorkflow, match="note"):
        resume(session, Pays(used))
    assert GOT == []


def agent(used: Tool[..., Any], policy: Policy | None = None) -> Agent:
    script = [ToolCall("pay", key=KEY), ToolCall("pay", key=KEY), "done"]
    return Agent("Pay.", model=ScriptedModel(script), tools=[used], policy=policy)


def test_a_model_that_names_a_secret_calls_with_it() -> None:
    done = agent(paying())(Session("go", store="memory:"))
    assert GOT == [KEY, KEY] and KEY not in str([event.body for event in done.events])


def test_a_call_of_a_model_is_not_made_with_what_stands_on_record() -> None:
    used = paying()
    session = died(agent(used), Session("go", store="memory:"))
    done = resume(session, agent(used))
    assert GOT == [KEY]  # the model was told, and called again
    failure = done.effects[0].failure
    assert failure is not None and failure.kind == "SecretArgument" and SHOWN in failure.message
    assert done.text == "done" and replay(done, agent(used)).head == done.head


def test_consent_does_not_bring_a_secret_back() -> None:
    used, policy = paying(), Policy(Ask("pay"))
    with pytest.raises(Parked) as stop:
        agent(used, policy)(Session("go", store="memory:"))
    session = stop.value.session
    session.inbox.approve(session.inbox.waiting[0], actor=ANA)
    with pytest.raises(Parked) as stop:  # for the second call, of this process
        resume(session, agent(used, policy))
    assert GOT == [] and stop.value.session.effects[0].failure is not None


def test_what_a_person_edited_into_a_call_is_not_called_with_a_stand_in() -> None:
    @tool
    def pay(key: str) -> str:
        GOT.append(key)
        return "paid"

    class Plain(Workflow):
        policy = Policy(Ask("pay"))

        def forward(self, session: Session) -> Session:
            return session.use(pay, key="none yet")

    with pytest.raises(Parked) as stop:
        Plain()(Session("go", store="memory:"))
    session = stop.value.session
    session.inbox.approve(session.inbox.waiting[0], edited={"key": KEY}, actor=ANA)
    with pytest.raises(Parked):
        resume(session, Plain())
    (ask,) = session.reload().inbox.waiting
    assert GOT == [] and "holds a secret" in str(ask.shown)


@pytest.mark.parametrize("effect", ["probeable", "compensatable", "at_most_once"])
def test_a_lost_call_is_not_looked_into_with_a_stand_in(effect: Any) -> None:
    def look(key: str) -> Happened | None:
        GOT.append(key)
        return None

    more: dict[str, Any] = {
        "probeable": {"probe": look},
        "compensatable": {"compensate": look},
    }.get(effect, {})
    used = paying(effect, **more)
    session = died(agent(used), Session("go", store="memory:"))
    with pytest.raises(Parked):
        resume(session, agent(used))
    (ask,) = session.reload().inbox.waiting
    assert GOT == [] and ask.kind == "unknown"


def test_a_program_that_read_a_stand_in_does_not_pass_it_on() -> None:
    @tool
    def login() -> str:
        return KEY

    session = Session("go", store="memory:").use(login)
    assert session.result == SHOWN
    with pytest.raises(InvalidValue, match=r"stands on record for a secret.*Secret"):
        session.use(paying(), key=session.result)
    assert GOT == []


def test_words_about_a_secret_are_words() -> None:
    @tool
    def write(text: str) -> str:
        GOT.append(text)
        return "written"

    said = f"The key is {SHOWN}."
    Agent("Write.", model=ScriptedModel([ToolCall("write", text=said), "done"]), tools=[write])(
        Session("go", store="memory:")
    )
    Session("go", store="memory:").use(write, text=said)
    assert GOT == [said, said]
