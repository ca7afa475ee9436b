# SPDX-License-Identifier: MIT
"""A file of an operator's settings, which need not be there."""

from __future__ import annotations

import tomllib
from typing import Any

from ..errors import CgpuError


def read(path: str) -> dict[str, Any] | None:
    """
    Return the contents of *path*; None: no such file.

    Raises:
        CgpuError: the file cannot be read, or is not TOML.
    """
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CgpuError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise CgpuError(f"{path}: {error}") from None
