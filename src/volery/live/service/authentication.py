"""Authentication: bearer tokens, roles, and sessions of browsers (docs/decisions/0023).

FOLDER/tokens.json holds the SHA-256 of each token, never a token. That is enough, and no slow hash is needed: a token
has 256 random bits, which nobody guesses. The file makes the difference: while there is none the API asks nobody who
they are, and then it listens on this machine alone; once it is there only what it holds is let in, also when that is
nothing. A change counts from the next request on.

The tokens of tasks are made from a key (`TaskTokens`), and void as soon as their job has ended, or their user has no
token any more.

A session is a cookie that represents a token which was shown. It holds a random name, never the token. Scripts cannot
read it, and a browser sends it only with requests of pages of this very site. A session ends after half a day, with its
token, and with this program.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta
from starlette.requests import HTTPConnection
from starlette.responses import Response

from volery.core.errors import DamagedError, InputError
from volery.integrity import sealed, unsealed
from volery.live.clock import unix_now_us
from volery.live.files import opened_lock, replacing

FILE: Final = "tokens.json"
TASK_KEY: Final = "task-tokens.key"
"""Its holder can make the token of any task; it lies beside the tokens."""
PREFIX: Final = "volery"
TASK: Final = "task-"
"""The beginning of the middle part of a task's token; a number of a job follows."""
SECRET_BYTES: Final = 32
IDENTIFIER_BYTES: Final = 5
USER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
DAY_US: Final = 86_400_000_000
JOB_DIGITS_MAX: Final = 19
HEADER_MAX: Final = 200
"""Longest token, which has about 60 characters."""

log = logging.getLogger(__name__)

Role = Literal["user", "operator", "admin"]
ROLES: Final[tuple[Role, ...]] = ("user", "operator", "admin")
"""Roles, each with all rights of those before it: over own jobs; over all jobs and nodes; to submit for others."""


class AccessToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is stored."""

    id: Annotated[str, Meta(description="the middle part of the token, to name it by")]
    user: str
    role: Role
    hash: Annotated[str, Meta(description="SHA-256 of the whole token")]
    created_us: Annotated[int, Meta(description="microseconds since 1970-01-01 UTC")]
    expires_us: Annotated[int | None, Meta(description="from then on it is void; null: never")] = None

    def is_over(self, now_us: int) -> bool:
        return self.expires_us is not None and now_us >= self.expires_us


class _File(msgspec.Struct, frozen=True):
    tokens: tuple[AccessToken, ...] = ()


class Principal(msgspec.Struct, frozen=True):
    """The user who makes a request, and the role of the token.

    Args:
        user: the name; empty where there are no tokens.
        known: true if a token names the user.
    """

    user: str
    role: Role
    known: bool = True

    def may(self, role: Role) -> bool:
        """True if the principal has this role, or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)

    @property
    def sees(self) -> str | None:
        """The user whose jobs alone they see; None: everyone's."""
        return None if self.may("operator") else self.user


ANYBODY: Final = Principal("", "admin", known=False)
"""Whoever can reach an API that has no tokens."""


