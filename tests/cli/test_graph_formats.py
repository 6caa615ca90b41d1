"""`graph --format`: each is well-formed, whatever the texts say."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from plait.session import Session
from tests.cli.shell import Shell, shell

__all__ = ["shell"]

HOSTILE = 'a"]; </text><script>x</script> \x1b[2J --> ]]> \\" & \u202e\x00z'


def family(shell: Shell) -> Session:
    session = shell.open(shell.new("x", "--title", "hostile")).say(HOSTILE)
    branch = session.fork("strict").decide("v", HOSTILE)
    session.fork("left")
    return session.merge(branch)


def test_xml_formats_are_well_formed(shell: Shell) -> None:
    name = family(shell).short
    picture = shell("graph", name, "--format", "svg")
    root = ElementTree.fromstring(picture)
    assert root.tag.endswith("svg")
    assert not [each for each in root.iter() if each.tag.endswith("script")]
    texts = [each.text or "" for each in root.iter() if each.tag.endswith("text")]
    assert [text for text in texts if text.startswith(f"{name}@")]
    assert any(text.startswith("strict@") for text in texts)
    graph = ElementTree.fromstring(shell("graph", name, "--format", "graphml"))
    nodes = [each for each in graph.iter() if each.tag.endswith("}node")]
    assert len(nodes) == len(shell.json("graph", name)["nodes"])


def test_sessions_and_their_arrows(shell: Shell) -> None:
    session = family(shell)
    dot = shell("graph", session.short, "--format", "dot").splitlines()
    assert dot[0] == "digraph plait {" and dot[-1] == "}"
    arrows = [line for line in dot if "->" in line]
    assert len(arrows) == 3 and sum("style=dashed" in line for line in arrows) == 1
    mermaid = shell("graph", session.short, "--format", "mermaid").splitlines()
    assert mermaid[0] == "flowchart TD"
    assert all(
        re.fullmatch(r'  s\d(\["[^"<>]*"\]| -\.?->\|[a-z 0-9]+\| s\d)', line)
        for line in mermaid[1:]
    )


def test_a_format_is_no_document(shell: Shell) -> None:
    shell.new("x")
    assert "exclude each other" in shell.error(2, "graph", "--format", "dot", "--json")
    assert "'png' is not one of" in shell.error(2, "graph", "--format", "png")
