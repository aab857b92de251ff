"""TLS: certificates of the API and of the hosts on the broker, as the federation's file names them."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from volery.core.errors import InputError
from volery.live.config.tables import misfit, read_table

_PathName = Annotated[str, Meta(min_length=1, max_length=4096)]


class ServerTls(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The API's certificate; paths are relative to the federation's file."""

    certificate: Annotated[_PathName, Meta(description="PEM, with the chain")]
    key: Annotated[_PathName, Meta(description="PEM, readable by its owner alone")]


class BrokerTls(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Certificates between a host and the broker; `{host}` in a path is replaced by the host's name."""

    ca: Annotated[_PathName, Meta(description="PEM: who signs the broker's certificate")]
    certificate: Annotated[str, Meta(description="PEM: this host's own; empty: the broker does not ask for one")] = ""
    key: Annotated[str, Meta(description="PEM: of that certificate")] = ""


class BrokerLogin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Login at the broker: user and password, or a token."""

    user: str = ""
    password: str = ""
    token: str = ""


class BrokerAccess(msgspec.Struct, frozen=True):
    """Address and credentials of the broker.

    Args:
        tls: certificates; None: none.
        login: a TOML file with user and password, or a token; None: neither.
        base: folder that paths are relative to.
    """

    url: str
    tls: BrokerTls | None = None
    login: Path | None = None
    base: Path = Path()

    def options(self, host: str) -> dict[str, Any]:
        """Arguments of `NatsClient` besides the URL, for one host.

        Raises:
            InputError: a file cannot be used.
        """
        options: dict[str, Any] = {}
        if self.tls is not None:
            options["tls"] = client_context(self.tls, self.base, host)

        if self.login is not None:
            demand_private(self.login)
            try:
                login = msgspec.convert(read_table(self.login), BrokerLogin)
            except msgspec.ValidationError as error:
                raise misfit(error, str(self.login), BrokerLogin) from None

            fields = {"user": login.user, "pass": login.password, "auth_token": login.token}
            options["login"] = {name: value for name, value in fields.items() if value}

        return options


def server_files(tls: ServerTls, base: Path) -> dict[str, str]:
    """The files of a server's certificate, once they have been found to fit together.

    Raises:
        InputError: one cannot be used.
    """
    certificate = base / tls.certificate
    key = base / tls.key
    _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)
    return {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}


def client_context(tls: BrokerTls, base: Path, host: str) -> ssl.SSLContext:
    """The TLS context of a host towards the broker.

    Raises:
        InputError: a file cannot be used.
    """
    context = trusting(base / tls.ca)
    # Half of a pair is a mistake; without it the broker would refuse this host later, for no visible reason.
    if bool(tls.certificate) != bool(tls.key):
        raise InputError("broker_tls", "certificate and key go together; give both or neither")
    if tls.certificate:
        _load(context, *(base / name.replace("{host}", host) for name in (tls.certificate, tls.key)))
    return context


def trusting(ca: Path) -> ssl.SSLContext:
    """A client's context that trusts one authority and no other.

    Raises:
        InputError: its certificate cannot be used.
    """
    try:
        return ssl.create_default_context(cafile=str(ca))
    except (OSError, ssl.SSLError) as error:
        raise InputError(str(ca), f"is no certificate of an authority: {_reason(error)}") from None


def _load(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    demand_private(key)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise InputError(str(certificate), f"certificate and key cannot be used: {_reason(error)}") from None


def demand_private(path: Path) -> None:
    """Refuse a secret's file that others can read.

    Raises:
        InputError: it is, or it is not there.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(str(path), f"holds a secret and is open to others; chmod 600 {path}")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
