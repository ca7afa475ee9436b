# SPDX-License-Identifier: MIT
"""Our way into the standard library's JSON reads and writes what the usual one does."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycgpu import json_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_written_is_what_json_writes(value: Any) -> None:
    assert json_text.dumps(value) == json.dumps(value, separators=(",", ":"))


@given(VALUES, st.sampled_from(["", " ", "\n\t", "\r\n  "]), st.sampled_from([None, 2]))
def test_what_is_read_is_what_json_reads(value: Any, blank: Any, indent: Any) -> None:
    text = blank + json.dumps(value, indent=indent) + blank
    assert json_text.loads(text) == json.loads(text) == value


def outcome(loads: Any, text: Any) -> Any:
    try:
        return repr(loads(text))
    except (ValueError, RecursionError) as error:
        return ValueError if isinstance(error, ValueError) else RecursionError


@given(st.text(alphabet='{}[]",:0123456789.eE+-\\ntrufalsN\u00e9 \t\n\x00', max_size=30))
def test_what_json_refuses_is_refused(text: Any) -> None:
    assert outcome(json_text.loads, text) == outcome(json.loads, text)


@pytest.mark.parametrize("text", ["", "\ufeff1", "1 2", "[" * 100_000, "nul", '"\n"', "9" * 5000])
def test_odd_texts_end_as_with_json(text: Any) -> None:
    assert outcome(json_text.loads, text) == outcome(json.loads, text)


def test_numbers_that_json_knows_and_its_standard_does_not() -> None:
    assert math.isnan(float(str(json_text.loads("NaN"))))
    assert json_text.loads("[-Infinity, Infinity]") == [-math.inf, math.inf]
    assert json_text.dumps(math.inf) == "Infinity"


def test_what_is_not_json_cannot_be_written() -> None:
    with pytest.raises(TypeError):
        json_text.dumps({"a": {1, 2}})


@pytest.mark.parametrize("part", ["_c_scanner", "_c_encoder"])
def test_without_the_c_code_json_does_it(monkeypatch: pytest.MonkeyPatch, part: Any) -> None:
    monkeypatch.setattr(json_text, part, lambda: None)
    assert json_text.loads(json_text.dumps({"a": [1, None]})) == {"a": [1, None]}


def test_this_interpreter_has_the_c_code() -> None:
    assert json_text._c_scanner() is not None
    assert json_text._c_encoder() is not None
