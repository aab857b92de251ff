"""The file of a user's client: what is above it, and to whom its token goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.live.api_calls import CA_VARIABLE, DEFAULT_API, Credentials, api_address
from volery.live.command import API_VARIABLE, TOKEN_VARIABLE
from volery.live.config.client_file import client_file, client_path

HERE = "http://127.0.0.1:7077"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of the file, with a token beside it."""
    for name in (API_VARIABLE, TOKEN_VARIABLE, CA_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "volery"
    folder.mkdir()
    token = folder / "token"
    token.write_text("volery_stored\n")
    token.chmod(0o600)
    return folder


def token_of(credentials: Credentials) -> str:
    return str(credentials.options["headers"].get("authorization", "")).removeprefix("Bearer ")


def test_options_are_above_the_environment_and_that_is_above_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "client.toml").write_text(f'api = "{HERE}"\ntoken_file = "token"')
    stored = Credentials(None, None)
    assert (stored.api, token_of(stored)) == (HERE, "volery_stored")
    monkeypatch.setenv(TOKEN_VARIABLE, "volery_env")
    assert token_of(Credentials(None, None)) == "volery_env"
    assert token_of(Credentials(None, "volery_option")) == "volery_option"
    monkeypatch.setenv(API_VARIABLE, "localhost:1")
    assert api_address(None) == "http://localhost:1"
    assert api_address("localhost:2") == "http://localhost:2"


def test_the_token_of_one_federation_goes_to_no_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "client.toml").write_text(f'api = "{HERE}/"\ntoken_file = "token"')
    assert token_of(Credentials("127.0.0.1:7077", None)) == "volery_stored", "the same address, written otherwise"
    assert not Credentials("127.0.0.1:7078", None).named
    monkeypatch.setenv(API_VARIABLE, "127.0.0.1:7078")
    assert not Credentials(None, None).named
    (folder / "client.toml").write_text('token_file = "token"')
    assert not Credentials(None, None).named, "without an address it is this machine's default"
    monkeypatch.delenv(API_VARIABLE)
    assert token_of(Credentials(None, None)) == "volery_stored"


def test_without_a_file_all_is_as_before(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert (api_address(None), Credentials(None, None).named) == (DEFAULT_API, False)
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert client_path() == tmp_path / ".config" / "volery" / "client.toml"


def test_paths_are_relative_to_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    (folder / "client.toml").write_text('token_file = "../t"\nca = "~/ca.crt"')
    assert (client_file().token_file, client_file().ca) == (f"{folder}/../t", "/home/ann/ca.crt")
    (folder / "client.toml").write_text('api = "https://there:1"\nca = "none.crt"')
    with pytest.raises(InputError, match=r"none\.crt: is no certificate of an authority"):
        Credentials(None, None)


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("api = ", "client.toml:1", "is not TOML"),
        ("token_fil = 'x'", "client.toml.token_fil", "unknown key; did you mean 'token_file'?"),
        ("api = 3", "client.toml.api", "expected str, got int"),
        ("api = 'there'", "client.toml.api", "is no address of an API; write it as http://127"),
        ("token_file = 'none'", "none", "cannot be read: No such file or directory"),
        ("token_file = 'open'", "open", "holds a secret and is open to others; chmod 600"),
        ("token_file = 'odd'", "odd", "is no token; `volery token add` gives one"),
    ],
)
def test_what_is_wrong_is_named_by_its_file_and_key(folder: Path, text: str, place: str, problem: str) -> None:
    (folder / "client.toml").write_text(text)
    (folder / "open").write_text("volery_x")
    (folder / "odd").write_text("a\nb")
    (folder / "odd").chmod(0o600)
    with pytest.raises(InputError) as raised:
        Credentials(None, None)
    assert raised.value.place.endswith(place)
    assert problem in raised.value.problem
