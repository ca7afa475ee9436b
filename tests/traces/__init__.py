# SPDX-License-Identifier: MIT
"""Traces of real programs on a real card, and the tools that make and read them."""
