"""Whether the source is under too much load: stop at a limit, continue at a lower one."""

from __future__ import annotations

from collections.abc import Callable

from producer.snapshot.load_guard import LAG, THREADS, LoadJudge, LoadLimits
from schemas.settings import PauseWhen


def judge_of(**limits: int) -> Callable[..., str]:
    judge = LoadJudge(LoadLimits.of(PauseWhen(**limits)))
    return lambda threads=None, lag=None: judge.judge({THREADS: threads, LAG: lag})


def test_without_limits_the_load_does_not_matter() -> None:
    assert not LoadLimits.of(PauseWhen())
    assert LoadLimits.of(PauseWhen(replica_lag_s=1))


def test_readers_wait_above_the_limit_and_continue_when_it_was_low_twice() -> None:
    judge = judge_of(threads_running=50)
    assert judge(50) == ""
    assert judge(87) == "Threads_running 87 > 50"
    assert judge(45) == "Threads_running 45, until 40"
    assert judge(40) == "Threads_running 40, low for 1 of 2 checks"
    assert judge(41) == "Threads_running 41, until 40"
    assert judge(3) == "Threads_running 3, low for 1 of 2 checks"
    assert judge(4) == ""
    assert judge(50) == ""


def test_each_figure_that_is_too_high_is_named() -> None:
    judge = judge_of(threads_running=50, replica_lag_s=10)
    assert judge(87, 3) == "Threads_running 87 > 50"
    assert judge(87, 11) == "Threads_running 87 > 50, replica lag in seconds 11 > 10"
    assert judge(1, 11) == "replica lag in seconds 11 > 10"
    assert judge(1, 9) == "replica lag in seconds 9, until 8"
    assert judge(1, 8) != ""
    assert judge(1, 0) == ""


def test_what_is_not_known_holds_nobody_for_ever() -> None:
    judge = judge_of(replica_lag_s=10)
    assert judge(None, None) == ""
    assert judge(None, 11) != ""
    assert judge(None, None) == "the load of the source is not known"
    assert judge(None, None) == ""


def test_a_figure_without_a_limit_does_not_matter() -> None:
    judge = judge_of(replica_lag_s=10)
    assert judge(1_000, 10) == ""
