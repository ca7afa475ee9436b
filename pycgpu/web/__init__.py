# SPDX-License-Identifier: MIT
"""A page that shows hosts, cards and containers over the last hour: ``cgpu web``."""

PORT = 9837
