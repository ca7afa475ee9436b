# SPDX-License-Identifier: MIT
"""What cffi builds from kmod/core and pycgpu/agent."""

from ._core import FFI, Lib

ffi: FFI
lib: Lib
