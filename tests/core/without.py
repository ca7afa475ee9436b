# SPDX-License-Identifier: MIT
"""
The scheduler's rules, one by one taken out. ``python -m tests.core.without [WORD…]``.

A rule is kept only because a promise fails without it. Each row says how a rule of
``kmod/core/sched`` is taken out, and names a test that fails then. The command builds the simulator
without each rule in turn, or without those whose description has a word, and runs that test: some
seconds a rule. A rule whose test passes without it is to be deleted, or to be given a test.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
SCHEDULER = Path("kmod/core/sched")


class Rule(NamedTuple):
    """A rule: which text of which file makes it, and what stands there without it."""

    file: str
    says: str
    text: str
    without: str
    #: of tests/core
    test: str


RULES = (
    Rule(
        "demand.c",
        "looks follow one another while several that seem to sleep submit",
        (
            "\tif (s->plan.mode != CGPU_SCHED_DEMAND || s->fair.curr < CGPU_SCHED_SLOTS)\n"
            "\t\treturn false;"
        ),
        "\treturn false;",
        "test_serving.py::test_those_who_seem_to_sleep_by_turns_have_their_shares[138]",
    ),
    Rule(
        "fair.c",
        "two that the runlist loads by turns work",
        "f->takes_turns = over &&",
        "f->takes_turns = 0 && over &&",
        "test_serving.py::test_those_who_seem_to_sleep_by_turns_have_their_shares[86]",
    ),
    Rule(
        "demand.c",
        "work is waited for as long as it was seen to last",
        "\tlearn_piece(d, s, slot);\n",
        "\t(void)learn_piece;\n",
        "test_serving.py::"
        "test_one_is_waited_for_to_the_end_of_its_work_beside_several_processes[1-trainer]",
    ),
    Rule(
        "demand.c",
        "a sleep is judged again when the log has told all of it",
        "\tworks |= judge_sleep(d, s, slot);\n",
        "\t(void)judge_sleep;\n",
        "test_serving.py::test_one_millisecond_of_work_now_and_then_is_done_within_two_and_a_half",
    ),
    Rule(
        "demand.c",
        "one that is steps ahead of the card is not held up by its processor",
        "\t\tif (is_ahead(d))",
        "\t\tif (0 && is_ahead(d))",
        "test_serving.py::"
        "test_a_trainer_that_is_steps_ahead_of_the_card_is_not_held_up_by_its_processor",
    ),
    Rule(
        "demand.c",
        "all channels are read when the log tells of unseen work",
        " || is_missed(d, s, slot, now_ns);",
        ";(void)is_missed;",
        "test_simulate.py::test_every_policy_keeps_its_promises[4]",
    ),
    Rule(
        "demand.c",
        "one that only seems to work sleeps until it is loaded",
        "\tfeigned = feigns(demand, d, s, slot);",
        "\tfeigned = 0; (void)feigns;",
        "test_serving.py::test_who_wakes_waits_for_nobody_that_only_seems_to_work[1]",
    ),
    Rule(
        "demand.c",
        "a turn whose owner is not loaded ends",
        "(!d->moved && !d->queued && was_empty(demand, s, slot))",
        "0; (void)was_empty",
        "test_serving.py::"
        "test_servers_beside_trainers_have_what_they_ask_for_and_wait_for_each_other_by_turns[12-0.25-2-1.3-11]",
    ),
    Rule(
        "demand.c",
        "a context that stays loaded does not keep a wakeup waiting",
        "\treturn d->state == CGPU_DEMAND_SLEEPS && is_silent(d) && s->fair.loaded == slot &&",
        "\treturn 0 && d->state == CGPU_DEMAND_SLEEPS && is_silent(d) && s->fair.loaded == slot &&",
        "test_serving.py::test_who_wakes_interrupts_work_that_ends_never_and_submits_nothing[1]",
    ),
    Rule(
        "demand.c",
        "one that was found at work did not sleep",
        "\td->is_found = works &&",
        "\td->is_found = 0 && works &&",
        "test_serving.py::test_who_seemed_to_sleep_under_slices_has_no_claim_for_that",
    ),
    Rule(
        "demand.c",
        "one submission wakes a container whose ceiling is charged",
        "(is_unwatched(s, slot) || is_left_waiting(s, d))",
        "(0*is_unwatched(s,slot) || is_left_waiting(s, d))",
        "test_quota.py::"
        "test_one_with_a_quota_that_wakes_with_budget_waits_for_a_look_and_a_call[alone-4]",
    ),
    Rule(
        "demand.c",
        "one submission wakes a container in a long round",
        "(is_unwatched(s, slot) || is_left_waiting(s, d))",
        "(is_unwatched(s, slot) || 0*is_left_waiting(s, d))",
        "test_serving.py::"
        "test_processes_that_are_slow_to_stop_leave_one_that_seems_to_sleep_its_part[8-0.36-8]",
    ),
    Rule(
        "demand.c",
        "one that waits for the runlist is not taken to sleep",
        ("\t\td->behind_ns = now_ns;\n\tpatient"),
        ("\t\t;\n\tpatient"),
        "test_serving.py::test_who_works_for_long_without_a_submission_is_heeded[3-20 ms, 200 ms]",
    ),
    Rule(
        "demand.c",
        "half of a silence counts across a shut gate",
        "cgpu_beyond(open_ns, silent_ns / 2)",
        "cgpu_beyond(open_ns, 0)",
        "test_serving.py::test_who_works_for_long_without_a_submission_is_heeded[3-20 ms, 200 ms]",
    ),
    Rule(
        "demand.c",
        "those that moved are judged before those that waited",
        "d->moved != (n < s->slot_end)",
        "0",
        "test_serving.py::"
        "test_servers_beside_trainers_have_what_they_ask_for_and_wait_for_each_other_by_turns[12-0.25-2-1.3-11]",
    ),
    Rule(
        "demand.c",
        "one that is loaded again without a submission works",
        ("\treturn s->slot[slot].fair.resumed_ns;\n}\n\n/* What one may"),
        ("\treturn 0;\n}\n\n/* What one may"),
        "test_serving.py::"
        "test_one_is_waited_for_to_the_end_of_its_work_beside_several_processes[1-now and then]",
    ),
    Rule(
        "demand.c",
        "looks are rare where the same few always work",
        "\treturn mask && now_ns - demand->steady_ns",
        "\treturn 0 && now_ns - demand->steady_ns",
        "test_serving.py::test_looks_cost_little_and_only_while_somebody_pauses",
    ),
    Rule(
        "demand.c",
        "doubt lasts for the longest round since it began",
        "\td->round_ns = cgpu_max(d->round_ns, cgpu_fair_round_ns(s));",
        "\td->round_ns = cgpu_fair_round_ns(s);",
        "test_serving.py::"
        "test_no_number_of_processes_at_long_work_takes_from_who_has_long_graphs[4]",
    ),
    Rule(
        "demand.c",
        "a long round is no pause in a rate",
        "(beside && !cgpu_fair_carries(s) ? cgpu_fair_round_ns(s) : 0)",
        "0",
        "test_serving.py::"
        "test_one_that_launches_small_kernels_has_its_part_beside_several_processes",
    ),
    Rule(
        "fair.c",
        "what a failed trial of slices took is paid back",
        ("s->plan.mode == CGPU_SCHED_DEMAND && was == CGPU_SCHED_SLICES)\n\t\trepay"),
        ("0)\n\t\trepay"),
        "test_serving.py::"
        "test_who_works_for_long_without_a_submission_is_heeded"
        "[1-5 ms beside one that always asks]",
    ),
    Rule(
        "fair.c",
        "one that takes more than its share beside others has windows",
        "\t\tjudge_dividers(s, now_ns);\n",
        "\t\t(void)judge_dividers;\n",
        "test_serving.py::test_who_seems_to_sleep_in_anothers_turn_keeps_its_claim[199]",
    ),
    Rule(
        "fair.c",
        "one that is far behind its ceiling goes before a claim",
        "\tf->is_urgent = runnable(s, slot) &&",
        "\tf->is_urgent = 0 && runnable(s, slot) &&",
        "test_serving.py::test_work_that_is_fetched_at_once_has_its_share_beside_a_quota[6]",
    ),
    Rule(
        "fair.c",
        "debts that nobody waited for are forgiven",
        ("\tif (ns > debts)\n\t\tns = debts;"),
        "\treturn given;",
        "test_serving.py::test_requests_beside_steps_of_one_submission_have_their_share[8-20-100]",
    ),
    Rule(
        "fair.c",
        "what ran while all seemed to sleep comes off what is due",
        "\treturn f->asleep && s->fair.curr >= CGPU_SCHED_SLOTS ?",
        "\treturn 0 ?",
        "test_serving.py::test_requests_beside_steps_of_one_submission_have_their_share[8-20-100]",
    ),
    Rule(
        "fair.c",
        "switches of a divided card are paid by who made it divide",
        "curr = payer(s, now_ns);",
        "curr = s->fair.curr; (void)payer;",
        "test_simulate.py::test_every_policy_keeps_its_promises[7]",
    ),
    Rule(
        "fair.c",
        "what runs in a sleep is charged under a ceiling",
        "\tif (f->asleep && more > 0 && s->plan.mode == CGPU_SCHED_DEMAND &&",
        "\tif (0 && f->asleep && more > 0 && s->plan.mode == CGPU_SCHED_DEMAND &&",
        "test_starvation.py::test_nobody_who_has_work_is_starved[20-burst]",
    ),
    Rule(
        "fair.c",
        "a gate shuts for a moment to unload an idle context",
        "\tf->is_probed = asleep && on_demand && cgpu_budget_is_capped(s, slot);",
        "\tf->is_probed = 0;",
        "test_quota.py::"
        "test_one_with_a_quota_that_wakes_with_budget_waits_for_a_look_and_a_call[alone-4]",
    ),
    Rule(
        "pause.c",
        "a sleeper by the clock shows again and again that it has no work",
        "\treturn s->plan.mode == CGPU_SCHED_WINDOWS && cgpu_pause_is_logged(s, now_ns) &&",
        "\treturn 0 && cgpu_pause_is_logged(s, now_ns) &&",
        "test_starvation.py::test_nobody_who_has_work_is_starved[20-burst]",
    ),
    Rule(
        "pause.c",
        "a small loss in each round of slices counts over time",
        "\tf->is_short |= misses && f->use_emptied;",
        "\t(void)misses;",
        "test_serving.py::test_a_loop_that_loses_little_of_its_slices_has_its_share[30-2]",
    ),
    Rule(
        "pause.c",
        "the log is read sooner until it has told who pauses",
        "\tfor (i = 0; i < s->slot_end && s->plan.mode == CGPU_SCHED_SLICES; i++)",
        "\tfor (i = 0; 0; i++)",
        "test_serving.py::"
        "test_floors_that_fill_the_card_leave_one_without_a_floor_nothing[True-burst]",
    ),
    Rule(
        "pause.c",
        "the log is read less often while one works alone",
        ("\t\tif (i == s->fair.curr)\n\t\t\tcontinue;"),
        "\t\treturn 0;",
        "test_serving.py::"
        "test_the_log_is_asked_for_less_often_while_one_works_and_all_others_sleep",
    ),
    Rule(
        "plan.c",
        "a round is longer without a container that has slept for 10 s",
        ("\tif (rest == deep)\n\t\treturn;"),
        "\treturn;",
        "test_serving.py::"
        "test_servers_beside_trainers_have_what_they_ask_for_and_wait_for_each_other_by_turns[12-0.25-2-1.3-11]",
    ),
    Rule(
        "switch_log.c",
        "a start before the window is charged",
        "\tif (before >= CGPU_SCHED_SLOTS) {",
        ("\treturn;\n\tif (before >= CGPU_SCHED_SLOTS) {"),
        "test_simulate.py::test_every_policy_keeps_its_promises[0]",
    ),
    Rule(
        "switch_log.c",
        "and while nothing is loaded or saved",
        "\tif (log->still_ns && log->pid",
        "\tif (0 && log->pid",
        "test_serving.py::"
        "test_the_log_is_asked_for_less_often_while_one_works_and_all_others_sleep",
    ),
    Rule(
        "switch_log.c",
        "a slow reading is taken forward when a container stirs",
        "\telse if (log->slow && pace_ns",
        "\telse if (0 && pace_ns",
        "test_serving.py::test_long_work_without_a_submission_is_charged_to_who_runs_it[10]",
    ),
    Rule(
        "window.c",
        "a window that lost half is not skipped",
        "\tif (entity == CGPU_SCHED_NOBODY || lag_ns",
        "\tif (1 || lag_ns",
        "test_simulate.py::"
        "test_one_whose_turn_follows_those_who_are_slow_to_stop_gets_its_part[0-2]",
    ),
)


def notices(rule: Rule, tree: Path) -> bool:
    """Return whether the rule's test fails in *tree* without the rule."""
    path = tree / SCHEDULER / rule.file
    text = path.read_text()
    path.write_text(text.replace(rule.text, rule.without))
    try:
        _run(tree, ["pycgpu/simulate/_runlist_build.py"], 0)
        test = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/core/{rule.test}"]
        return _run(tree, test, 0, 1) == 1
    finally:
        path.write_text(text)


def _run(tree: Path, command: list[str], *expected: int) -> int:
    done = subprocess.run(
        [sys.executable, *command], cwd=tree, capture_output=True, text=True, check=False
    )
    if done.returncode not in expected:
        raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
    return done.returncode


def main(words: Iterable[str]) -> int:
    """Print a line a rule. Return 1 if a test passes without its rule."""
    wanted = list(words)
    unnoticed = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for part in ("kmod", "pycgpu", "tests"):
            shutil.copytree(REPOSITORY / part, tree / part)
        for rule in RULES:
            if wanted and not any(word in rule.says for word in wanted):
                continue
            noticed = notices(rule, tree)
            unnoticed += not noticed
            print(f"{'kept' if noticed else 'UNNOTICED'}  {rule.file}: {rule.says}", flush=True)
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
