"""Sessions of browsers: a cookie represents a token that was shown, see docs/decisions/0023.

The cookie holds a random name of the session, never the token. Scripts cannot read it, and a browser sends it only
with requests of pages of this very site. A session ends after half a day, with its token, and with this program.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import msgspec
from starlette.requests import HTTPConnection
from starlette.responses import Response

from volery.live.service.tokens import Authenticator, Principal

COOKIE: Final = "volery"
SECURE_COOKIE: Final = "__Host-volery"
"""A browser takes a name like this only over TLS, from the host itself."""
SESSION_S: Final = 12 * 3600
SESSIONS_MAX: Final = 10_000


class _Session(msgspec.Struct, frozen=True):
    authorization: str
    until_s: float


class Sessions:
    """The sessions of browsers.

    Args:
        gate: finds the principal of a request.
        clock_s: seconds that never go back.
    """

    def __init__(self, gate: Authenticator, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._gate = gate
        self._clock_s = clock_s
        self._sessions: dict[str, _Session] = {}

    def who(self, request: HTTPConnection) -> Principal | None:
        """The principal of a request, by its token or its session; None where neither is valid.

        Raises:
            InputError: the file of tokens cannot be read any more.
        """
        authorization = request.headers.get("authorization", "")
        if not authorization and (session := self._session(request)) is not None:
            authorization = session.authorization
        return self._gate.who(authorization)

    def ended(self, request: HTTPConnection) -> bool:
        """True if a request without a valid token comes from a browser that had a session."""
        return _name(request) in request.cookies

    def begin(self, request: HTTPConnection, token: str, answer: Response) -> bool:
        """Set the cookie of a new session on an answer; False where the token proves nothing."""
        authorization = f"Bearer {token}"
        if self._gate.who(authorization) is None:
            return False
        now_s = self._clock_s()
        self._sessions = {name: one for name, one in self._sessions.items() if one.until_s > now_s}
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        name = secrets.token_urlsafe(32)
        self._sessions[name] = _Session(authorization, now_s + SESSION_S)
        self._set(request, answer, name, SESSION_S)
        return True

    def end(self, request: HTTPConnection, answer: Response) -> None:
        """Forget a session, and have the browser forget it."""
        self._sessions.pop(request.cookies.get(_name(request), ""), None)
        self._set(request, answer, "", 0)

    def _session(self, request: HTTPConnection) -> _Session | None:
        found = self._sessions.get(request.cookies.get(_name(request), ""))
        return found if found is not None and self._clock_s() < found.until_s else None

    def _set(self, request: HTTPConnection, answer: Response, value: str, age_s: int) -> None:
        secure = _is_secure(request)
        answer.set_cookie(
            _name(request), value, max_age=age_s, path="/", secure=secure, httponly=True, samesite="strict"
        )


def is_foreign(request: HTTPConnection) -> bool:
    """True if a page of another origin made a browser send this; other ports of the same host count as others."""
    origin = request.headers.get("origin")
    if origin is None or origin == "null":
        # Of a form that was sent without scripts, from a page that names itself to nobody, the origin is null.
        unsaid = "same-origin" if origin is None else "cross-site"
        return request.headers.get("sec-fetch-site", unsaid) not in ("same-origin", "none")
    return urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower()


def names_origin(request: HTTPConnection) -> bool:
    """True if a browser names the origin of a request; all recent browsers do."""
    return "origin" in request.headers or "sec-fetch-site" in request.headers


def _is_secure(request: HTTPConnection) -> bool:
    return request.url.scheme == "https"


def _name(request: HTTPConnection) -> str:
    return SECURE_COOKIE if _is_secure(request) else COOKIE
