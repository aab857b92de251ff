"""Secrets that others may read are refused, and so are certificates without their keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.live.config.tls import BrokerAccess, ServerTls, demand_private, server_files, trusting


def secret(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "login.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_secret_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(InputError, match="is open to others; chmod 600"):
        demand_private(secret(tmp_path, "", mode))
    with pytest.raises(InputError, match="cannot be read: No such file"):
        demand_private(tmp_path / "nothing")


def test_a_login_is_given_to_the_broker_as_far_as_it_is_named(tmp_path: Path) -> None:
    login = secret(tmp_path, 'user = "u"\npassword = "p"\n')
    assert BrokerAccess("nats://here", login=login).options("a") == {"login": {"user": "u", "pass": "p"}}
    assert BrokerAccess("nats://here").options("a") == {}


def test_an_unknown_key_of_a_login_is_named_with_its_file(tmp_path: Path) -> None:
    login = secret(tmp_path, 'pasword = "p"\n')
    with pytest.raises(InputError, match=r"login\.toml\.pasword"):
        BrokerAccess("nats://here", login=login).options("a")


def test_what_is_no_certificate_is_refused(tmp_path: Path) -> None:
    path = secret(tmp_path, "no certificate")
    with pytest.raises(InputError, match="is no certificate of an authority"):
        trusting(path)
    with pytest.raises(InputError, match="certificate and key cannot be used"):
        server_files(ServerTls(certificate=path.name, key=path.name), tmp_path)
