# SPDX-License-Identifier: MIT
"""
Secure Boot: only signed modules load, and only enrolled keys count.

DKMS signs with the key that its framework.conf names. Without one it uses shim-signed's key on
Ubuntu, and its own elsewhere. mokutil tells which of them the machine's owner has enrolled.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import ssl
from collections.abc import Callable
from pathlib import Path

from ..errors import InstallError

#: Certificates that no configuration names: Ubuntu's, and DKMS's own.
CERTIFICATES = ("var/lib/shim-signed/mok/MOK.der", "var/lib/dkms/mok.pub")
_CONFIGURED = ("etc/dkms/framework.conf", "etc/dkms/framework.conf.d/*.conf")
_VARIABLES = "sys/firmware/efi/efivars"
_ENROLLED = "is already enrolled"
_FINGERPRINT = re.compile(r"SHA1 Fingerprint:\s*([0-9a-f:]+)", re.IGNORECASE)


def is_on(prefix: Path) -> bool:
    """Whether the firmware checks signatures, and shim has not been told to leave that."""
    return _is_set(prefix, "SecureBoot") and not _is_set(prefix, "MokSBStateRT")


def _is_set(prefix: Path, name: str) -> bool:
    for path in (prefix / _VARIABLES).glob(f"{name}-*"):
        try:
            # Four bytes of attributes, then the value.
            return path.read_bytes()[4:5] == b"\1"
        except OSError:
            return False
    return False


def certificates(prefix: Path, release: str) -> list[Path]:
    """Return the certificates of DKMS's signatures that are there, the configured one first."""
    paths: list[str] = []
    for pattern in _CONFIGURED:
        for file in sorted(prefix.glob(pattern)):
            for line in file.read_text(errors="replace").splitlines():
                key, _, value = line.strip().partition("=")
                if key == "mok_certificate":
                    paths.insert(0, _expanded(value, release))
    found = [prefix / path.lstrip("/") for path in (*paths, *CERTIFICATES)]
    return [path for path in dict.fromkeys(found) if path.is_file()]


def _expanded(value: str, release: str) -> str:
    try:
        words = shlex.split(value, comments=True)
    except ValueError:
        words = []
    return re.sub(r"\$(\{kernelver\}|kernelver\b)", release, words[0]) if words else ""


def enrolled(prefix: Path, release: str, run: Callable[[list[str]], str]) -> Path | None:
    """
    Return the first of :func:`certificates` that mokutil says is enrolled, None if none is.

    Raises:
        InstallError: mokutil is missing.
    """
    found = certificates(prefix, release)
    for path in found:
        if _ENROLLED in _said(["mokutil", "--test-key", str(path)], run):
            return path
    # --test-key wants DER, which a certificate need not be.
    listed = _FINGERPRINT.findall(_said(["mokutil", "--list-enrolled"], run)) if found else []
    known = {fingerprint.replace(":", "").lower() for fingerprint in listed}
    return next((path for path in found if _fingerprint(path) in known), None)


def _said(command: list[str], run: Callable[[list[str]], str]) -> str:
    try:
        return run(command)
    except InstallError as error:
        if "is missing" in str(error):
            raise
        # mokutil says so with either exit status, depending on its version.
        return str(error)


def _fingerprint(path: Path) -> str:
    try:
        content = path.read_bytes()
        if content.startswith(b"-----BEGIN"):
            content = ssl.PEM_cert_to_DER_cert(content.decode("ascii").strip())
    except (OSError, ValueError):
        return ""
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


def remedy(prefix: Path, release: str) -> str:
    """Return how to enrol the key of DKMS's signatures."""
    found = certificates(prefix, release)
    if found:
        path = f"/{found[0].relative_to(prefix)}"
        return f"run `mokutil --import {path}`, reboot and enrol it there"
    path = f"/{CERTIFICATES[-1]}"
    return f"run `dkms generate_mok`, then `mokutil --import {path}`, reboot and enrol it there"
