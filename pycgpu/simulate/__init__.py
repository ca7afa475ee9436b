# SPDX-License-Identifier: MIT
"""
The engine of ``kmod/core`` against a model of a card, in virtual time.

All results are simulated. ``docs/measurements.md`` and ``tests/core/test_simulate.py`` have the
measurements on real cards that the model was fitted to, and how well it reproduces them.
"""

from .scenario import Change, Run, Scenario, Tenant, run

__all__ = ["Change", "Run", "Scenario", "Tenant", "run"]
