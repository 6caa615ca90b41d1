"""Helpers that several tests share, one module for each subject; all of them can be imported from
here.
"""

from tests.support.counts import EXAMPLES, FINDINGS, count, count_calls, dose, growth, report, seed
from tests.support.events import bodies, events_of, kinds, record, record_reply
from tests.support.files import filled_folder
from tests.support.forked import ForkedProgram, run_forked, run_module, serve_programs
from tests.support.memories import STAGING, CountedIndex, PromptModel, remembered
from tests.support.models import QUICK, Spy, scripted_model, speaker, turn_text
from tests.support.processes import (
    ROOT,
    child_environment,
    free_port,
    module_command,
    needs_strace,
    python,
    wait_until,
)
from tests.support.runs import (
    RAN,
    Later,
    ask_preview,
    assert_replays,
    parked_session,
    said_texts,
    set_clock_ahead,
)
from tests.support.servers import uvicorn_server
from tests.support.stores import RawSql, sqlite_writer, tree, unsynced_count
from tests.support.tools import double, read, result_delta, result_text, sh, word_count

__all__ = [
    "said_texts",
    "EXAMPLES",
    "FINDINGS",
    "QUICK",
    "RAN",
    "ROOT",
    "STAGING",
    "CountedIndex",
    "ForkedProgram",
    "Later",
    "PromptModel",
    "RawSql",
    "Spy",
    "ask_preview",
    "assert_replays",
    "bodies",
    "child_environment",
    "count",
    "count_calls",
    "dose",
    "double",
    "events_of",
    "filled_folder",
    "free_port",
    "growth",
    "kinds",
    "module_command",
    "needs_strace",
    "parked_session",
    "python",
    "read",
    "record",
    "record_reply",
    "remembered",
    "report",
    "result_delta",
    "result_text",
    "run_forked",
    "serve_programs",
    "run_module",
    "scripted_model",
    "seed",
    "set_clock_ahead",
    "sh",
    "speaker",
    "sqlite_writer",
    "tree",
    "turn_text",
    "unsynced_count",
    "uvicorn_server",
    "wait_until",
    "word_count",
]
