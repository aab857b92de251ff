"""Reports: tables for the terminal, pictures, and a self-contained HTML page."""

from volery.look.text import duration
from volery.report.html import write_report
from volery.report.tables import comparison, plain, print_comparison

__all__ = ["comparison", "duration", "plain", "print_comparison", "write_report"]
