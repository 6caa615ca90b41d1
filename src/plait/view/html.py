"""The page as one document: its script and its style inside, and a policy that lets nothing else
run.
"""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from pathlib import Path

import msgspec

from plait.errors import PageMissing
from plait.view.built import BUILT

_SCRIPT = re.compile(r'<script[^>]*\ssrc="/assets/([^"/]+\.js)"')
_STYLE = re.compile(r'<link[^>]*\shref="/assets/([^"/]+\.css)"')
_ICON = re.compile(r'<link rel="icon"[^>]*\shref="/([^"]+\.svg)"')


class BuiltPage(msgspec.Struct, frozen=True):
    """The script, the style and the icon of the page, as they were built."""

    script: str
    style: str
    icon: bytes

    @classmethod
    def read(cls, folder: Path = BUILT) -> BuiltPage:
        """Read the page that was built into the package."""
        try:
            index = (folder / "index.html").read_text("utf-8")
            assets = folder / "assets"
            scripts = [(assets / name).read_text("utf-8") for name in _SCRIPT.findall(index)]
            styles = [(assets / name).read_text("utf-8") for name in _STYLE.findall(index)]
            icons = [(folder / name).read_bytes() for name in _ICON.findall(index)]
            built = [path for path in assets.iterdir() if path.suffix == ".js"]
        except OSError as error:
            raise PageMissing(str(folder)) from error
        if len(scripts) != 1 or len(built) != 1:  # a file can load no second one
            raise PageMissing(str(folder))
        # in a script of HTML only this text would end it
        script = scripts[0].replace("</script", "<\\/script").replace("<!--", "<\\!--")
        return cls(script, "\n".join(styles), icons[0] if icons else b"")

    def document(self, title: str, about: str, elements: list[str]) -> str:
        """Return the document with these pieces of data."""
        policy = (
            f"default-src 'none'; script-src {_hash(self.script)}; style-src {_hash(self.style)};"
            " img-src data: blob:; base-uri 'none'; form-action 'none'"
        )
        icon = f"data:image/svg+xml;base64,{b64encode(self.icon).decode()}"
        return "\n".join(
            [
                "<!doctype html>",
                '<html lang="en">',
                "<head>",
                '<meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                '<meta name="color-scheme" content="light dark">',
                '<meta name="referrer" content="no-referrer">',
                f"<title>{escape(title)}</title>",
                f'<link rel="icon" href="{icon}">',
                f"<style>{self.style}</style>",
                "</head>",
                "<body>",
                '<div id="page"></div>',
                f"<noscript>{escape(about)} It is shown by a script: allow scripts.</noscript>",
                *elements,
                f'<script type="module">{self.script}</script>',
                "</body>",
                "</html>",
                "",
            ]
        )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
