"""Tokens: only who has one comes in, nobody can read them, and a change counts at once."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.live.service.tokens import ANYBODY, Authenticator, Principal, TokenFile


def header(token: str) -> str:
    return f"Bearer {token}"


def test_a_token_names_its_user_and_role_and_is_not_kept(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path)
    token, kept = tokens.add("ada", "operator")
    assert Authenticator(tokens).who(header(token)) == Principal("ada", "operator")
    assert Authenticator(tokens).who(f"bearer {token}") == Principal("ada", "operator")
    written = tokens.path.read_text()
    assert token not in written
    assert token.rpartition("_")[2] not in written
    assert json.loads(written)["tokens"][0]["id"] == kept.id
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600


WRONG = ("", "Bearer", "Bearer ", "Basic {}", "{}", "Bearer {}x", "Bearer  {}", "Bearer " + "x" * 300, "Bearer a_b_é")


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_token_proves_nothing(wrong: str, tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path)
    token, _ = tokens.add("ada", "user")
    assert Authenticator(tokens).who(wrong.replace("{}", token)) is None


def test_another_secret_under_a_known_id_proves_nothing(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path)
    _, kept = tokens.add("ada", "user")
    second, _ = tokens.add("bob", "admin")
    assert Authenticator(tokens).who(header(f"volery_{kept.id}_{second.split('_', 2)[2]}")) is None


def test_without_a_file_nobody_is_asked_and_with_an_empty_one_nobody_is_let_in(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path)
    gate = Authenticator(tokens)
    assert gate.who("") == ANYBODY
    token, _ = tokens.add("ada", "user")
    assert gate.who("") is None
    assert gate.who(header(token)) == Principal("ada", "user")
    tokens.revoke("ada")
    assert gate.who(header(token)) is None
    tokens.path.unlink()
    assert gate.who("") is None, "taking the file away must not open a door that was closed"


def test_a_revoked_or_expired_token_is_void_and_others_stay(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path)
    gate = Authenticator(tokens)
    first, kept = tokens.add("ada", "user")
    second, _ = tokens.add("ada", "user")
    late, _ = tokens.add("bob", "user", days=0)
    assert gate.who(header(late)) is None
    assert tokens.revoke(kept.id) == (kept,)
    assert gate.who(header(first)) is None
    assert gate.who(header(second)) == Principal("ada", "user")
    with pytest.raises(InputError, match="no token has that id"):
        tokens.revoke(kept.id)


@pytest.mark.parametrize("name", ["", "a b", "../x", "a\n", "-a", "a" * 65, "ä"])
def test_names_that_are_none_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a user has"):
        TokenFile(tmp_path).add(name, "user")
    assert TokenFile(tmp_path).read() is None


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    TokenFile(tmp_path).path.write_text("[]")
    with pytest.raises(InputError, match="holds no tokens"):
        Authenticator(TokenFile(tmp_path))


def test_roles_contain_each_other() -> None:
    user, operator, admin = (Principal("ada", role) for role in ("user", "operator", "admin"))
    assert (user.may("operator"), operator.may("user"), admin.may("operator")) == (False, True, True)
    assert (user.sees, operator.sees, ANYBODY.sees) == ("ada", None, None)
