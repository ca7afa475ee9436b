# SPDX-License-Identifier: MIT
"""
Kubernetes: a node's device plugin and DRA driver, and an extender for the scheduler.

Never imported by the hook, which it only feeds.
"""
