# SPDX-License-Identifier: MIT
"""
The engine of ``kmod/core`` against a model of a card, in virtual time.

All results are simulated. What the model was fitted to, and how well it reproduces what was
measured on a real card, is in ``docs/measurements.md`` and ``tests/core/test_simulate.py``.
"""

from .scenario import Change, Run, Scenario, Tenant, run

__all__ = ["Change", "Run", "Scenario", "Tenant", "run"]
