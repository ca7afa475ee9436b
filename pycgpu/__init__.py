# SPDX-License-Identifier: MIT
"""Share one NVIDIA GPU between containers: requests, admission and the tree of nodes."""

__version__ = "0.1.0"
