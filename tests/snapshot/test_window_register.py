"""The window register: lives of windows, and the horizon that follows."""

from __future__ import annotations

from producer.snapshot.outbox import CheckpointOutbox
from producer.snapshot.ranges import KeyRange
from producer.snapshot.snapshot_state import Chunk, ReadTask, Window, WindowState
from producer.snapshot.window_register import WindowRegister, is_read_now
from schemas.json_codec import decode, encode
from schemas.markers import MarkerType
from tests.support.ledgers import at


def register_of(*bounds: int) -> tuple[WindowRegister, CheckpointOutbox, ReadTask]:
    """A register with a window of one task per bound."""
    ids = iter(range(100))
    outbox = CheckpointOutbox()
    register = WindowRegister(outbox, 2, lambda: f"w{next(ids)}")
    task = ReadTask("r", "db.t", chunks={n: Chunk(n, KeyRange()) for n in range(len(bounds))})
    for chunk, bound in zip(task.chunks.values(), bounds, strict=True):
        register.register(task, chunk, at(bound))
    return register, outbox, task


def test_the_horizon_is_the_smallest_bound_until_its_window_has_ended_and_left() -> None:
    register, _, _ = register_of(20, 10, 30)
    assert register.horizon(at(50)) == at(10)
    register.end(register["w1"])
    assert register.horizon(at(50)) == at(10), "its document is not deleted yet"
    register.forget_ended()
    assert register.horizon(at(50)) == at(20)
    for window in list(register.values()):
        register.end(window)
    register.forget_ended()
    assert register.horizon(at(50)) == at(50)


def test_a_window_of_an_earlier_process_is_an_orphan_that_ends_with_its_slots() -> None:
    register, _, _ = register_of(10)
    restored = WindowRegister(CheckpointOutbox(), 9, lambda: "new")
    restored.restore(decode(Window, encode(register["w0"])))
    assert restored["w0"].readers == 2
    assert restored.committed() == []
    assert restored["w0"].state is WindowState.ORPHAN
    assert restored.horizon(at(50)) == at(10)
    restored.slots_fenced()
    restored.forget_ended()
    assert restored == {}


def test_windows_that_no_reader_has_started_are_withdrawn_and_the_others_are_void() -> None:
    register, _, task = register_of(10, 20)
    register.committed()
    running = register["w0"]
    running.state = WindowState.RUNNING
    register.cancel(task)
    assert (running.state, running.cancelled) == (WindowState.RUNNING, True)
    assert register["w1"].state is WindowState.ENDED
    assert [is_read_now(chunk) for chunk in task.chunks.values()] == [True, False]
    assert task.chunks[1].window is None


def test_a_window_is_marked_open_once_and_closed_only_with_its_rows() -> None:
    register, outbox, _ = register_of(10)
    window = register["w0"]
    assert not register.closed(window, at(15)), "its rows are not read"
    register.opened(window, at(20))
    register.opened(window, at(21))
    register.closing(window, 3, {0: 7})
    assert register.is_reading("r")
    assert register.closed(window, at(30))
    assert not register.is_reading("r")
    assert not register.closed(window, at(31))
    markers = outbox.drain(lambda _: None, at(40), 0.0).markers
    assert [(marker.type, marker.fields["position"]) for marker in markers] == [
        (MarkerType.OPEN, at(20).text),
        (MarkerType.CLOSE, at(30).text),
    ]
    assert markers[1].fields["first_offsets"] == {0: 7}


def test_a_ddl_statement_voids_the_windows_that_are_open_across_it_and_no_others() -> None:
    register, _, _ = register_of(10, 20, 30)
    before, after, unread = register.values()
    before.low, before.state = at(40), WindowState.RUNNING
    after.low, after.state = at(60), WindowState.CLOSING
    register.table_changed("db.u", at(50))
    assert not before.reread
    register.table_changed("db.t", at(50))
    assert [window.reread for window in (before, after, unread)] == [True, False, False]


def test_a_window_without_a_close_row_closes_at_the_first_boundary_behind_its_reading() -> None:
    register, _, _ = register_of(10)
    register.closing(register["w0"], 3, {}, closes_at=at(40))
    assert register.closable(at(39)) == []
    assert register.closable(at(40)) == [register["w0"]]
