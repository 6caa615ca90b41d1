"""Secrets in heavy folders: tools do not see them, on no rung that isolates, by no command and no
tool for files.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest

from plait import Session, secrets
from plait.sandbox import Sandbox
from plait.tool import tool
from plait.workspace import masks
from plait.workspace.masks import masked_files, without_secrets
from tests.sandbox.rooms import needs, on_isolated
from tests.support import sh

TOKEN = "ghp_" + "q7Zk" * 9
KNOWN = "sk-live-4242-abcdefgh"


@pytest.fixture(autouse=True)
def nothing_known() -> Generator[None]:
    yield
    secrets.forget()


@tool(effect="pure")
def read(path: str, size: int, sandbox: Sandbox) -> str:
    """Read a file."""
    return sandbox.files.read(path, size=size).decode()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    for name in ("node_modules/deep/x", ".git/modules/lib", ".git/objects", "sub/.git", ".venv"):
        (folder / name).mkdir(parents=True)
    url = (
        '[core]\n\tbare = false\n[remote "origin"]\n\turl ='
        f" https://ana:{TOKEN}@example.com/shop.git\n"
    )
    for name in (".git/config", ".git/modules/lib/config", "sub/.git/config"):
        (folder / name).write_text(url)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / ".venv" / "pip.conf").write_text(
        f"[global]\nindex-url = https://{TOKEN}@pypi.example.com/simple\n"
    )
    (folder / "node_modules" / "deep" / "x" / "y.js").write_text(f"const key = '{KNOWN}'\n")
    (folder / "node_modules" / "plain.js").write_text("const key = 1\n")
    (folder / "README").write_text("a shop\n")
    return folder


def _placed(repo: Path, tmp_path: Path, rung: str) -> Session:
    needs(rung, tmp_path)
    return Session("x", store=tmp_path / "store").to("local", repo, isolation=rung)


CARRIERS = [".git/config", ".git/modules/lib/config", ".venv/pip.conf", "sub/.git/config"]


@on_isolated
def test_no_command_sees_a_secret_of_a_heavy_folder(repo: Path, tmp_path: Path, rung: str) -> None:
    secrets.register(KNOWN, "SHOP_KEY")
    placed = _placed(repo, tmp_path, rung)
    assert placed.files.placement and isinstance(placed.files.placement.detail, dict)
    assert placed.files.placement.detail["masked"] == [
        *CARRIERS[:2],
        CARRIERS[2],
        "node_modules/deep/x/y.js",
        "sub/.git/config",
    ]
    look = f"grep -rF -e {TOKEN} . {repo} 2>/dev/null; grep -rF 42-abcd . {repo} 2>/dev/null; true"
    assert placed.fork().use(sh, command=look).result == "(nothing)"
    where = "." if rung != "landlock" else str(repo)
    assert (
        placed.fork().use(sh, command=f"cat {where}/node_modules/plain.js {where}/.git/HEAD").result
        == "const key = 1\nref: refs/heads/main\n"
    )
    if rung != "landlock":  # which can only leave it out
        told = (
            placed.fork()
            .use(
                sh,
                command=(
                    "git -C . config -f .git/config core.bare; cat .git/config"
                    " node_modules/deep/x/y.js"
                ),
            )
            .result
        )
        assert (
            "false" in told
            and "https://withheld@example.com/shop.git" in told
            and "[secret SHOP_KEY]" in told
        )
        assert (
            placed.fork().use(sh, command="echo x > .git/config || echo no").result.endswith("no\n")
        )


@on_isolated
def test_no_tool_for_files_sees_one(repo: Path, tmp_path: Path, rung: str) -> None:
    secrets.register(KNOWN, "SHOP_KEY")
    placed = _placed(repo, tmp_path, rung)
    for path in [*CARRIERS, "node_modules/deep/x/y.js"]:
        for size in (10_000, 90):
            said = placed.fork().use(read, path=path, size=size).result
            assert TOKEN[:12] not in said and KNOWN[:12] not in said and said


DEEP = {
    "node_modules/a/b/.npmrc": "//r.example.com/:_authToken={}\n",
    "node_modules/a/package-lock.json": '{{"resolved": "https://ana:{}@example.com/a.tgz"}}\n',
    "node_modules/a/yarn.lock": 'resolved "https://example.com/a.tgz?access_token={}"\n',
    ".git/FETCH_HEAD": "1f\tbranch 'main' of https://ana:{}@example.com/shop\n",
    ".git/logs/refs/heads/main": "0 1 ana\tclone: from https://ana:{}@example.com/shop\n",
    ".git/logs/refs/remotes/origin/HEAD": "0 1 ana\tclone: from https://ana:{}@example.com/shop\n",
    ".venv/src/lib/.git/config": '[remote "origin"]\n\turl = https://ana:{}@example.com/shop.git\n',
    ".venv/lib/deep/.pypirc": "[pypi]\npassword = {}\n",
}


@on_isolated
def test_credentials_deep_in_a_heavy_folder_are_not_seen(
    repo: Path, tmp_path: Path, rung: str
) -> None:
    for name, text in DEEP.items():
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(text.format(TOKEN))
    placed = _placed(repo, tmp_path, rung)
    assert placed.files.placement and isinstance(placed.files.placement.detail, dict)
    assert set(DEEP) <= set(cast("list[str]", placed.files.placement.detail["masked"]))
    look = f"grep -rF -e {TOKEN} . {repo} 2>/dev/null; true"
    assert placed.fork().use(sh, command=look).result == "(nothing)"
    assert (
        TOKEN[:12] not in placed.fork().use(read, path="node_modules/a/yarn.lock", size=90).result
    )
    (repo / "node_modules/a/b/.npmrc").write_text("# none yet\n")
    assert "none" in placed.fork().use(read, path="node_modules/a/b/.npmrc", size=90).result
    # the folder's list of names stays as it was
    (repo / "node_modules/a/b/.npmrc").write_text(f"_auth={TOKEN}\n")
    assert placed.fork().use(sh, command=look).result == "(nothing)"


@on_isolated
def test_a_carrier_that_changes_meanwhile_is_looked_at_again(
    repo: Path, tmp_path: Path, rung: str
) -> None:
    (repo / ".git" / "config").write_text("[core]\n")
    placed = _placed(repo, tmp_path, rung)
    assert placed.fork().use(sh, command="true").result
    (repo / ".git" / "config").write_text(f"[http]\n\textraheader = AUTHORIZATION: basic {TOKEN}\n")
    assert (
        placed.fork().use(sh, command=f"grep -rF {TOKEN} . {repo} 2>/dev/null || true").result
        == "(nothing)"
    )


@on_isolated
def test_a_value_that_becomes_a_secret_later_is_masked_from_then_on(
    repo: Path, tmp_path: Path, rung: str
) -> None:
    placed = _placed(repo, tmp_path, rung)
    look = f"cat {'.' if rung != 'landlock' else repo}/node_modules/deep/x/y.js || true"
    assert KNOWN in placed.fork().use(sh, command=look).result
    secrets.register(KNOWN, "SHOP_KEY")
    assert KNOWN not in placed.fork().use(sh, command=f"{look} | base64").result
    (repo / "node_modules" / "late.js").write_text(KNOWN)
    assert (
        "late"
        not in placed.fork()
        .use(sh, command=f"grep -rlF 42-abcd . {repo} 2>/dev/null || true")
        .result
    )


@pytest.mark.parametrize(
    ("path", "text", "shown"),
    [
        (".git/config", "url = https://x.com/a.git", None),
        (".git/config", "url = git@github.com:a/b.git", None),
        (".git/config", "url = ssh://git@github.com/a/b.git", None),
        (
            ".git/config",
            "url = https://tok3n@github.com/a/b",
            "url = https://withheld@github.com/a/b",
        ),
        (".git/config", "url = https://a:p@ss:w@h.com/b", "url = https://withheld@h.com/b"),
        (".git/config", "url = ssh://git:pw@h.com/b", "url = ssh://git:withheld@h.com/b"),
        (".git/config", "\tpassword = hunter2", "\tpassword = withheld"),
        (".git/config", '[x "https://a:b@c/"]', '[x "https://withheld@c/"]'),
        (
            "node_modules/.npmrc",
            "//r.npmjs.org/:_authToken=abc",
            "//r.npmjs.org/:_authToken=withheld",
        ),
        ("node_modules/.yarnrc.yml", "npmAuthToken: abc", "npmAuthToken: withheld"),
        (".venv/.netrc", "machine a login b password c", "machine a login b password withheld"),
        (".git/logs/HEAD", "clone: from https://a:b@c/d", "clone: from https://withheld@c/d"),
        (
            ".git/FETCH_HEAD",
            "1f branch 'main' of https://a:b@c/d",
            "1f branch 'main' of https://withheld@c/d",
        ),
        (
            ".git/MERGE_MSG",
            "Merge branch 'x' of https://tok@c/d",
            "Merge branch 'x' of https://withheld@c/d",
        ),
        (
            ".git/logs/refs/remotes/origin/HEAD",
            "clone: from https://a:b@c/d",
            "clone: from https://withheld@c/d",
        ),
        (
            ".git/modules/lib/logs/refs/heads/main",
            "pull https://a:b@c/d",
            "pull https://withheld@c/d",
        ),
        (".git/worktrees/w/config.worktree", "\ttoken = x", "\ttoken = withheld"),
        (".venv/src/lib/.git/config", "url = https://tok@c/d", "url = https://withheld@c/d"),
        (
            "node_modules/a/b/.npmrc",
            "//r/:_password=x\n_auth = y",
            "//r/:_password=withheld\n_auth = withheld",
        ),
        ("node_modules/a/.yarnrc", '"//r/:_authToken" "abc"', '"//r/:_authToken" withheld'),
        (
            "node_modules/a/package-lock.json",
            '"resolved": "https://a:b@c/d.tgz"',
            '"resolved": "https://withheld@c/d.tgz"',
        ),
        ("node_modules/.package-lock.json", '"node_modules/js-tokens": {', None),
        (
            "node_modules/a/package.json",
            '"_resolved": "git+https://tok@c/d"',
            '"_resolved": "git+https://withheld@c/d"',
        ),
        (
            "node_modules/a/yarn.lock",
            'resolved "https://c/d.tgz?token=abc#1"',
            'resolved "https://c/d.tgz?token=withheld#1"',
        ),
        (
            "node_modules/.pnpm/lock.yaml",
            "tarball: https://tok@c/d",
            "tarball: https://withheld@c/d",
        ),
        (
            ".venv/a/pip.conf",
            "index-url = https://u:p@c/simple",
            "index-url = https://withheld@c/simple",
        ),
        (
            ".venv/a/.pypirc",
            "[pypi]\nusername = u\npassword = pypi-x",
            "[pypi]\nusername = u\npassword = withheld",
        ),
        (
            ".tox/x/requirements-dev.txt",
            "--index-url https://u:p@c/simple",
            "--index-url https://withheld@c/simple",
        ),
        (
            ".venv/auth.json",
            '{"http-basic": {"password": "x"}}',
            '{"http-basic": {"password": "withheld"}}',
        ),
        (".git/hooks/x", f"curl -H 'x: {TOKEN}' u", "curl -H 'x: withheld' u"),
        ("src/package-lock.json", '"https://a:b@c/d"', None),
        ("node_modules/deep/index.js", "https://a:b@c/d", None),
    ],
)
def test_what_a_credential_looks_like(path: str, text: str, shown: str | None) -> None:
    assert without_secrets(path, text.encode()).decode() == (text if shown is None else shown)


def test_what_is_not_looked_at_is_said(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heavy = os.path.realpath(repo / "node_modules")
    (repo / "node_modules" / "big.js").write_text("x" * 2000)
    monkeypatch.setattr(masks, "SIZE_MAX", 1000)
    monkeypatch.setattr(masks, "FILES_MAX", 1)
    assert masked_files(heavy).unlooked == ""  # there is nothing to look for
    secrets.register(KNOWN, "SHOP_KEY")
    found = masked_files(heavy)
    assert found.files == {} and "1 above" in found.unlooked and "1 beyond" in found.unlooked


def test_folders_that_did_not_change_are_not_read_again(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heavy, read = os.path.realpath(repo / "node_modules"), list[str]()
    look = masks._text_shown  # pyright: ignore[reportPrivateUsage]

    def counted(folder: str, path: str) -> bytes | None:
        read.append(path)
        return look(folder, path)

    monkeypatch.setattr(masks, "_text_shown", counted)
    secrets.register(KNOWN, "SHOP_KEY")
    for _ in range(3):
        assert set(masked_files(heavy).files) == {"deep/x/y.js"}
    assert sorted(read) == ["deep/x/y.js", "plain.js"]
    (repo / "node_modules" / "deep" / "new.js").write_text("x")
    masked_files(heavy)
    assert sorted(read) == ["deep/new.js", "deep/x/y.js", "plain.js"]


def test_what_is_no_text_is_looked_at_and_what_is_not_is_said(repo: Path) -> None:
    secrets.register(KNOWN, "SHOP_KEY")
    inside = repo / "node_modules" / "deep"
    for name in ("a.pyc", "b.so", "c.zip"):
        (inside / name).write_bytes(b"\x00\xff" + KNOWN.encode() + b"\x00")
    (inside / "plain.pyc").write_bytes(b"\x00\xff")
    (inside / "d.png").write_bytes(KNOWN.encode())
    found = masked_files(os.path.realpath(repo / "node_modules"))
    assert {
        path: found.files[path] for path in ("deep/a.pyc", "deep/b.so", "deep/c.zip")
    } == dict.fromkeys(("deep/a.pyc", "deep/b.so", "deep/c.zip"), b"")
    assert (
        "deep/plain.pyc" not in found.files
        and found.unlooked == "1 pictures, fonts and compressed files"
    )


@pytest.mark.parametrize("heavy", [[], ["node_modules"]])
def test_credentials_in_a_folder_that_is_part_of_the_tree_go_into_no_store(
    repo: Path, tmp_path: Path, heavy: list[str]
) -> None:
    (repo / ".hg").mkdir()
    (repo / ".hg" / "hgrc").write_text(f"[paths]\ndefault = https://ana:{TOKEN}@example.com/shop\n")
    (repo / "sub" / "config").write_text("url = https://a:b@example.com\n")  # a text like others
    placed = Session("x", store=tmp_path / "store").to("local", repo, isolation="host", heavy=heavy)
    assert placed.files.placement and isinstance(placed.files.placement.detail, dict)
    assert placed.files.placement.detail["withheld"] == [*CARRIERS[:2], ".hg/hgrc", *CARRIERS[2:]]
    assert TOKEN.encode() not in b"".join(
        file.read_bytes() for file in (tmp_path / "store").rglob("*") if file.is_file()
    )
    assert placed.files.text("sub/config") and placed.files.text(".git/HEAD")
    assert (
        TOKEN
        not in placed.use(sh, command="cat .git/config .hg/hgrc .venv/pip.conf || true").result
    )
