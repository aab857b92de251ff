"""How Sphinx makes a site of this folder: `make docs`."""

import volery

project = "Volery"
version = release = volery.__version__
language = "en"
extensions = ["myst_parser"]
exclude_patterns = ["README.md"]  # index.md includes it
html_theme = "furo"
html_title = f"Volery {release}"
html_show_copyright = False
myst_heading_anchors = 4
