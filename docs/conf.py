"""How Sphinx makes a site of this folder: `make docs`."""

import sys
from pathlib import Path

from sphinx.application import Sphinx

import volery

sys.path.insert(0, str(Path(__file__).parents[1]))
from docs.pages import write_pages

project = "Volery"
version = release = volery.__version__
language = "en"
extensions = ["myst_parser"]
exclude_patterns = ["README.md"]  # index.md includes it
html_theme = "furo"
html_title = f"Volery {release}"
html_show_copyright = False
myst_heading_anchors = 4


def setup(app: Sphinx) -> None:
    """Pages of what is declared in code are written before the sources are read."""
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir, "reference", "generated")))
