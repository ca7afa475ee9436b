# SPDX-License-Identifier: MIT
"""Kubernetes: the node's device plugin. Never imported by the hook, which it only feeds."""
