# SPDX-License-Identifier: MIT
"""Each test that the threat model names is one of ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs/threat-model.md").read_text()
NAMED = sorted(set(re.findall(r"`(test_\w+)`", PAGE)))


def test_the_page_names_tests() -> None:
    assert len(NAMED) > 20


@pytest.mark.parametrize("name", NAMED)
def test_what_the_threat_model_names_is_a_test(name: str) -> None:
    files = [*REPOSITORY.glob("tests/vm/*.py"), *REPOSITORY.glob("tests/core/*.py")]
    files += REPOSITORY.glob("tests/host/*.py")
    assert any(f"def {name}(" in file.read_text() for file in files)
