"""The file of a user's client: the address of a federation, and where the user's token is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from volery.core.errors import InputError
from volery.live.config.tables import misfit, read_table
from volery.live.config.tls import demand_private

NAME: Final = "client.toml"


class ClientFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a client that neither an option nor a variable of the environment states."""

    api: Annotated[str, Meta(description="address of the API, as HOST:PORT or a URL; VOLERY_API is above it")] = ""
    token_file: Annotated[
        str,
        Meta(description="file of the user's token, which goes to this `api` alone; VOLERY_TOKEN is above it"),
    ] = ""
    ca: Annotated[str, Meta(description="authority of the API's certificate, a PEM file; VOLERY_CA is above it")] = ""


def client_path() -> Path | None:
    """The path of the file, below XDG_CONFIG_HOME or ~/.config; None where this account has no home."""
    # As the XDG Base Directory Specification has it: a relative path there is none.
    folder = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    if folder.is_absolute():
        return folder / "volery" / NAME
    try:
        return Path.home() / ".config" / "volery" / NAME
    except RuntimeError:
        return None


def client_file() -> ClientFile:
    """The content of the file, with whole paths; as if it were empty, where there is none.

    Raises:
        InputError: naming the file with the line or key that is wrong.
    """
    path = client_path()
    if path is None or not path.is_file():
        return ClientFile()

    table = read_table(path)
    try:
        content = msgspec.convert(table, ClientFile)
    except msgspec.ValidationError as error:
        raise misfit(error, str(path), ClientFile, table) from None
    paths = {key: table[key] for key in ("token_file", "ca") if table.get(key)}
    whole_paths = dict[str, str]()
    for key, name in paths.items():
        home_path = os.path.expanduser(name)  # noqa: PTH111 - no error: a path of no account is one that is not there
        whole_paths[key] = str(path.parent / home_path)
    return msgspec.structs.replace(content, **whole_paths)


def stored_token(content: ClientFile) -> str:
    """The token in the file that `token_file` names; empty where it names none.

    Raises:
        InputError: it cannot be read, or other accounts can read it, too.
    """
    if not content.token_file:
        return ""
    path = Path(content.token_file)
    demand_private(path)
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"cannot be read: {getattr(error, 'strerror', '') or 'it is no text'}") from None
