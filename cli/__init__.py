# SPDX-License-Identifier: MIT
"""The commands; imported as ``pycgpu.cli``."""
