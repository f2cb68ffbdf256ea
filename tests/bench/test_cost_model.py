"""The cost model, without servers: three points give its three figures, and a fourth says how good it is."""

from __future__ import annotations

import pytest

from bench.cost_model import Model, Point, fitted, report, sizing


def points_of(model: Model, *sizes: tuple[int, int]) -> list[Point]:
    return [Point(rows, transactions, model.cpu_s(rows, transactions)) for rows, transactions in sizes]


def test_three_sizes_give_back_the_model_they_were_made_with() -> None:
    model = Model(0.2, 1.9, 7.0)
    found = fitted(points_of(model, (250_000, 250), (1_000_000, 1_000), (200_000, 200_000)))
    assert (found.fixed_s, found.row_us, found.transaction_us) == pytest.approx((0.2, 1.9, 7.0))


def test_sizes_without_transactions_say_nothing_of_their_cost() -> None:
    found = fitted(points_of(Model(20.0, 10.0, 0.0), (250_000, 0), (500_000, 0), (1_000_000, 0)))
    assert (found.fixed_s, found.row_us, found.transaction_us) == pytest.approx((20.0, 10.0, 0.0))


def test_the_report_says_how_far_the_fourth_size_is_from_what_was_predicted() -> None:
    points = points_of(Model(0.2, 2.0, 7.0), (250_000, 250), (1_000_000, 1_000), (200_000, 200_000))
    *_, model, check = report("producer", points, Point(500_000, 50_000, 1.55))
    assert model == "producer: 0.20 s + 2.00 µs a row + 7.00 µs a transaction"
    assert check == "producer: 500,000 rows in 50,000 transactions: predicted 1.55 s, measured 1.55 s (+0%)"


def test_sizing_counts_cores_without_what_is_fixed() -> None:
    assert sizing(Model(99.0, 2.0, 8.0))[0] == "1,000 rows/s in 250 transactions/s: 0.004 cores"
    assert sizing(Model(99.0, 2.0, 8.0))[-1] == "1,000,000 rows/s in 250,000 transactions/s: 4.000 cores"
