# SPDX-License-Identifier: MIT
"""What a container's standard error is told."""

from __future__ import annotations

import contextlib
import os

from pycgpu.oci import notice


def test_who_reads_nothing_of_its_standard_error_holds_up_nobody() -> None:
    """A full pipe: the line is left out, and what the pipe holds stays as it is."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    filled = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    notice.write(writer, "not read")
    os.close(writer)
    read = 0
    while found := os.read(reader, 65536):
        assert set(found) == {ord("x")}
        read += len(found)
    os.close(reader)
    assert read == filled
