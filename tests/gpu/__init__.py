# SPDX-License-Identifier: MIT
"""The user door on a real card; run by hand, see scripts/dev bench-gpu."""
