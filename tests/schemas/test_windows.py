"""What the log touched while windows are open."""

from __future__ import annotations

import random

from schemas.windows import OpenWindows

LIMIT = 1 << 20


def test_a_window_knows_what_was_touched_between_its_open_and_close_row_and_no_more():
    windows = OpenWindows(LIMIT)
    windows.touch("t", [b"before"])
    windows.open("w", "t")
    windows.touch("t", [b"inside"])
    windows.touch("other", [b"elsewhere"])
    touched = windows.close("w", "t")
    assert touched is not None
    assert b"inside" in touched
    assert b"before" not in touched
    assert b"elsewhere" not in touched
    assert not windows.watches("t")


def test_a_window_that_touched_nothing_says_so():
    windows = OpenWindows(LIMIT)
    windows.open("w", "t")
    assert windows.watches("t")
    assert not windows.close("w", "t")


def test_a_window_that_was_never_opened_has_no_answer():
    windows = OpenWindows(LIMIT)
    windows.open("w", "t")
    assert windows.close("other", "t") is None
    assert windows.close("w", "u") is None


def test_spellings_that_a_collation_takes_for_equal_are_different_keys():
    windows = OpenWindows(LIMIT)
    windows.open("w", "t")
    windows.touch("t", [b'{"id":"a"}'])
    touched = windows.close("w", "t")
    assert touched is not None
    assert b'{"id":"A"}' not in touched


def test_a_table_with_more_touched_keys_than_may_be_remembered_loses_its_windows():
    windows = OpenWindows(2000)
    windows.open("a", "t")
    windows.open("b", "t")
    windows.open("c", "u")
    assert windows.touch("t", (b"%d" % number for number in range(10))) == ()
    assert set(windows.touch("t", (b"%d" % number for number in range(100)))) == {"a", "b"}
    assert windows.close("a", "t") is None
    windows.open("again", "t")
    assert windows.touch("t", [b"x"]) == ()
    assert windows.close("again", "t") is not None


def test_windows_that_ended_elsewhere_are_forgotten():
    windows = OpenWindows(LIMIT)
    windows.open("gone", "t")
    windows.open("kept", "t")
    windows.retain({"kept"})
    assert windows.close("gone", "t") is None
    assert windows.close("kept", "t") is not None
    windows.open("gone", "t")
    windows.retain(set())
    assert not windows.watches("t")


def test_any_interleaving_of_windows_gives_each_what_was_touched_in_between():
    for seed in range(200):
        dice = random.Random(seed)
        windows = OpenWindows(1 << 30)
        expected: dict[str, set[bytes]] = {}
        for step in range(60):
            action = dice.random()
            if action < 0.2:
                windows.open(f"w{step}", "t")
                expected[f"w{step}"] = set()
            elif action < 0.4 and expected:
                name = dice.choice(sorted(expected))
                touched = windows.close(name, "t")
                assert touched is not None, f"seed {seed}"
                keys = expected.pop(name)
                assert {key for key in map(str.encode, map(str, range(20))) if key in touched} == keys, seed
                assert bool(touched) == bool(keys), f"seed {seed}"
            else:
                key = str(dice.randrange(20)).encode()
                windows.touch("t", [key])
                for keys in expected.values():
                    keys.add(key)
        assert windows.watches("t") == bool(expected), f"seed {seed}"
