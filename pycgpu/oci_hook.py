# SPDX-License-Identifier: MIT
"""The name by which the hook's program of 0.1.0 imports it; an upgrade need not renew that."""

from .oci.hook import main

__all__ = ["main"]
