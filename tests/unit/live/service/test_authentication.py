"""Tokens: only who has one comes in, nobody can read them; a session is a cookie that ends with its token."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from http.cookies import SimpleCookie
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from volery.core.errors import InputError
from volery.live.service import authentication
from volery.live.service.authentication import (
    ANYBODY,
    COOKIE,
    SECURE_COOKIE,
    SESSION_S,
    Authenticator,
    Principal,
    Sessions,
    TokenFile,
    is_foreign,
    names_origin,
)


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


class Clock:
    """Seconds, as they are set."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def request(headers: Mapping[str, str] = {}, scheme: str = "http") -> Request:
    listed = [(name.encode(), value.encode()) for name, value in {"host": "api:8642", **headers}.items()]
    return Request({"type": "http", "scheme": scheme, "path": "/", "server": ("api", 8642), "headers": listed})


def begun(held: Sessions, token: str, scheme: str = "http") -> SimpleCookie:
    answer = Response()
    assert held.begin(request(scheme=scheme), token, answer)
    return SimpleCookie(answer.headers["set-cookie"])


def with_cookie(cookie: SimpleCookie, name: str = COOKIE) -> Request:
    return request({"cookie": f"{name}={cookie[name].value}"})


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path)


def test_a_session_represents_its_token_until_it_ends(tokens: TokenFile) -> None:
    token, _ = tokens.add("ann", "user")
    clock = Clock()
    held = Sessions(Authenticator(tokens), clock)
    cookie = begun(held, token)
    assert token not in cookie[COOKIE].value
    assert (cookie[COOKIE]["httponly"], cookie[COOKIE]["samesite"]) == (True, "strict")
    principal = held.who(with_cookie(cookie))
    assert principal is not None
    assert (principal.user, principal.role) == ("ann", "user")
    assert held.who(request()) is None
    clock.now_s = SESSION_S
    assert held.who(with_cookie(cookie)) is None
    assert held.ended(with_cookie(cookie))


def test_a_token_that_is_none_begins_no_session(tokens: TokenFile) -> None:
    tokens.add("ann", "user")
    answer = Response()
    assert not Sessions(Authenticator(tokens)).begin(request(), "wrong", answer)
    assert "set-cookie" not in answer.headers


def test_a_session_that_is_ended_is_gone_here_and_in_the_browser(tokens: TokenFile) -> None:
    token, _ = tokens.add("ann", "user")
    held = Sessions(Authenticator(tokens))
    cookie, answer = begun(held, token), Response()
    held.end(with_cookie(cookie), answer)
    assert held.who(with_cookie(cookie)) is None
    assert SimpleCookie(answer.headers["set-cookie"])[COOKIE]["max-age"] == "0"


def test_the_oldest_session_goes_where_there_are_too_many(tokens: TokenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "SESSIONS_MAX", 2)
    token, _ = tokens.add("ann", "user")
    held = Sessions(Authenticator(tokens))
    cookies = [begun(held, token) for _ in range(3)]
    assert [held.who(with_cookie(cookie)) is not None for cookie in cookies] == [False, True, True]


def test_over_tls_the_cookie_is_bound_to_the_host(tokens: TokenFile) -> None:
    token, _ = tokens.add("ann", "user")
    cookie = begun(Sessions(Authenticator(tokens)), token, "https")
    assert cookie[SECURE_COOKIE]["secure"] is True


@pytest.mark.parametrize(
    ("headers", "foreign", "says"),
    [
        ({}, False, False),
        ({"origin": "http://api:8642"}, False, True),
        ({"origin": "http://other:8642"}, True, True),
        ({"origin": "null"}, True, True),
        ({"origin": "null", "sec-fetch-site": "same-origin"}, False, True),
        ({"sec-fetch-site": "cross-site"}, True, True),
        ({"sec-fetch-site": "none"}, False, True),
    ],
)
def test_a_request_that_another_site_has_caused_is_foreign(headers: dict[str, str], foreign: bool, says: bool) -> None:
    assert (is_foreign(request(headers)), names_origin(request(headers))) == (foreign, says)
