# SPDX-License-Identifier: MIT
"""Containers leave their cards and come back: what moves them, at whichever door."""

#: Where ``cgpu parkd`` answers, which moves the module's containers.
SOCKET = "/run/cgpu/parkd.sock"
