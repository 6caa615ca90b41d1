"""The table of file names that some program runs, or takes commands from, by itself."""

from __future__ import annotations

# Names, globs of names, and, with a slash, globs of the end of a path; in any case. A reason says
# which program runs it, and when.
EXECUTABLE_NAMES: tuple[tuple[str, str], ...] = (
    # Python
    ("conftest.py", "pytest runs it before any test"),
    ("sitecustomize.py usercustomize.py", "every Python that finds it runs it at its start"),
    ("*.pth", "Python runs its lines at its start, where it is installed"),
    ("setup.py", "pip and other builders run it"),
    (
        "setup.cfg pyproject.toml",
        "pip, pytest and other tools take build hooks, plugins and commands from it",
    ),
    ("pytest.ini .pytest.ini tox.ini", "pytest and tox take plugins and commands from it"),
    ("noxfile.py", "nox runs it"),
    (
        "hatch_build.py Pipfile hatch.toml pdm.toml pixi.toml uv.toml conanfile.py",
        "the package manager runs it, or what it names",
    ),
    (".flake8", "the linter loads the plugins that it names"),
    (
        (
            "conf.py *.conf.py mkdocs.y*ml .mkdocs.y*ml book.toml _config.y*ml _plugins/* latexmkrc"
            " .latexmkrc"
        ),
        "the tool for documents or servers runs it, or its hooks",
    ),
    ("Snakefile *.smk", "snakemake runs it"),
    ("tasks.py fabfile.py dodo.py PRESUBMIT.py", "invoke, fabric, doit and depot_tools run it"),
    ("manage.py wsgi.py asgi.py celeryconfig.py", "a server or its tools run it at their start"),
    (
        "alembic.ini alembic/* migrations/env.py airflow.cfg dags/*",
        "the tool runs it, or what it names",
    ),
    (
        "requirements*.txt constraints*.txt requirements/*.txt environment.y*ml conda.y*ml",
        "pip or conda installs and runs what it names",
    ),
    (
        "poetry.toml .pdm.toml rye.toml buildout.cfg versioneer.py ez_setup.py",
        "the package manager runs it, or what it names",
    ),
    (
        "*-gdb.py *-gdb.gdb dvc.yaml .dvc/config MLproject .streamlit/*",
        "the tool it belongs to runs it, or what it names",
    ),
    (
        "pylintrc .pylintrc .pylintrc.toml mypy.ini .mypy.ini .coveragerc",
        "the linter or tool loads the plugins that it names",
    ),
    (
        "pip.conf .pypirc .pdbrc .pdbrc.py .pythonrc.py .pythonstartup",
        "pip, pdb or Python reads it by itself",
    ),
    (
        ".ipython/* .jupyter/* ipython_config.py jupyter_*_config.py",
        "IPython and Jupyter run it at their start",
    ),
    (
        (
            ".python-version .tool-versions .mise.toml mise.toml .rtx.toml mise.local.toml"
            " .mise.local.toml .config/mise/* .mise/* .mise-tasks/* .node-version .nvmrc"
            " .ruby-version .java-version .go-version .sdkmanrc .rvmrc .ruby-gemset .prototools"
            " .bazelversion .hermit/* bin/hermit .flox/*"
        ),
        "a version manager picks programs by it, or runs what it says",
    ),
    # shells, and the folder one enters
    (
        ".envrc .envrc.* .direnvrc direnvrc .autoenv* .in .out",
        "direnv runs it when the folder is entered",
    ),
    (
        ".env .env.*",
        "many tools take variables from it, with which programs can be made to load code",
    ),
    (
        (
            ".bashrc .bash_* .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .cshrc"
            " .tcshrc .login .logout config.fish fish/conf.d/* fish/functions/* .zsh/* .oh-my-zsh/*"
            " .aliases .functions .exports .xonshrc *profile.ps1 .lessfilter"
        ),
        "a shell runs it",
    ),
    (
        (
            ".inputrc .editrc .screenrc .tmux.conf .tmuxinator.y*ml .tmuxp.y*ml .teamocil.y*ml"
            " mprocs.yaml .mprocs.yaml process-compose.y*ml .xinitrc .xprofile .xsession"
        ),
        "a terminal program runs it",
    ),
    ("*.desktop *.service autorun.inf", "the desktop or the system starts what it names"),
    # builds
    (
        "Makefile Makefile.* GNUmakefile BSDmakefile *.mk *.mak Kbuild",
        "make runs it, or a tool that makes it",
    ),
    (
        (
            "autogen.sh bootstrap.sh Build.PL cpanfile binding.gyp build.zig build.zig.zon"
            " magefile.go magefiles/*"
        ),
        "a build runs it",
    ),
    (
        "project.clj deps.edn bb.edn build.boot shadow-cljs.edn",
        "the build tool runs it, or what it names",
    ),
    (
        (
            "xmake.lua premake5.lua BUILD.gn .gn PKGBUILD debian/rules build.cake build.fsx"
            " *.vcxproj nuget.config"
        ),
        "a build runs it",
    ),
    ("Earthfile docker-bake.* .dagger/* dagger.json", "earthly, docker or dagger runs it"),
    (
        (
            "site_scons/* Jamroot* Jamfile* Tupfile* build.ninja *.ninja platformio.ini west.yml"
            " Kconfig DEPS .gclient"
        ),
        "a build runs it",
    ),
    (
        (
            "make.bat build.bat build.cmd build.ps1 psakefile.ps1 build.sh install.sh bootstrap"
            " configure.win cleanup Makevars*"
        ),
        "a build runs it",
    ),
    (
        (
            "dub.json dub.sdl shard.yml *.nimble config.nims *.nims *.rockspec alire.toml *.gpr"
            " *.pro *.pri *.qbs"
        ),
        "a build runs it, or what it names",
    ),
    (
        "pants.toml pants-plugins/* BUILD.pants BUILD.plz .plzconfig* garden.y*ml werf.yaml",
        "a build runs it, or what it names",
    ),
    (
        "*.xcodeproj/* *.xcconfig .xcode.env ci_scripts/* Cartfile Mintfile Tuist/* Project.swift",
        "Xcode or its tools run it",
    ),
    (
        "bacon.toml .air.toml .watchr nodemon.json .watchmanconfig pm2.json",
        "a watcher runs what it says",
    ),
    (
        "justfile .justfile *.just Taskfile.yml Taskfile.yaml Taskfile.dist.y*ml",
        "a task runner runs it",
    ),
    ("CMakeLists.txt *.cmake CMakePresets.json CMakeUserPresets.json", "cmake runs it"),
    (
        (
            "meson.build meson.options configure configure.ac configure.in *.m4 SConstruct"
            " SConscript wscript"
        ),
        "a build runs it",
    ),
    (
        "BUILD BUILD.bazel WORKSPACE WORKSPACE.bazel MODULE.bazel *.bzl .bazelrc BUCK .buckconfig",
        "Bazel or Buck runs it",
    ),
    (
        (
            "build.gradle* settings.gradle* init.gradle* gradle.properties gradlew gradlew.bat"
            " gradle/wrapper/*"
        ),
        "Gradle runs it",
    ),
    ("pom.xml mvnw mvnw.cmd .mvn/* local.properties .jvmopts .sbtopts", "Maven runs it"),
    (
        (
            "build.sbt *.sbt build.sc build.mill project/build.properties .bsp/* .bloop/*"
            " .scalafix.conf nbproject/* build.xml ivy.xml project/*.scala"
        ),
        "the build tool runs it",
    ),
    (
        "build.rs Cargo.toml .cargo/config .cargo/config.toml rust-toolchain rust-toolchain.toml",
        "cargo runs it, or what it names",
    ),
    (
        "tools.go gen.go generate.go .golangci.y*ml .goreleaser.y*ml .ko.yaml",
        "go, or a tool of it, runs it",
    ),
    ("buildSrc/* build-logic/*", "Gradle builds and runs it before the build"),
    ("go.mod go.work", "go fetches and runs the toolchain that it names"),
    (
        (
            "Rakefile rakefile *.rake Gemfile *.gemspec Guardfile Capfile Thorfile Vagrantfile"
            " Podfile Fastfile Dangerfile Brewfile Appfile Steepfile Gemfile.lock .gemrc"
            " .bundle/config spec_helper.rb test_helper.rb bin/rails bin/setup config/boot.rb"
            " config/environment.rb config/initializers/*"
        ),
        "Ruby runs it",
    ),
    (".rspec .irbrc .pryrc config.ru", "Ruby tools run it, or load what it names"),
    (
        (
            "phpunit.xml* .php-cs-fixer* .php_cs* rector.php phpstan.neon* psalm.xml* artisan"
            " grumphp.y*ml captainhook.json"
        ),
        "PHP tools run it",
    ),
    (".user.ini .htaccess web.config wp-config.php", "the web server runs it, or what it names"),
    ("composer.json", "composer runs the scripts in it"),
    (
        "mix.exs .iex.exs .formatter.exs .credo.exs .erlang rebar.config rebar.config.script",
        "the build tool runs it",
    ),
    (
        (
            "cabal.project* package.yaml hie.yaml .ocamlinit deps/build.jl startup.jl"
            " renv/activate.R _targets.R dune dune-project *.opam stack.yaml *.cabal Setup.hs"
            " Package.swift *.csproj *.fsproj *.vbproj *.props *.targets"
        ),
        "a build runs it",
    ),
    (
        (
            "flake.nix shell.nix default.nix devenv.nix devbox.json .nixrc shell.scm guix.scm"
            " manifest.scm channels.scm .guix-channel"
        ),
        "nix, devenv or devbox runs it",
    ),
    # JavaScript
    (
        ".pnp.cjs .pnp.*js rush.json common/config/rush/* moon.yml .moon/* angular.json",
        "the package manager or a task runner runs it",
    ),
    (
        (
            "*-config.js *-config.cjs *-config.mjs *-config.ts gatsby-*.js gatsby-*.ts"
            " ember-cli-build.js .storybook/* .vuepress/*"
        ),
        "the tool it is named after runs it",
    ),
    (
        "tsconfig*.json tslint.json jest.config.* babel.config.* .postcssrc* .nycrc* .taprc .c8rc*",
        "the tool loads the plugins that it names",
    ),
    (
        "plopfile* .hygen* _templates/* Cakefile wallaby.js build.js build.mjs esbuild.js",
        "a task runner or a build runs it",
    ),
    ("package.json", "npm, yarn and pnpm run the scripts in it, some at each install"),
    (
        (
            ".npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs pnpmfile.js pnpm-workspace.yaml bunfig.toml"
            " .yarn/*"
        ),
        "the package manager reads or runs it",
    ),
    (
        "*.config.js *.config.cjs *.config.mjs *.config.ts *.config.mts *.config.cts *.conf.js",
        "the tool it is named after runs it",
    ),
    (
        (
            ".*rc.js .*rc.cjs .*rc.mjs .*rc.ts .eslintrc* .babelrc* .mocharc* .lintstagedrc* .swcrc"
            " .prettierrc* .stylelintrc* .releaserc*"
        ),
        "the tool it is named after runs it, or its plugins",
    ),
    (
        (
            "gulpfile* Gruntfile* Jakefile* deno.json deno.jsonc turbo.json nx.json lerna.json"
            " .parcelrc"
        ),
        "a task runner runs it, or what it names",
    ),
    # hooks
    (
        (
            ".husky/* .githooks/* .git-hooks/* .lefthook/* .hooks/* githooks/* git-hooks/*"
            " hooks/pre-* hooks/post-* hooks/*-msg"
        ),
        "git runs it, where hooks are set up like this",
    ),
    (
        (
            "lefthook.yml lefthook.yaml .lefthook.y*ml lefthook-local.yml .overcommit.yml .huskyrc*"
            " commitlint.config.* .simple-git-hooks.* simple-git-hooks.* .nano-staged* .czrc"
            " .cz.toml .versionrc* .release-it.*"
        ),
        "git hooks run what it says",
    ),
    (
        ".pre-commit-config.yaml .pre-commit-config.yml .pre-commit-hooks.yaml",
        "pre-commit runs what it says, at each commit where it is set up",
    ),
    (
        ".gitattributes",
        "git runs filters, and merge and diff drivers, on the files that it names",
    ),
    (".gitmodules", "git fetches what it names, and checks it out"),
    (
        (
            ".gitconfig .lfsconfig .hgrc .hgsub .hgsubstate .hgeol .p4config .arcconfig"
            " .fossil-settings/*"
        ),
        "version control takes settings from it",
    ),
    # continuous integration
    (
        (
            ".github/workflows/* .github/actions/* action.yml action.yaml .gitea/workflows/*"
            " .forgejo/workflows/*"
        ),
        "CI runs it, with its keys",
    ),
    (
        (
            ".gitlab-ci.yml .gitlab-ci.yaml .gitlab/ci/* *.gitlab-ci.yml .travis.yml .circleci/*"
            " Jenkinsfile* .buildkite/*"
        ),
        "CI runs it, with its keys",
    ),
    (
        (
            "azure-pipelines*.y*ml .azure-pipelines/* bitbucket-pipelines.yml .drone.y*ml"
            " .woodpecker.y*ml .woodpecker/*"
        ),
        "CI runs it, with its keys",
    ),
    (
        (
            "appveyor.yml .appveyor.yml .cirrus.yml .semaphore/* cloudbuild.y*ml buildspec.y*ml"
            " .builds/* .build.yml wercker.yml"
        ),
        "CI runs it",
    ),
    (
        (
            ".readthedocs.y*ml netlify.toml vercel.json render.yaml fly.toml app.json Procfile"
            " Procfile.*"
        ),
        "a host runs it, or what it names",
    ),
    (
        (
            ".teamcity/* .tekton/* .zuul.y*ml zuul.y*ml .zuul.d/* zuul.d/* codefresh.y*ml"
            " .codefresh/* bitrise.y*ml codemagic.y*ml"
        ),
        "CI runs it, with its keys",
    ),
    (
        (
            "*.tf *.tf.json terragrunt.hcl Pulumi*.y*ml serverless.* samconfig.toml cdk.json"
            " wrangler.toml wrangler.json* firebase.json now.json"
        ),
        "it says what is run when the project is deployed",
    ),
    (
        (
            "railway.* nixpacks.toml heroku.yml app.yaml amplify.yml Chart.yaml helmfile.y*ml"
            " kustomization.y*ml garden.y*ml okteto.y*ml project.toml"
        ),
        "it says what is run when the project is deployed",
    ),
    ("renovate.json .renovaterc* .github/dependabot.yml", "a bot changes dependencies by it"),
    # containers and machines
    (
        "Dockerfile Dockerfile.* *.Dockerfile Containerfile Containerfile.* *.Containerfile",
        "docker builds, and runs, by it",
    ),
    ("docker-compose*.y*ml compose.y*ml compose.*.y*ml", "docker starts what it says"),
    (
        ".devcontainer/* .devcontainer.json devfile.yaml .gitpod.yml .gitpod.Dockerfile",
        "an editor builds and enters it",
    ),
    (
        "Tiltfile skaffold.yaml devspace.yaml ansible.cfg .ansible.cfg tilt_modules/*",
        "the tool runs it, or the plugins that it names",
    ),
    # editors, debuggers, assistants
    (".vscode/* *.code-workspace", "VS Code runs tasks and programs that it names"),
    (
        (
            ".idea/* .run/* .fleet/* .zed/* .nova/* *.sublime-project *.sublime-build .theia/*"
            " .vs/* *.vs.json .settings/* .project .externalToolBuilders/* *.launch .helix/*"
            " .vimspector.json coc-settings.json"
        ),
        "the editor runs what it names",
    ),
    (
        (
            ".vimrc .nvimrc .exrc .nvim.lua .lvimrc _vimrc .dir-locals.el .emacs .projectile"
            " .clangd .ycm_extra_conf.py .vim/* .nvim/* .local.vimrc .dir-locals-2.el Cask Eask"
            " Eldev .kakrc .luarc.json .luacheckrc .busted"
        ),
        "the editor runs it",
    ),
    (".gdbinit .lldbinit .lldbinit-*", "the debugger runs it at its start"),
    (
        (
            ".mcp.json mcp.json .claude/* .cursor/* .codex/* .gemini/* .aider.conf.yml .continue/*"
            " .windsurf/* .roo/* .kiro/* .amazonq/* .opencode/* opencode.json* .junie/* .trae/*"
            " .vscode-test.*"
        ),
        "a coding assistant starts what it names",
    ),
    (
        (
            "AGENTS.md CLAUDE.md GEMINI.md .cursorrules .windsurfrules .clinerules .roomodes"
            " .goosehints copilot-instructions.md"
        ),
        "a coding assistant takes it for what its user wants",
    ),
    (
        (
            ".rprofile rprofile.site .renviron .juliarc.jl .ghci .octaverc .duckdbrc .mongorc.js"
            " .mongoshrc.js .radare2rc .r2rc .perltidyrc .proverc .pythonrc .pystartup .sqliterc"
            " .psqlrc .my.cnf"
        ),
        "an interpreter or a client runs it at its start",
    ),
    (".ssh/* .netrc .curlrc .wgetrc", "programs that connect read it by themselves"),
    # environments, where they are part of the tree
    (
        (
            ".venv/bin/* venv/bin/* .venv/scripts/* venv/scripts/* .tox/*/bin/* .nox/*/bin/*"
            " pyvenv.cfg"
        ),
        "it is run in place of the program it is called after",
    ),
    ("site-packages/* dist-packages/*", "Python imports it in every program of this environment"),
    ("node_modules/.bin/*", "npm scripts run it in place of the program it is called after"),
)
