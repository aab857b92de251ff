"""A session is a cookie with a random name; it ends with its token, after half a day, or when it is ended."""

from __future__ import annotations

from collections.abc import Mapping
from http.cookies import SimpleCookie
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from volery.live.service import sessions
from volery.live.service.sessions import COOKIE, SECURE_COOKIE, SESSION_S, Sessions, is_foreign, names_origin
from volery.live.service.tokens import Authenticator, TokenFile


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
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 2)
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
