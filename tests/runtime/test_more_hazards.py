"""Further files that tools of a user run by themselves, and further folders of version control."""

from __future__ import annotations

import pytest

from plait.workspace.executables import executable_reason
from plait.workspace.version_control import metadata_root

VERSIONS = (
    ".bzr/branch/branch.conf _darcs/prefs/defaults .fslckout _FOSSIL_ .pijul/config CVS/Root"
    " sub/.git .Git/config .git./hooks/x .got/got.conf .sapling/config .osc/_package deep/.jj/repo"
    " _MTN/options .repo/manifest.xml .svn/wc.db "
)
RUN = (
    "docs/source/conf.py conf.py mkdocs.yaml manage.py alembic/env.py dags/x.py"
    " requirements-dev.txt lib-gdb.py .mise/tasks/x .nvmrc .rvmrc bin/hermit"
    " .config/mise/config.toml .autoenv.zsh fish/conf.d/x.fish .tmuxinator.yml docker-bake.hcl"
    " .dagger/main.go site_scons/site_init.py Jamroot Tupfile build.ninja make.bat x.nimble"
    " pants.toml App.xcodeproj/project.pbxproj ci_scripts/ci_post_clone.sh .air.toml build.mill"
    " .bsp/sbt.json buildSrc/src/x.kt tools.go .golangci.yml Dangerfile spec/spec_helper.rb"
    " bin/rails phpunit.xml.dist .htaccess .iex.exs cabal.project .ocamlinit renv/activate.R"
    " guix.scm .pnp.cjs truffle-config.js .storybook/main.js tsconfig.json plopfile.js"
    " hooks/pre-commit .simple-git-hooks.cjs main.tf serverless.yml Pulumi.yaml Chart.yaml"
    " Containerfile.dev .theia/tasks.json tasks.vs.json x.launch .vim/x.vim .roo/mcp.json"
    " opencode.json AGENTS.md sub/CLAUDE.md .duckdbrc "
)
PLAIN = (
    "src/hooks/useCart.ts README.md src/app.py docs/index.md data.json src/main.rs"
    " lib/config_reader.py package-lock.json"
)


@pytest.mark.parametrize("path", VERSIONS.split())
def test_no_version_control_is_published(path: str) -> None:
    assert metadata_root(path)


@pytest.mark.parametrize("path", RUN.split())
def test_a_file_that_a_tool_runs_by_itself_is_named(path: str) -> None:
    assert executable_reason(path) and executable_reason(f"deep/{path}")


@pytest.mark.parametrize("path", PLAIN.split())
def test_an_ordinary_file_is_not(path: str) -> None:
    assert executable_reason(path) is None and metadata_root(path) is None
