"""Reports: tables for the terminal, pictures, and a self-contained HTML page."""
