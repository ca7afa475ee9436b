# SPDX-License-Identifier: MIT
"""Write the recordings that the output of ``test_same_answers.py`` on standard input has."""

import json
import sys

from tests.vm.answers import HERE

for line in sys.stdin:
    if line.startswith("RECORD "):
        _, branch, text = line.split(" ", 2)
        (HERE / f"{branch}.json").write_text(json.dumps(json.loads(text), indent=1) + "\n")
