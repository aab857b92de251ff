"""The explorable part of a report: what a page embeds, and the scripts that draw it and answer to the reader."""
