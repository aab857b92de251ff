"""A self-made authority and certificates of it, by openssl as in docs/how-to/secure-a-federation.md."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Signs certificates in a folder, NAME.crt and NAME.key; its own are ca.crt and ca.key."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.name = name
        _openssl(
            "req",
            "-x509",
            *_KEY,
            "-days",
            "1",
            "-subj",
            f"/CN={name}",
            "-out",
            self.of(f"{name}.crt"),
            "-keyout",
            self.of(f"{name}.key"),
        )

    def of(self, name: str) -> str:
        return str(self.folder / name)

    def sign(self, name: str, *addresses: str) -> None:
        """A certificate for a host of this name on this machine, which has further addresses."""
        extensions = self.folder / f"{name}.ext"
        others = "".join(f",IP:{address}" for address in addresses)
        extensions.write_text(f"subjectAltName=DNS:localhost,IP:127.0.0.1,DNS:{name}{others}\n")
        _openssl(
            "req", *_KEY, "-subj", f"/CN={name}", "-out", self.of(f"{name}.csr"), "-keyout", self.of(f"{name}.key")
        )
        _openssl(
            "x509",
            "-req",
            "-days",
            "1",
            "-in",
            self.of(f"{name}.csr"),
            "-CA",
            self.of(f"{self.name}.crt"),
            "-CAkey",
            self.of(f"{self.name}.key"),
            "-CAcreateserial",
            "-extfile",
            str(extensions),
            "-out",
            self.of(f"{name}.crt"),
        )


def _openssl(*words: str) -> None:
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    subprocess.run([program, *words], check=True, capture_output=True)
