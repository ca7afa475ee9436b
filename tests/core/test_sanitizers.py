# SPDX-License-Identifier: MIT
"""The core under AddressSanitizer and UndefinedBehaviorSanitizer, fed by tests/core/fuzz."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KMOD = ROOT / "kmod"
CORE = KMOD / "core"
FUZZ = Path(__file__).parent / "fuzz" / "core_fuzz.c"
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
#: A million take 15 s of a processor.
TIMEOUT_S_PER_MILLION = 120


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fuzz") / "core_fuzz"
    subprocess.run(
        ["gcc", "-std=gnu99", "-g", "-O1", "-Wall", "-Wextra", "-Werror",
         "-Wno-unused-parameter", *SANITIZE,
         "-iquote", KMOD, "-o", out, FUZZ, *sorted(CORE.rglob("*.c"))],
        check=True,
    )  # fmt: skip
    return out


@pytest.mark.timeout(0)  # it has its own, by the steps
@pytest.mark.parametrize("nth", [0, 1])
def test_random_steps_touch_no_byte_that_is_not_theirs(
    fuzzer: Path, request: pytest.FixtureRequest, nth: int
) -> None:
    steps = request.config.getoption("--fuzz-steps")
    seed = request.config.getoption("--fuzz-seed") + nth
    done = subprocess.run(
        [fuzzer, str(steps), str(seed)], capture_output=True, text=True,
        timeout=TIMEOUT_S_PER_MILLION * max(1, steps / 1e6),
        env=os.environ | {"ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"{steps} steps\n"), done.stderr[-4000:]


def test_the_sanitizers_are_on(fuzzer: Path, tmp_path: Path) -> None:
    """A fuzzer that cannot find anything proves nothing."""
    source = tmp_path / "one_byte_too_far.c"
    source.write_text(
        '#include <stdlib.h>\n#include "core/bytes.h"\n'
        "int main(void) { uint8_t *b = calloc(1, 16); return (int)cgpu_get32(b, 13); }\n"
    )
    out = tmp_path / "one_byte_too_far"
    subprocess.run(
        ["gcc", "-std=gnu99", *SANITIZE, "-iquote", KMOD, "-o", out, source, CORE / "bytes.c"],
        check=True,
    )
    done = subprocess.run([out], capture_output=True, text=True)
    assert done.returncode != 0
    assert "AddressSanitizer" in done.stderr


def fuzz_decoder(root: Path, inputs: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [root / "scripts/dev", "fuzz-decoder", str(inputs)], capture_output=True, text=True
    )


def test_the_decoder_is_fuzzed_by_one_command() -> None:
    done = fuzz_decoder(ROOT, 300_001)
    assert (done.returncode, done.stderr) == (0, "")
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert said["inputs"].startswith("300001, decoded ")
    assert said["findings"] == "none"


@pytest.mark.parametrize(("right", "wrong"), [
    ("return place && place + 3u <= size;", "return place && place <= size;"),
    ("return size == rule->size;", "return size <= rule->size;"),
    ("GROUP_A, offsetof(struct nv_group_alloc, isVgpu)", "GROUP_A, 4"),
    ("argument->size - (uint32_t)-place", "argument->size"),
])  # fmt: skip
def test_a_decoder_that_reads_too_far_is_found(tmp_path: Path, right: str, wrong: str) -> None:
    for part in ("kmod/core", "scripts", "tests/core/fuzz", "tests/traces"):
        shutil.copytree(ROOT / part, tmp_path / part)
    decode = tmp_path / "kmod/core/rm/decode.c"
    assert decode.read_text().count(right) == 1
    decode.write_text(decode.read_text().replace(right, wrong))
    done = fuzz_decoder(tmp_path, 300_000)
    assert done.returncode == 1
    assert "AddressSanitizer: heap-buffer-overflow" in done.stderr
