# SPDX-License-Identifier: MIT
"""Engines that start programs by themselves: Slurm, Ray, Spark, and jobs of Volcengine's form."""
