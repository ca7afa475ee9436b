# SPDX-License-Identifier: MIT
"""Containers leave their cards and come back: what moves them, at whichever door."""
