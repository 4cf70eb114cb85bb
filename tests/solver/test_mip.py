"""Rows that stand for a CP-SAT model: the same points, worth the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from random import Random

import numpy as np
import pytest
from ortools.sat.python.cp_model import CpModel, CpSolver, Domain, IntVar, LinearExpr

from cpalloc.solver.mip import Mip, NotLinear, mip_of
from cpalloc.solver.outcome import Status
from cpalloc.solver.run import minimise
from models.fixing import ONE_WORKER

Point = tuple[int, ...]
Rule = Callable[[Point], bool]
Row = tuple[dict[int, int], float, float]


class Drawn:
    """A model drawn at random over booleans a and b and integers x and y, and the same rules in plain Python."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.model = rng, CpModel()
        lows = [0, 0, rng.randint(-2, 0), rng.randint(-1, 2)]
        self.boxes = [range(low, low + size) for low, size in zip(lows, (2, 2, 4, rng.randint(1, 4)), strict=True)]
        new = self.model.new_int_var
        self.variables: list[IntVar] = [self.model.new_bool_var(name) for name in "ab"]
        self.variables += [new(box[0], box[-1], name) for box, name in zip(self.boxes[2:], "xy", strict=True)]
        self.rules: list[Rule] = []
        self.positions, self.shared = 0, False
        for _ in range(rng.randint(0, 3)):
            rng.choice([self.row, self.row, self.row, self.clause, self.all_of, self.implication])()
        if rng.random() < 0.5:
            self.tables()
        factors, offset = [rng.randint(-3, 3) for _ in self.boxes], rng.randint(-5, 5)
        self.model.minimize(LinearExpr.weighted_sum(self.variables, factors) + offset)
        self.worth = lambda at: sum(f * v for f, v in zip(factors, at, strict=True)) + offset

    def literals(self, number: int) -> tuple[list[IntVar], Rule, Rule]:
        """Some literals, whether all of them hold, and whether one does; the same may come twice, or both ways."""
        drawn = [(self.rng.randrange(2), self.rng.random() < 0.5) for _ in range(number)]
        literals = [self.variables[i] if positive else ~self.variables[i] for i, positive in drawn]
        return (
            literals,
            lambda at: all(at[i] == positive for i, positive in drawn),
            lambda at: any(at[i] == positive for i, positive in drawn),
        )

    def row(self) -> None:
        among = [self.rng.randrange(4) for _ in range(self.rng.randint(1, 5))]
        factors = [self.rng.choice([-3, -2, -1, 1, 2, 3]) for _ in among]
        kind, right = self.rng.randrange(4), self.rng.randint(-4, 6)
        low, high = [(right, right), (right, 99), (-99, right), (right - 2, right)][kind]
        only_if, enforced, _ = self.literals(self.rng.randrange(3))
        total = LinearExpr.weighted_sum([self.variables[i] for i in among], factors) + 1
        rows = [total == right, total >= right, total <= right]
        row = self.model.add_linear_constraint(total, low, high) if kind == 3 else self.model.add(rows[kind])
        row.only_enforce_if(only_if)
        self.rules.append(
            lambda at: (
                not enforced(at) or low <= sum(f * at[i] for i, f in zip(among, factors, strict=True)) + 1 <= high
            )
        )

    def clause(self) -> None:
        literals, _, one = self.literals(self.rng.randint(1, 3))
        only_if, enforced, _ = self.literals(self.rng.randrange(2))
        self.model.add_bool_or(literals).only_enforce_if(only_if)
        self.rules.append(lambda at: not enforced(at) or one(at))

    def all_of(self) -> None:
        literals, every, _ = self.literals(self.rng.randint(1, 2))
        only_if, enforced, _ = self.literals(self.rng.randint(1, 2))
        self.model.add_bool_and(literals).only_enforce_if(only_if)
        self.rules.append(lambda at: not enforced(at) or every(at))

    def implication(self) -> None:
        (first,), one, _ = self.literals(1)
        (second,), other, _ = self.literals(1)
        self.model.add_implication(first, second)
        self.rules.append(lambda at: not one(at) or other(at))

    def tables(self) -> None:
        """One or two tables, of the same index or of another, of the same length or of another."""
        indices: list[tuple[int, int, int, int]] = []
        i, factor, shift = 0, 1, 0
        for again in (False, True)[: self.rng.choice([1, 2, 2])]:
            if not again or self.rng.random() < 0.4:
                i, factor, shift = self.rng.choice([0, 2, 3]), self.rng.choice([1, 1, -1, 2]), self.rng.randint(0, 1)
            values = [self.rng.randint(-1, 2) for _ in range(self.rng.choice([2, 3, 3, 3]))]
            self.table((i, factor, shift), values, self.rng.choice([0, 2, 3]), self.rng.choice([1, 1, 1, -2]))
            indices.append((i, factor, shift, len(values)))
        self.positions, self.shared = sum(length for *_, length in set(indices)), len(set(indices)) < len(indices)

    def table(self, index: tuple[int, int, int], values: Sequence[int], j: int, twice: int) -> None:
        i, factor, shift = index
        self.model.add_element(factor * self.variables[i] + shift, values, twice * self.variables[j] + 1)

        def rule(at: Point) -> bool:
            position = factor * at[i] + shift
            return 0 <= position < len(values) and values[position] == twice * at[j] + 1

        self.rules.append(rule)