class TokenFile:
    """The tokens of a federation."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def add(self, user: str, role: Role, days: float | None = None) -> tuple[str, AccessToken]:
        """A new token, which nobody can read again, and what is kept of it.

        Args:
            days: days after which it is void; None: never.

        Raises:
            InputError: the name is none, or the file cannot be written.
        """
        if not USER.fullmatch(user):
            problem = "a user has 1 to 64 letters, digits and . _ @ + -, and begins with a letter or digit"
            raise InputError(f"user {user[:80]!r}", problem)

        now_us = unix_now_us()
        identifier = secrets.token_hex(IDENTIFIER_BYTES)
        token = f"{PREFIX}_{identifier}_{secrets.token_urlsafe(SECRET_BYTES)}"

        record = AccessToken(
            id=identifier,
            user=user,
            role=role,
            hash=_hash(token),
            created_us=now_us,
            expires_us=None if days is None else now_us + round(days * DAY_US),
        )

        with self._changing() as tokens:
            self._write((*tokens, record))

        return token, record

    def revoke(self, name: str) -> tuple[AccessToken, ...]:
        """Remove the token of that id, or all of that user, and return what was removed.

        Raises:
            InputError: there is none, or the file cannot be written.
        """
        self._named(name, self.read() or ())  # the lock of a folder without tokens is not made for a mistake
        with self._changing() as tokens:
            revoked_tokens = self._named(name, tokens)
            self._write(tuple(token for token in tokens if token not in revoked_tokens))
        return revoked_tokens

    def _named(self, name: str, tokens: tuple[AccessToken, ...]) -> tuple[AccessToken, ...]:
        """The token of an id, or all of a user."""
        matching_tokens = tuple(token for token in tokens if name in (token.id, token.user))
        if not matching_tokens:
            raise InputError(f"token {name[:80]!r}", "no token has that id or user; `volery token list` shows them")
        return matching_tokens

    def read(self) -> tuple[AccessToken, ...] | None:
        """All tokens; None where there is no file.

        Raises:
            InputError: it cannot be read.
        """
        try:
            return msgspec.json.decode(unsealed(self.path.read_bytes(), self.path), type=_File).tokens
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(str(self.path), f"the tokens cannot be read: {error.strerror}") from None
        except DamagedError as error:
            problem = f"{error.problem}; put back a copy, or remove that line if you know what has changed"
            raise DamagedError(str(self.path), problem) from None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InputError(str(self.path), f"holds no tokens: {error}") from None

    @contextmanager
    def _changing(self) -> Iterator[tuple[AccessToken, ...]]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = opened_lock(self.path.with_suffix(".lock"))
        except OSError as error:
            raise InputError(str(self.path), f"the tokens cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self.read() or ()
        finally:
            os.close(lock)

    def _write(self, tokens: tuple[AccessToken, ...]) -> None:
        """The whole file or, when this fails, the old one."""
        content = sealed(msgspec.json.format(msgspec.json.encode(_File(tokens)), indent=2) + b"\n")
        try:
            with replacing(self.path) as file:
                file.write(content)
        except OSError as error:
            raise InputError(str(self.path), f"the tokens cannot be written: {error.strerror}") from None


class TaskTokens:
    """The tokens of tasks: each may do what its user may, without any higher role, until its job has ended.

    A token is the number of the job and its keyed hash, so that none is stored.

    Args:
        folder: folder of the federation; the key is made there with the first token.
        user_of: the user of a job that has not ended; None for any other.
    """

    def __init__(self, folder: Path, user_of: Callable[[int], str | None]) -> None:
        self._path = folder / TASK_KEY
        self._user_of = user_of
        self._keyed_hash: hmac.HMAC | None = None

    def make(self, job: int, user: str) -> str:
        """The token of the tasks of a job.

        Raises:
            OSError: the key cannot be read or made.
        """
        return f"{PREFIX}_{TASK}{job}_{self._hash(job, user)}"

    def user(self, middle: str, last: str) -> str | None:
        """The user whose token has these parts; None: it is of no job that runs.

        Raises:
            OSError: the key cannot be read or made.
        """
        number = middle.removeprefix(TASK)
        user = self._user_of(int(number)) if number.isdecimal() and len(number) < JOB_DIGITS_MAX else None
        return user if user and hmac.compare_digest(last, self._hash(int(number), user)) else None

    def _hash(self, job: int, user: str) -> str:
        if self._keyed_hash is None:
            self._keyed_hash = hmac.new(self._stored_key(), digestmod=hashlib.sha256)
        digest = self._keyed_hash.copy()
        digest.update(f"{job} {user}".encode())
        return digest.hexdigest()

    def _stored_key(self) -> bytes:
        with suppress(FileNotFoundError):
            if len(key := self._path.read_bytes()) == SECRET_BYTES:
                return key
        with replacing(self._path) as file:
            file.write(key := secrets.token_bytes(SECRET_BYTES))
        return key


class Authenticator:
    """Finds the principal of a request; reads the file again when it has changed.

    Args:
        tokens: tokens of the federation; None: there are none.
        tasks: makes and checks the tokens of tasks; None: they have none.

    Raises:
        InputError: the file cannot be read, or is missing though its lock shows that there was one.
    """

    def __init__(self, tokens: TokenFile | None, tasks: TaskTokens | None = None) -> None:
        self._file = tokens
        self._tasks = tasks
        self._file_state: tuple[int, ...] = ()
        self._tokens: dict[str, AccessToken] | None = None
        self._look()
        if tokens is not None and self._tokens is None and (lock := tokens.path.with_suffix(".lock")).exists():
            problem = (
                f"is missing, though tokens were made here: anybody could come in. Restore it, or remove {lock.name}"
            )
            raise InputError(str(tokens.path), problem)

    @property
    def open(self) -> bool:
        """True while there are no tokens; it never becomes true again."""
        return self._tokens is None

    def task_token(self, job: int, user: str) -> str:
        """The token of the tasks of a job; empty where they get none, or their user had none at the last request."""
        if self._tasks is None or not self._admits(user):
            return ""
        try:
            return self._tasks.make(job, user)
        except OSError as error:
            log.warning("the tasks of job %d get no token: %s", job, error)
            return ""

    def _admits(self, user: str) -> bool:
        now_us = unix_now_us()
        return any(record.user == user and not record.is_over(now_us) for record in (self._tokens or {}).values())

    def who(self, authorization: str) -> Principal | None:
        """The principal behind an Authorization header; None where it proves nothing.

        Raises:
            InputError: the file of tokens cannot be read any more.
        """
        self._look()
        if self._tokens is None:
            return ANYBODY

        scheme, _, token = authorization.partition(" ")
        parts = token.split("_", 2)
        if scheme.lower() != "bearer" or len(token) > HEADER_MAX or len(parts) != 3 or not token.isascii():
            return None
        if parts[1].startswith(TASK):
            user = self._tasks.user(parts[1], parts[2]) if self._tasks is not None else None
            return Principal(user, "user") if user is not None and self._admits(user) else None

        record = self._tokens.get(parts[1])
        if record is None or not hmac.compare_digest(record.hash, _hash(token)):
            return None
        if record.is_over(unix_now_us()):
            return None

        return Principal(record.user, record.role)

    def _look(self) -> None:
        if self._file is None:
            return

        try:
            file_status = self._file.path.stat()
            state: tuple[int, ...] = (file_status.st_ino, file_status.st_mtime_ns, file_status.st_size)
        except FileNotFoundError:
            state = ()

        if state == self._file_state:
            return

        records = self._file.read()
        if records is not None:
            self._tokens = {token.id: token for token in records}
        elif self._tokens is not None:
            self._tokens = {}  # to take the file away lets nobody in

        self._file_state = state


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


COOKIE: Final = "volery"
SECURE_COOKIE: Final = "__Host-volery"
"""The prefix has browsers take the cookie only over TLS, and from the host itself."""
SESSION_S: Final = 12 * 3600
SESSIONS_MAX: Final = 10_000


class _Session(msgspec.Struct, frozen=True):
    authorization: str
    until_s: float


class Sessions:
    """The sessions of browsers."""

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
        self._sessions = {name: item for name, item in self._sessions.items() if item.until_s > now_s}

        # A client that logs in without end pushes out the oldest sessions, and does not fill the memory.
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]

        name = secrets.token_urlsafe(32)
        self._sessions[name] = _Session(authorization, now_s + SESSION_S)
        self._set(request, answer, name, SESSION_S)
        return True

    def end(self, request: HTTPConnection, answer: Response) -> None:
        self._sessions.pop(request.cookies.get(_name(request), ""), None)
        self._set(request, answer, "", 0)

    def _session(self, request: HTTPConnection) -> _Session | None:
        session = self._sessions.get(request.cookies.get(_name(request), ""))
        return session if session is not None and self._clock_s() < session.until_s else None

    def _set(self, request: HTTPConnection, answer: Response, value: str, age_s: int) -> None:
        secure = _is_secure(request)
        answer.set_cookie(
            _name(request), value, max_age=age_s, path="/", secure=secure, httponly=True, samesite="strict"
        )


def is_foreign(request: HTTPConnection) -> bool:
    """True if a page of another origin made a browser send this; other ports of the same host count as others."""
    origin = request.headers.get("origin")
    if origin is None or origin == "null":
        # A form that was sent without scripts, from a page with a no-referrer policy, has the origin null.
        default_site = "same-origin" if origin is None else "cross-site"
        return request.headers.get("sec-fetch-site", default_site) not in ("same-origin", "none")
    return urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower()


def names_origin(request: HTTPConnection) -> bool:
    """True if a browser names the origin of a request; all recent browsers do."""
    return "origin" in request.headers or "sec-fetch-site" in request.headers


def _is_secure(request: HTTPConnection) -> bool:
    return request.url.scheme == "https"


def _name(request: HTTPConnection) -> str:
    return SECURE_COOKIE if _is_secure(request) else COOKIE
