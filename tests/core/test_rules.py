# SPDX-License-Identifier: MIT
"""That the list of the scheduler's rules is true of its sources. The rules: without.py."""

from __future__ import annotations

import re

import pytest

from tests.core.without import REPOSITORY, RULES, SCHEDULER, Rule


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.says)
def test_a_rule_of_the_list_is_in_its_file_and_has_a_test(rule: Rule) -> None:
    assert (REPOSITORY / SCHEDULER / rule.file).read_text().count(rule.text) == 1
    assert rule.without != rule.text
    file, _, name = rule.test.partition("::")
    tests = (REPOSITORY / "tests/core" / file).read_text()
    assert re.search(rf"^def {re.escape(name.partition('[')[0])}\(", tests, re.MULTILINE)