def whole(mip: Mip, at: Point) -> set[int]:
    """What a point is worth with the helpers at whatever values suit; empty where none do."""
    ranges = [range(a, b + 1) for a, b in zip(mip.low[mip.own :], mip.high[mip.own :], strict=True)]
    worth = (mip.worth(np.array([*at, *rest], dtype=np.int64)) for rest in product(*ranges))
    return {w for w in worth if w is not None}


def rows_of(mip: Mip) -> list[Row]:
    """(factor per column, least, most) of every row."""
    spans = zip(mip.start, mip.start[1:], mip.least, mip.most, strict=False)
    return [
        (dict(zip(mip.column[a:b].tolist(), mip.factor[a:b].tolist(), strict=True)), float(least), float(most))
        for a, b, least, most in spans
    ]


# -- against the definition -------------------------------------------------------------------------------------------


def test_a_point_is_worth_something_iff_it_keeps_every_rule() -> None:
    seen = {"kept": 0, "broken": 0, "tables": 0, "shared": 0}
    for seed in range(250):
        drawn = Drawn(Random(seed))
        mip = mip_of(drawn.model)
        assert mip.own == len(drawn.variables)
        assert len(mip.low) - mip.own == drawn.positions  # one set of helpers for every index
        for at in product(*drawn.boxes):
            kept = all(rule(at) for rule in drawn.rules)
            assert whole(mip, at) == ({drawn.worth(at)} if kept else set()), (seed, at)
            seen["kept" if kept else "broken"] += 1
            seen["tables"] += kept and bool(drawn.positions)
            seen["shared"] += kept and drawn.shared
    assert min(seen.values()) >= 30, seen


def test_the_plain_rules_are_those_of_the_solver() -> None:
    found = 0
    for seed in range(60):
        drawn = Drawn(Random(seed))
        best = min((drawn.worth(p) for p in product(*drawn.boxes) if all(r(p) for r in drawn.rules)), default=None)
        solver = CpSolver()
        solver.parameters.num_workers = 1
        assert solver.status_name(solver.solve(drawn.model)) == ("INFEASIBLE" if best is None else "OPTIMAL"), seed
        assert best is None or round(solver.objective_value) == best, seed
        found += best is not None
    assert 10 <= found <= 55


def test_whatever_lies_outside_a_domain_is_worth_nothing() -> None:
    model = CpModel()
    model.minimize(2 * model.new_int_var(-1, 3, "x") + 5)
    assert [mip_of(model).worth(np.array([x])) for x in (-2, -1, 3, 4)] == [None, 3, 11, None]


# -- as tight as the domains allow ------------------------------------------------------------------------------------


def test_at_most_so_much_leaves_the_points_that_are_worth_no_more() -> None:
    rng, bounded = Random(5), 0
    for _ in range(200):
        drawn = Drawn(rng)
        mip = mip_of(drawn.model)
        at_most, points = mip.at_most(0), list(product(*drawn.boxes))
        if mip.own < len(mip.low):
            continue  # positions of tables are variables of the rows alone
        for point in points:
            worth = mip.worth(np.array(point))
            bounded += worth is not None and worth > 0
            assert at_most.worth(np.array(point)) == (worth if worth is not None and worth <= 0 else None)
    assert bounded > 500


def test_rows_that_always_hold_are_left_as_they_are() -> None:
    # What nothing can exceed is no limit: 2x - y <= 20 says no more than the domains do.
    model = CpModel()
    x, y = model.new_int_var(0, 10, "x"), model.new_int_var(0, 4, "y")
    model.add_linear_constraint(2 * x - y, 3, 20)
    model.add(2 * x - y >= -5)
    assert rows_of(mip_of(model)) == [({0: 2, 1: -1}, 3, np.inf), ({0: 2, 1: -1}, -np.inf, np.inf)]


def test_what_is_conditional_has_the_least_big_m() -> None:
    # 2x - y lies in [-4, 20]: below 6 only if b takes 20 - 6 = 14 away, above 3 only if it takes -4 - 3 = -7.
    model = CpModel()
    x, y, b = model.new_int_var(0, 10, "x"), model.new_int_var(0, 4, "y"), model.new_bool_var("b")
    model.add_linear_constraint(2 * x - y, 3, 6).only_enforce_if(b)
    assert rows_of(mip_of(model)) == [({0: 2, 1: -1, 2: 14}, -np.inf, 20), ({0: 2, 1: -1, 2: -7}, -4, np.inf)]


def test_a_negated_literal_takes_it_the_other_way_round() -> None:
    # x <= 6 unless b: x - 4b <= 6, which is 10 with b.
    model = CpModel()
    x, b = model.new_int_var(0, 10, "x"), model.new_bool_var("b")
    model.add(x <= 6).only_enforce_if(~b)
    assert rows_of(mip_of(model)) == [({0: 1, 1: -4}, -np.inf, 6)]


