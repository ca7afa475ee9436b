# SPDX-License-Identifier: MIT
"""Which certificate counts under Secure Boot: the one that mokutil says is enrolled."""

import base64
import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pycgpu.errors import InstallError
from pycgpu.install import doctor, installation, secure_boot
from pycgpu.install.host import Host
from tests.host import filehost

RELEASE = filehost.RELEASE
ON = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
#: shim's own variable; 1: the owner has told it to validate nothing.
OFF_IN_SHIM = "sys/firmware/efi/efivars/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"
SHIM, DKMS = "var/lib/shim-signed/mok/MOK.der", "var/lib/dkms/mok.pub"
LISTED = "[key 1]\nSHA1 Fingerprint: {fingerprint}\nCertificate:\n    Data:\n"


def write(prefix: Path, path: str, content: bytes | str) -> Path:
    target = prefix / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content if isinstance(content, bytes) else content.encode())
    return target


@pytest.fixture
def host(tmp_path: Path) -> Host:
    prefix = tmp_path / "host"
    prefix.mkdir()
    host = filehost.make(prefix)
    write(prefix, ON, b"\6\0\0\0\1")
    return host


@pytest.fixture
def mokutil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``mokutil(path)``: that certificate is enrolled; ``listed``: what --list-enrolled prints."""

    def make(enrolled: Path | None = None, listed: str = "") -> None:
        program = write(
            tmp_path,
            "bin/mokutil",
            '#!/bin/sh\n[ "$1" != --list-enrolled ] || { cat <<"END"\n'
            f"{listed}END\nexit; }}\n"
            f'if [ "$2" = "{enrolled}" ]; then echo "$2 is already enrolled"; exit 1; fi\n'
            'echo "$2 is not enrolled"\n',
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")

    return make


def refused(host: Host) -> str:
    """Return why an installation by DKMS is refused for its signature, empty if it is not."""
    try:
        installation.check(installation.Options(), host)
    except InstallError as error:
        return str(error) if "Secure Boot" in str(error) else ""
    return ""


@pytest.fixture
def real(host: Host) -> Host:
    """The same host, whose commands are this machine's."""

    def run(command: list[str]) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise InstallError(f"`{command[0]}`: {done.stdout or done.stderr}")
        return done.stdout

    return host._replace(run=run)


@pytest.mark.parametrize(
    ("conf", "path"),
    [
        (None, SHIM),
        (None, DKMS),
        ("etc/dkms/framework.conf", "root/keys/mine.der"),
        ("etc/dkms/framework.conf.d/10-key.conf", "root/keys/mine.der"),
    ],
)
@pytest.mark.usefixtures("dkms_here")
def test_the_enrolled_certificate_counts_whichever_file_it_is(
    real: Host, mokutil: Callable[..., None], conf: str | None, path: str
) -> None:
    for other in (SHIM, DKMS):
        write(real.prefix, other, b"another")
    certificate = write(real.prefix, path, b"enrolled")
    mokutil(certificate)
    if conf:
        assert refused(real)
        write(real.prefix, conf, f'# key\nmok_certificate="/{path}"  # ours\n')
    assert refused(real) == ""
    assert secure_boot.enrolled(real.prefix, RELEASE, real.run) == certificate
    (found,) = [one.text for one in doctor.examine(str(real.prefix)) if "Secure Boot" in one.text]
    assert found == f"Secure Boot is on, and /{path} is enrolled"


@pytest.fixture
def dkms_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that an installation wants before it asks for a key."""
    for name in ("dkms", "make", "gcc"):
        write(tmp_path, f"bin/{name}", "#!/bin/sh\n").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")


def test_a_path_in_the_configuration_may_name_the_kernel(real: Host) -> None:
    write(real.prefix, "etc/dkms/framework.conf", "mok_certificate=/keys/${kernelver}/c.der\n")
    certificate = write(real.prefix, f"keys/{RELEASE}/c.der", b"")
    assert secure_boot.certificates(real.prefix, RELEASE) == [certificate]


def test_a_certificate_as_text_is_found_by_its_fingerprint(
    real: Host, mokutil: Callable[..., None]
) -> None:
    der = bytes(range(200))
    text = base64.encodebytes(der).decode()
    pem = f"-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n"
    certificate = write(real.prefix, DKMS, pem)
    digest = hashlib.sha1(der).hexdigest()
    fingerprint = ":".join(digest[i : i + 2] for i in range(0, 40, 2))
    mokutil(listed=LISTED.format(fingerprint=fingerprint))
    assert secure_boot.enrolled(real.prefix, RELEASE, real.run) == certificate


@pytest.mark.usefixtures("dkms_here")
def test_without_an_enrolled_key_the_one_to_enrol_is_named(
    real: Host, mokutil: Callable[..., None]
) -> None:
    mokutil()
    assert "run `dkms generate_mok`, then `mokutil --import /var/lib/dkms/mok.pub`" in refused(real)
    write(real.prefix, SHIM, b"ubuntu's")
    assert f"run `mokutil --import /{SHIM}`, reboot and enrol it there" in refused(real)
    (found,) = [one for one in doctor.examine(str(real.prefix)) if "Secure Boot" in one.text]
    assert (found.level, f"--import /{SHIM}" in found.remedy) == (doctor.WARN, True)


@pytest.mark.usefixtures("dkms_here")
def test_where_shim_validates_nothing_no_key_is_asked_for(real: Host) -> None:
    write(real.prefix, OFF_IN_SHIM, b"\6\0\0\0\0")
    assert secure_boot.is_on(real.prefix)
    write(real.prefix, OFF_IN_SHIM, b"\6\0\0\0\1")
    assert not secure_boot.is_on(real.prefix)
    assert refused(real) == ""
