# SPDX-License-Identifier: MIT
"""The user door: a root daemon that stands between tenants and the driver, without a module."""