def test_each_of_several_literals_lifts_the_row_alone() -> None:
    # x <= 6 if a and not b: x + 4a - 4b <= 10.
    model = CpModel()
    x, a, b = model.new_int_var(0, 10, "x"), model.new_bool_var("a"), model.new_bool_var("b")
    model.add(x <= 6).only_enforce_if(a, ~b)
    assert rows_of(mip_of(model)) == [({0: 1, 1: 4, 2: -4}, -np.inf, 10)]


def test_a_literal_that_is_in_the_row_as_well_has_one_factor() -> None:
    # x + 3b <= 8 if b, at most 13: M = 5 beside the 3, which is x <= 5 with b.
    model = CpModel()
    x, b = model.new_int_var(0, 10, "x"), model.new_bool_var("b")
    model.add(x + 3 * b <= 8).only_enforce_if(b)
    assert rows_of(mip_of(model)) == [({0: 1, 1: 8}, -np.inf, 13)]


def test_what_the_domains_say_anyhow_makes_no_conditional_row() -> None:
    model = CpModel()
    x, b = model.new_int_var(0, 10, "x"), model.new_bool_var("b")
    model.add_linear_constraint(x, -1, 10).only_enforce_if(b)
    assert rows_of(mip_of(model)) == []


def test_literals_make_clauses() -> None:
    # a or not b: a + (1 - b) >= 1; both if c: a >= c and b >= c.
    model = CpModel()
    a, b, c = (model.new_bool_var(name) for name in "abc")
    model.add_bool_or(a, ~b)
    model.add_bool_and(a, b).only_enforce_if(c)
    assert rows_of(mip_of(model)) == [
        ({0: 1, 1: -1}, 0, np.inf),
        ({0: 1, 2: -1}, 0, np.inf),
        ({1: 1, 2: -1}, 0, np.inf),
    ]


def test_a_clause_of_nothing_cannot_hold() -> None:
    model = CpModel()
    model.new_bool_var("a")
    model.add_bool_or([])
    assert [mip_of(model).worth(np.array([a])) for a in (0, 1)] == [None, None]


# -- what no rows stand for -------------------------------------------------------------------------------------------


def multiplied(model: CpModel, x: IntVar, y: IntVar, b: IntVar) -> None:
    model.add_multiplication_equality(y, [x, x])


def with_gaps(model: CpModel, x: IntVar, y: IntVar, b: IntVar) -> None:
    model.add_linear_expression_in_domain(x + y, Domain.from_values([1, 3]))


def not_equal(model: CpModel, x: IntVar, y: IntVar, b: IntVar) -> None:
    model.add(x != y)


def at_most_one(model: CpModel, x: IntVar, y: IntVar, b: IntVar) -> None:
    model.add_at_most_one(b, model.new_bool_var("c"))


def of_variables(model: CpModel, x: IntVar, y: IntVar, b: IntVar) -> None:
    model.add_element(x, [1, y, 2], 2)


def conditional(model: CpModel, x: IntVar, y: IntVar, b: IntVar) -> None:
    model.add_element(x, [1, 3, 2], y).only_enforce_if(b)


@pytest.mark.parametrize("add", [multiplied, with_gaps, not_equal, at_most_one, of_variables, conditional])
def test_anything_else_is_refused(add: Callable[[CpModel, IntVar, IntVar, IntVar], None]) -> None:
    model = CpModel()
    add(model, model.new_int_var(0, 3, "x"), model.new_int_var(0, 9, "y"), model.new_bool_var("b"))
    with pytest.raises(NotLinear):
        mip_of(model)


# -- the model itself -------------------------------------------------------------------------------------------------


def test_a_model_is_not_changed_by_being_stated() -> None:
    drawn = Drawn(Random(3))
    before = str(drawn.model.proto)
    mip_of(drawn.model)
    assert str(drawn.model.proto) == before


def test_the_optimum_is_worth_in_rows_what_the_solver_says() -> None:
    model = CpModel()
    x, y = model.new_int_var(0, 3, "x"), model.new_int_var(-9, 9, "y")
    model.add_element(x, [4, 1, -2, 3], y)
    run = minimise(model, 3 * y + x + 7, options=ONE_WORKER, limit_s=60.0)
    assert run.status is Status.OPTIMAL
    assert run.values is not None
    assert whole(mip_of(model), tuple(run.values)) == {run.objective} == {3}


def test_what_rows_of_floats_do_not_hold_exactly_is_refused() -> None:
    gaps = CpModel()
    gaps.new_int_var_from_domain(Domain.from_values([0, 5]), "x")
    large = CpModel()
    large.add(3 * large.new_int_var(0, 2**55, "x") <= 2**54 + 1)
    upwards = CpModel()
    upwards.maximize(upwards.new_bool_var("x"))
    for model in (gaps, large, upwards):
        with pytest.raises(NotLinear):
            mip_of(model)
