"""What `apply` publishes, what it never publishes, and what a person who is asked about it is
shown.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from plait import Parked, Session, Workflow, replay, resume
from plait.errors import ToolFailed
from plait.event import kinds as k
from plait.policy import Approval, Ask, Granted, Policy
from plait.workspace import files
from plait.workspace.executables import executable_reason
from plait.workspace.version_control import metadata_of
from tests.planting import git
from tests.support import filled_folder, sh

pytestmark = pytest.mark.long  # `make quick` leaves these out


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return filled_folder(tmp_path / "repo", {"README": "a shop\n"})


@pytest.fixture
def placed(repo: Path, tmp_path: Path) -> Session:
    return _placed(repo, tmp_path)


def _placed(repo: Path, tmp_path: Path) -> Session:
    return Session("Fix it", store=tmp_path / "store").to("local", repo, isolation="host")


def _delta(session: Session) -> dict[str, Any]:
    body = next(
        event.body for event in reversed(session.events) if isinstance(event.body, k.ToolReturned)
    )
    assert isinstance(body.delta, dict)
    return body.delta


def _there(repo: Path) -> set[str]:
    return {
        os.path.relpath(os.path.join(at, name), repo)
        for at, folders, names in os.walk(repo)
        for name in (*folders, *names)
    }


PLANTED = {
    "a pointer": "echo 'gitdir: evil' > .git",
    "a nested pointer": "mkdir -p lib/sub; echo 'gitdir: ../../evil' > lib/sub/.git",
    "a link": "mkdir evil; ln -s evil .git",
    "other case": "mkdir -p .GIT/hooks; echo x > .GIT/hooks/pre-commit",
    "a blank behind": "mkdir -p '.git ' && echo x > '.git /config'",
    "dots behind": "mkdir -p .git... && echo x > .git.../config",
    "a stream of NTFS": (
        "mkdir -p '.git::$INDEX_ALLOCATION' && echo x > '.git::$INDEX_ALLOCATION/config'"
    ),
    "a short name": "mkdir -p GIT~1 && echo x > GIT~1/config",
    "an ignored character": "d=$(printf '.g\\342\\200\\214it'); mkdir -p $d; echo x > $d/config",
    "wide letters": (
        "d=$(printf '.\\357\\275\\207\\357\\275\\211\\357\\275\\224'); mkdir -p $d; echo x >"
        " $d/config"
    ),
    "Mercurial": "mkdir -p a/.hg; echo '[hooks]' > a/.hg/hgrc",
    "Subversion": "mkdir -p .svn; echo x > .svn/wc.db",
    "Jujutsu": "mkdir -p .jj/repo; echo x > .jj/repo/config.toml",
    "Bazaar": "mkdir -p .bzr; echo x > .bzr/x",
    "Darcs": "mkdir -p _darcs/prefs; echo x > _darcs/prefs/prefs",
    "CVS": "mkdir -p CVS; echo :fork:/x > CVS/Root",
    "CVS in another case": "mkdir -p cvs; echo :fork:/x > cvs/Root",
    "Fossil": "echo x > .fslckout; echo x > _FOSSIL_",
    "an empty folder": "mkdir -p .hg .svn",
    "a repository without a name": (
        "mkdir -p b/objects b/refs b/hooks; echo 'ref: refs/heads/x' > b/HEAD; echo x > b/config"
    ),
    "one at the root": "mkdir -p objects refs; echo 'ref: refs/heads/x' > HEAD; echo x > config",
    "one by its common folder": (
        "mkdir -p w; echo 'ref: refs/heads/x' > w/HEAD; echo ../elsewhere > w/commondir"
    ),
    "a link into one": "ln -s .git/hooks tools",
    "a link into one from below": "mkdir -p x/y; ln -s ../../.git/hooks x/y/tools",
    "links in a row": "ln -s .git one; ln -s one/hooks two",
}


@pytest.mark.parametrize("how", PLANTED)
def test_nothing_of_version_control_is_published(how: str, placed: Session, repo: Path) -> None:
    applied = placed.use(
        sh, command=f"{PLANTED[how]}; echo ok > ok.txt; echo new > README"
    ).files.apply()
    assert (repo / "ok.txt").read_text() == "ok\n" and (repo / "README").read_text() == "new\n"
    assert _delta(applied)["unpublished"] and "not published" in str(applied.result)
    named = {name for path in _there(repo) for name in path.split("/")}
    assert (
        not [name for name in named if metadata_of(name)]
        and not {"HEAD", "objects", "Root", "tools", "one"} & named
    )
    again = applied.files.apply()  # what was not published is not brought by the next one
    assert _there(repo) & {"HEAD", ".git", "tools"} == set() and "has all of it already" in str(
        again.result
    )


def test_a_link_that_leads_into_a_repository_by_the_users_own_link_is_not_published(
    repo: Path, tmp_path: Path
) -> None:
    git(repo, "init", "-q")
    (repo / "meta").symlink_to(".git")
    placed = _placed(repo, tmp_path)
    applied = placed.use(
        sh, command=f"ln -s meta/hooks tools; ln -s {repo}/.git/hooks abs; ln -s README fine"
    ).files.apply()
    assert (
        not os.path.lexists(repo / "tools")
        and not os.path.lexists(repo / "abs")
        and (repo / "fine").is_symlink()
    )
    assert set(_delta(applied)["unpublished"]) == {"tools", "abs"}


def test_the_folders_own_repository_is_left_alone(repo: Path, tmp_path: Path) -> None:
    """Mercurial's folder is a part of the tree; what the agent does to it stays away, and what the
    user does is not in dispute.
    """
    (repo / ".hg").mkdir(mode=0o700)
    (repo / ".hg" / "hgrc").write_text("[ui]\n")
    placed = _placed(repo, tmp_path)
    used = placed.use(sh, command="echo '[hooks]' > .hg/hgrc; echo x > ok; echo x > .hg/new")
    gone = placed.fork().use(sh, command="rm -r .hg; ln -s evil .hg; echo y > ok2")
    (repo / ".hg" / "hgrc").write_text("[ui]\nby the user\n")
    used.files.apply()
    gone.files.apply()
    assert (
        (repo / "ok").exists() and (repo / "ok2").exists() and os.listdir(repo / ".hg") == ["hgrc"]
    )
    assert (repo / ".hg" / "hgrc").read_text() == "[ui]\nby the user\n" and (
        repo / ".hg"
    ).stat().st_mode & 0o777 == 0o700


CONFIGURED = {
    "hooks": ("config", "core.hooksPath", "tools/hooks", "tools/hooks/pre-commit"),
    "hooks by a link": ("config", "core.hooksPath", "linked", "tools/hooks/pre-commit"),
    "an included file": ("config", "include.path", "../.gitconfig", ".gitconfig"),
    "a filter": ("config", "filter.x.clean", "sh tools/hooks/clean.sh %f", "tools/hooks/clean.sh"),
    "a monitor": ("config", "core.fsmonitor", "./watch", "watch"),
    "a plain word": ("config", "filter.f.clean", "sh clean", "clean"),
    "a word of ssh": ("config", "core.sshCommand", "sh sshx", "sshx"),
    "a word in quotes": ("config", "merge.m.driver", "sh -c 'true; sh \"drive\" %A'", "drive"),
    "a function": ("config", "alias.go", "!f() { sh go; }; f", "go"),
    "an alias": ("config", "alias.go", "!tools/go # x", "tools/go"),
    "an entered folder": ("config", "alias.go", "!cd tools && ./go", "tools/go"),
    "a folder for Python": ("config", "alias.go", "!python3 tools", "tools/__main__.py"),
    "the root": ("config", "core.hooksPath", ".", "pre-commit"),
    "a pager": ("config", "pager.log", "sh page", "page"),
    "a tool": ("config", "difftool.d.path", "dif", "dif"),
    "a tool for merges": ("config", "mergetool.d.cmd", "mer $LOCAL", "mer"),
    "a browser": ("config", "browser.b.cmd", "sh bro", "bro"),
    "a manual": ("config", "man.b.cmd", "sh bro", "bro"),
    "a tool of the gui": ("config", "guitool.b.cmd", "sh bro", "bro"),
    "mail": ("config", "sendemail.smtpserver", "send", "send"),
    "packs": ("config", "uploadpack.packObjectsHook", "pack", "pack"),
    "a template": (
        "config",
        "init.templateDir",
        "tools/template",
        "tools/template/hooks/pre-commit",
    ),
    "imap": ("config", "imap.tunnel", "sh tun", "tun"),
    "a server": ("config", "instaweb.httpd", "sh web", "web"),
    "signatures": ("config", "gpg.program", "sign", "sign"),
    "credentials": ("config", "credential.helper", "!sh cred", "cred"),
    "an editor": ("config", "core.editor", "sh edit", "edit"),
    "a pager of all": ("config", "core.pager", "sh page", "page"),
    "a diff": ("config", "diff.d.command", "sh dif", "dif"),
}


@pytest.mark.parametrize("how", CONFIGURED)
def test_what_the_configuration_of_git_has_run_is_not_published(
    how: str, repo: Path, tmp_path: Path
) -> None:
    git(repo, "init", "-q")
    (repo / "tools" / "hooks").mkdir(parents=True)
    (repo / "linked").symlink_to("tools/hooks")
    *command, path = CONFIGURED[how]
    git(repo, *command)
    used = _placed(repo, tmp_path).use(
        sh, command=f"mkdir -p tools/hooks $(dirname {path}); echo evil > {path}; echo x > ok"
    )
    applied = used.files.apply()
    assert (
        not (repo / path).exists()
        and (repo / "ok").exists()
        and path in _delta(applied)["unpublished"]
    )


@pytest.mark.parametrize(
    "where", [".githooks", ".githooks/deep", ".git/hooks", "link", "bare/hooks", "sub/.hg"]
)
def test_nothing_is_published_to_a_folder_that_is_version_controls_own(
    where: str, repo: Path, tmp_path: Path
) -> None:
    git(repo, "init", "-q")
    git(repo, "init", "-q", "--bare", "bare")
    git(repo, "config", "core.hooksPath", ".githooks")
    (repo / ".githooks").mkdir()
    (repo / "link").symlink_to(".git/hooks")
    (repo / where).mkdir(parents=True, exist_ok=True)
    applied = (
        _placed(repo / where, tmp_path)
        .use(sh, command="echo evil > pre-commit; mkdir d; echo x > d/x")
        .files.apply()
    )
    assert not (repo / where / "pre-commit").exists() and not (repo / where / "d").exists()
    assert set(_delta(applied)["unpublished"]) >= {"pre-commit", "d/x"}


def test_an_argument_of_a_command_keeps_nothing_back(repo: Path, tmp_path: Path) -> None:
    git(repo, "init", "-q")
    git(repo, "config", "alias.lint", "!flake8 ./src docs .")
    git(repo, "config", "filter.lfs.clean", "git-lfs clean -- %f")
    applied = (
        _placed(repo, tmp_path)
        .use(sh, command="mkdir src docs; echo x > src/a.py; echo x > docs/a.md")
        .files.apply()
    )
    assert (
        (repo / "src" / "a.py").exists()
        and (repo / "docs" / "a.md").exists()
        and "unpublished" not in _delta(applied)
    )


def test_a_hook_that_is_a_link_into_the_folder_is_not_published(repo: Path, tmp_path: Path) -> None:
    git(repo, "init", "-q")
    (repo / "pre.sh").write_text("true\n")
    (repo / ".git" / "hooks").mkdir(exist_ok=True)
    (repo / ".git" / "hooks" / "pre-commit").symlink_to("../../pre.sh")
    _placed(repo, tmp_path).use(sh, command="echo evil > pre.sh").files.apply()
    assert (repo / "pre.sh").read_text() == "true\n"


def test_a_folder_above_the_hooks_cannot_become_a_link(repo: Path, tmp_path: Path) -> None:
    git(repo, "init", "-q")
    git(repo, "config", "core.hooksPath", "tools/hooks")
    _placed(repo, tmp_path).use(
        sh, command="mkdir -p mine/hooks; echo evil > mine/hooks/pre-commit; ln -s mine tools"
    ).files.apply()
    assert (repo / "mine").is_dir() and not os.path.lexists(repo / "tools")


def test_git_runs_nothing_of_it(repo: Path, tmp_path: Path) -> None:
    """Git itself is the judge: a folder in which it runs what an agent wrote would leave a mark."""
    mark = tmp_path / "mark"
    evil = (
        f"printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \"touch {mark};"
        " false\"\\n' > $d/config"
    )
    make = f"mkdir -p $d/objects $d/refs; echo 'ref: refs/heads/main' > $d/HEAD; {evil}"
    command = (
        f"for d in .git sub/x sub/y/.git; do {make}; done; echo x > sub/file; echo 'gitdir: x' >"
        " sub/.git"
    )
    _placed(repo, tmp_path).use(sh, command=command).files.apply()
    for folder in (repo, repo / "sub", repo / "sub" / "x", repo / "sub" / "y"):
        if folder.is_dir():
            subprocess.run(["git", "status"], cwd=folder, capture_output=True, check=False)
    assert not mark.exists() and (repo / "sub" / "file").exists()


# ── what is named ────────────────────────────────────────────────────────────────────────────


EXECUTABLE = (
    "conftest.py tests/a/conftest.py sitecustomize.py lib/usercustomize.py x.pth .envrc sub/.envrc"
    " Makefile sub/makefile GNUmakefile a.mk .vscode/tasks.json .vscode/settings.json"
    " .github/workflows/ci.yml .github/workflows/deep/x.yml .gitlab-ci.yml .circleci/config.yml"
    " package.json web/package.json setup.py setup.cfg pyproject.toml tox.ini pytest.ini noxfile.py"
    " .pre-commit-config.yaml Dockerfile Dockerfile.dev docker-compose.yml .bashrc .zshrc .profile"
    " .npmrc .cargo/config.toml build.rs Cargo.toml .husky/pre-commit .husky/_/x .gitattributes"
    " sub/.gitattributes .gitmodules lefthook.yml justfile Justfile Rakefile Gemfile Jenkinsfile"
    " azure-pipelines.yml vite.config.ts .eslintrc.js gulpfile.js build.gradle build.gradle.kts"
    " pom.xml CMakeLists.txt .bazelrc .devcontainer/devcontainer.json .idea/workspace.xml .vimrc"
    " .exrc .dir-locals.el .gdbinit .mcp.json .claude/settings.json MAKEFILE Conftest.py flake.nix"
    " .yarnrc.yml binding.gyp hatch_build.py .flake8 .prettierrc .prettierrc.json .stylelintrc.js"
    " Makefile.am Makefile.PL Build.PL Pipfile devenv.nix devbox.json Snakefile magefile.go"
    " build.zig project.clj Earthfile autogen.sh .teamcity/settings.kts .tekton/x.yaml .zuul.yaml"
    " codefresh.yml bitrise.yml codemagic.yaml .venv/bin/python"
    " .venv/lib/python3.11/site-packages/x.py node_modules/.bin/tsc"
).split()


@pytest.mark.parametrize("path", EXECUTABLE)
def test_executable_configuration_is_known(path: str) -> None:
    assert executable_reason(path)


@pytest.mark.parametrize(
    "path",
    [
        "README",
        "src/cart.py",
        "docs/index.md",
        "tests/test_a.py",
        "src/makefiles/x.c",
        "data.json",
        "build/out.txt",
    ],
)
def test_other_files_are_not(path: str) -> None:
    assert executable_reason(path) is None


LINKED = {
    "a target that is edited": ("echo evil >> shared.txt", {"shared.txt"}),
    "a link for a folder": (
        "mkdir w .github; echo x > w/ci.yml; ln -s ../w .github/workflows",
        {"w/ci.yml", ".github/workflows"},
    ),
    "a link for a folder above": (
        "mkdir -p w/workflows; echo x > w/workflows/a; ln -s w .github",
        {"w/workflows/a", ".github"},
    ),
    "a link that leads out": ("ln -s /elsewhere .vscode", {".vscode"}),
    "out and in again": ("echo x > o; ln -s ../repo/o justfile", {"o", "justfile"}),
    "links in a row": (
        "mkdir a; echo x > a/o; ln -s a b; ln -s b/o conftest.py",
        {"a/o", "conftest.py"},
    ),
    "a link below a link": (
        "mkdir a; echo x > o; ln -s ../o a/t.json; ln -s a .vscode",
        {"o", "a/t.json", ".vscode"},
    ),
    "a circle": ("ln -s x y; ln -s y x; ln -s . z; echo x > o", set[str]()),
}


@pytest.mark.parametrize("how", LINKED)
def test_what_is_run_by_a_link_is_named(how: str, repo: Path, tmp_path: Path) -> None:
    (repo / "shared.txt").write_text("all:\n")
    (repo / "Makefile").symlink_to("shared.txt")
    command, named = LINKED[how]
    applied = _placed(repo, tmp_path).use(sh, command=command).files.apply()
    assert set(_delta(applied).get("executable", {})) == named


def test_what_is_run_and_too_long_to_be_shown_is_not_published_by_consent(
    placed: Session, repo: Path
) -> None:
    waits = _parked(placed, command := "seq 1 400000 > Makefile")
    (ask,) = waits.inbox.waiting
    assert isinstance(ask.shown, dict) and "too many to be shown" in str(ask.shown["cannot tell"])
    waits.inbox.approve(ask, actor="human:boss")
    with pytest.raises(ToolFailed, match="could not be shown"):
        resume(waits, Publish(command))
    assert not (repo / "Makefile").exists()


def test_what_is_published_and_run_is_named_in_the_result(placed: Session, repo: Path) -> None:
    applied = placed.use(
        sh, command="echo 'import os' > conftest.py; echo x > a.txt; rm -f README"
    ).files.apply()
    assert (
        repo / "conftest.py"
    ).exists() and "conftest.py (pytest runs it before any test)" in str(applied.result)
    assert _delta(applied)["executable"] == {"conftest.py": "pytest runs it before any test"}


# ── consent ──────────────────────────────────────────────────────────────────────────────────


class Publish(Workflow):
    """Writes files, and publishes them with consent."""

    policy = Policy(Ask("apply"))

    def __init__(self, command: str) -> None:
        self.command = command

    def forward(self, session: Session) -> Session:
        return session.use(sh, command=self.command).files.apply()


COMMAND = "echo 'import evil' > conftest.py; echo more >> README; echo 'gitdir: x' > .git"


def test_consent_shows_the_patch_and_names_what_is_run(placed: Session, repo: Path) -> None:
    seen: list[Any] = []

    def approver(approval: Approval) -> Granted:
        seen.append(approval.shown)
        assert (repo / "README").read_text() == "a shop\n"
        return Granted()

    done = Publish(COMMAND)(placed, approver=approver)
    (shown,) = seen
    assert (
        "+import evil" in shown["patch"]
        and "+more" in shown["patch"]
        and ".git" not in shown["patch"].replace("--git", "")
    )
    assert (
        shown["executable"] == {"conftest.py": "pytest runs it before any test"}
        and ".git" in shown["unpublished"]
    )
    assert shown["changes"] == ["M README +1 −0", "A conftest.py +1 −0"] and shown["publishes"][
        "folder"
    ] == str(repo)
    assert (repo / "README").read_text() == "a shop\nmore\n" and not (repo / ".git").exists()
    assert replay(done, Publish(COMMAND)) == done


def _parked(placed: Session, command: str = COMMAND) -> Session:
    with pytest.raises(Parked):
        Publish(command)(placed)
    return placed.reload()


def test_a_parked_ask_shows_it_too_and_goes_on_when_granted(placed: Session, repo: Path) -> None:
    (ask,) = (waits := _parked(placed)).inbox.waiting
    assert (
        isinstance(ask.shown, dict)
        and "+import evil" in str(ask.shown["patch"])
        and "conftest.py" in str(ask.shown["executable"])
    )
    waits.inbox.approve(ask, actor="human:boss")
    resume(waits, Publish(COMMAND))
    assert (repo / "conftest.py").exists()


def test_what_was_not_shown_is_not_published(placed: Session, repo: Path) -> None:
    waits = _parked(placed)
    waits.inbox.approve(waits.inbox.waiting[0], actor="human:boss")
    (repo / "README").write_text("changed\na shop\n")
    with pytest.raises(ToolFailed, match="would not become what was shown"):
        resume(waits, Publish(COMMAND))
    assert (
        not (repo / "conftest.py").exists() and (repo / "README").read_text() == "changed\na shop\n"
    )
    with pytest.raises(Parked):  # taken up again, it is asked anew
        resume(waits, Publish(COMMAND))
    (ask,) = (waits := waits.reload()).inbox.waiting
    assert isinstance(ask.shown, dict) and " changed" in str(ask.shown["patch"])
    waits.inbox.approve(ask, actor="human:boss")
    resume(waits, Publish(COMMAND))
    assert (repo / "README").read_text() == "changed\na shop\nmore\n" and (
        repo / "conftest.py"
    ).exists()


def test_a_change_of_something_else_does_not_ask_again(placed: Session, repo: Path) -> None:
    waits = _parked(placed)
    waits.inbox.approve(waits.inbox.waiting[0], actor="human:boss")
    (repo / "other").write_text("x\n")
    resume(waits, Publish(COMMAND))
    assert (repo / "conftest.py").exists()


def test_a_dispute_is_told_in_the_ask_and_nothing_is_published_under_it(
    placed: Session, repo: Path
) -> None:
    (repo / "README").write_text("theirs\n")
    waits = _parked(placed, "echo mine > README")
    (ask,) = waits.inbox.waiting
    assert isinstance(ask.shown, dict) and "README" in str(ask.shown["cannot tell"])
    waits.inbox.approve(ask, actor="human:boss")
    # the dispute is gone, and so is what the person knew of
    (repo / "README").write_text("a shop\n")
    with pytest.raises(ToolFailed, match="could not be shown"):
        resume(waits, Publish("echo mine > README"))
    assert (repo / "README").read_text() == "a shop\n"


def test_a_long_patch_is_cut_and_says_how_to_see_the_rest(placed: Session) -> None:
    (ask,) = (waits := _parked(placed, "seq 1 20000 > numbers")).inbox.waiting
    assert isinstance(ask.shown, dict) and len(str(ask.shown["patch"])) == 20_000
    assert f"plait apply {waits.short} --dry-run" in str(ask.shown["patch is cut"])


def test_what_is_run_is_shown_first_whole_and_by_its_lines(placed: Session, repo: Path) -> None:
    """Neither much else, nor its length, nor bytes that are no text, nor a rename keeps it from the
    person who is asked.
    """
    latin = "printf '# coding: latin-1\\n# \\351\\nimport evil\\n' > conftest.py"
    command = (
        f"seq 1 20000 > AAA; {latin}; seq 1 9000 > Makefile; echo last >> Makefile; mv README"
        " setup.py; printf 'a\\0b\\n' > tox.ini"
    )
    (ask,) = _parked(placed, command).inbox.waiting
    assert isinstance(ask.shown, dict)
    patch = str(ask.shown["patch"])
    assert (
        "+import evil\n" in patch
        and "+# \\xe9\n" in patch
        and "+last\n" in patch
        and "+a shop\n" in patch
        and "+a\\x00b" in patch
    )
    assert "AAA" not in patch and "patch is cut" in ask.shown


# ── the folder meanwhile ─────────────────────────────────────────────────────────────────────


def test_a_folder_that_becomes_a_link_is_not_followed(
    placed: Session, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (repo / "sub").mkdir()
    used = placed.use(sh, command="mkdir -p sub; echo x > sub/a; echo x > sub/b")
    replace, to = files.LocalFiles.replace, repo / "sub"

    def late(
        self: files.LocalFiles, old: files.Old, path: str, new: Any, content: bytes = b""
    ) -> None:
        replace(self, old, path, new, content)
        if path == "sub/a":
            to.rename(repo / "moved")
            to.symlink_to(tmp_path / "elsewhere")

    monkeypatch.setattr(files.LocalFiles, "replace", late)
    with pytest.raises(ToolFailed, match="link"):
        used.files.apply()
    assert not list((tmp_path / "elsewhere").iterdir()) and (repo / "moved" / "a").exists()


def test_a_folder_that_its_owner_made_read_only_is_not_written_to(
    repo: Path, tmp_path: Path
) -> None:
    (repo / "closed").mkdir(mode=0o555)
    used = _placed(repo, tmp_path).use(
        sh, command="chmod 755 closed; echo x > closed/a; chmod 555 closed"
    )
    with pytest.raises(ToolFailed, match="read-only"):
        used.files.apply()
    assert (repo / "closed").stat().st_mode & 0o777 == 0o555 and not list(
        (repo / "closed").iterdir()
    )
