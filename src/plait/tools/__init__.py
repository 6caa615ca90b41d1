"""The tools that come with Plait. None is given to an agent that was not handed it."""

from plait.tools.applying import apply_patch
from plait.tools.commands import python, shell
from plait.tools.files import edit_file, list_files, read_file, write_file
from plait.tools.notes import decide, note, settle, todo
from plait.tools.past import history
from plait.tools.search import search_files
from plait.tools.web import http, http_to

FILES = (read_file, write_file, edit_file, list_files, search_files, apply_patch)
NOTES = (note, decide, todo, settle, history)

__all__ = [
    "FILES",
    "NOTES",
    "apply_patch",
    "decide",
    "edit_file",
    "history",
    "http",
    "http_to",
    "list_files",
    "note",
    "python",
    "read_file",
    "search_files",
    "settle",
    "shell",
    "todo",
    "write_file",
]
