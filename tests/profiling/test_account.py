"""Each nanosecond of a step is in one category, and in the right one."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.layout import Layout
from stoker.profiling.account import CATEGORIES, StepAccount, account_of, work_of
from stoker.profiling.intervals import of_pairs
from stoker.profiling.trace import RankTrace
from tests.profiling import made_up as m

TWO = Layout(dp_replicate=2)
PIPELINE = Layout(pp=2)


def only(trace: RankTrace, layout: Layout = TWO) -> StepAccount:
    (account,) = account_of(trace, layout)
    return account


def shown(account: StepAccount) -> dict[str, float]:
    """Categories that have any time, in microseconds."""
    return {name: value / 1e3 for name, value in account.categories.items() if value}


def test_a_step_on_a_processor() -> None:
    account = only(
        m.trace(
            m.step(3, 0, 100),
            m.phase("data", 0, 10),
            m.phase("forward", 10, 40),
            m.operator("aten::linear", 12, 30),
            m.operator("aten::addmm", 14, 29, [8], [4, 8], [8, 8]),
            m.phase("backward", 40, 70),
            m.operator("autograd::engine::evaluate_function: MmBackward0", 41, 60),
            m.operator("aten::mm", 45, 60, [4, 8], [8, 8]),
            m.gloo("all_reduce", 50, 74),
            m.phase("communication", 70, 80),
            m.phase("optimizer", 80, 95),
            m.operator("aten::_fused_adamw_", 81, 90),
        )
    )
    assert account.step == 3
    # linear and what it calls, 12 to 30, and mm, 45 to 60: autograd's own node computes nothing.
    assert shown(account) == {
        "compute": 33,
        "exposed_communication": 10,
        "data": 10,
        "optimizer": 15,
        "host": 32,
    }
    assert account.compute == {"matrix products": 30_000, "other": 3_000}
    assert account.exposed == {("all_reduce", "unknown"): 4_000, ("waiting", ""): 6_000}
    assert account.overlapped == 10_000
    assert account.communication == 30_000


def test_a_step_on_an_accelerator_is_what_its_kernels_did() -> None:
    account = only(
        m.trace(
            m.step(1, 0, 100),
            m.phase("forward", 0, 5),
            m.operator("aten::mm", 1, 2, number=5),
            m.operator("aten::scaled_dot_product_attention", 2, 4, number=6),
            m.operator("aten::silu", 4, 5, number=7),
            m.phase("optimizer", 5, 8),
            m.operator("aten::_fused_adamw_", 6, 7, number=8),
            m.kernel("sm90_gemm", 10, 30, 5),
            m.kernel("flash_fwd", 30, 40, 6),
            m.kernel("elementwise_kernel", 38, 45, 7),
            m.kernel("adamw", 80, 90, 8),
            m.nccl("allreduce", 35, 60),
            on_device=True,
        )
    )
    assert shown(account) == {"compute": 35, "exposed_communication": 15, "optimizer": 13, "host": 37}
    assert account.compute == {"attention": 10_000, "elementwise": 5_000, "matrix products": 20_000}
    assert account.exposed == {("all_reduce", "dp_replicate"): 15_000}
    assert account.overlapped == 10_000


def test_waiting_for_stages_is_the_bubble() -> None:
    account = only(
        m.trace(
            m.step(1, 0, 50),
            m.phase("communication", 0, 20),
            m.wait("stages", 0, 20),
            m.gloo("recv", 0, 20, thread=m.MAIN),
            m.phase("forward", 20, 40),
            m.operator("aten::mm", 20, 35),
            m.phase("communication", 40, 45),
        ),
        PIPELINE,
    )
    assert shown(account) == {"compute": 15, "exposed_communication": 5, "pipeline_bubble": 20, "host": 10}


def test_a_wait_inside_an_operator_is_no_computation() -> None:
    account = only(
        m.trace(
            m.step(1, 0, 50),
            m.phase("backward", 0, 40),
            m.operator("stoker::gathered", 5, 35),
            m.wait("weights", 10, 30),
            m.gloo("all_gather", 12, 28),
        )
    )
    assert shown(account) == {"compute": 10, "exposed_communication": 20, "host": 20}


def test_what_a_collective_does_in_its_own_thread_is_no_computation() -> None:
    copy = m.event("cpu_op", "aten::copy_", 12, 18, m.BACKGROUND)
    account = only(m.trace(m.step(1, 0, 30), m.gloo("all_gather", 10, 20), copy))
    assert shown(account) == {"host": 30}


def test_what_backward_computes_again_is_told_apart() -> None:
    noted = {"Sequence number": 4, "Fwd thread id": 0}
    account = only(
        m.trace(
            m.step(1, 0, 60),
            m.phase("forward", 0, 20),
            m.operator("aten::mm", 0, 20, **noted),
            m.phase("backward", 20, 60),
            m.operator("autograd::engine::evaluate_function: X", 20, 60, **{**noted, "Fwd thread id": 1}),
            m.operator("aten::linear", 22, 40, **noted),
            m.operator("aten::addmm", 24, 40),
            m.operator("aten::mm", 42, 60),
        )
    )
    assert account.repeated == 18_000


def test_what_is_inside_an_attention_is_attention() -> None:
    account = only(
        m.trace(
            m.step(1, 0, 20),
            m.operator("aten::_scaled_dot_product_attention_math", 0, 20),
            m.operator("aten::bmm", 2, 9, [2, 4, 8], [2, 8, 4]),
            m.operator("aten::_softmax", 10, 15),
        )
    )
    assert account.compute == {"attention": 20_000}


_NAMES = ["aten::mm", "aten::add", "aten::copy_", "c10d::allreduce_", "MmBackward0"]
_moments = st.tuples(st.integers(-20, 220), st.integers(0, 90)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@st.composite
def drawn(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Events of any kind anywhere around a step, phases one after another."""
    found = [m.step(1, 0, 200)]
    cursor = 0
    for name in draw(st.lists(st.sampled_from(["data", "forward", "backward", "communication", "optimizer"]))):
        end = cursor + draw(st.integers(1, 60))
        found.append(m.phase(name, cursor, end))
        cursor = end
    for start, end in draw(st.lists(_moments, max_size=8)):
        found.append(m.operator(draw(st.sampled_from(_NAMES)), start, end))
    for start, end in draw(st.lists(_moments, max_size=5)):
        found.append(m.gloo(draw(st.sampled_from(["all_reduce", "all_gather"])), start, end))
    for start, end in draw(st.lists(_moments, max_size=3)):
        found.append(m.wait(draw(st.sampled_from(["stages", "gradients"])), start, end))
    return found


@settings(max_examples=50)
@given(drawn())
def test_categories_are_the_whole_step_exactly(events: list[dict[str, Any]]) -> None:
    account = only(m.trace(*events), PIPELINE)
    assert set(account.categories) == set(CATEGORIES)
    assert sum(account.categories.values()) == account.wall == 200_000
    assert sum(account.compute.values()) == account.categories["compute"]
    assert sum(account.exposed.values()) == account.categories["exposed_communication"]


@settings(max_examples=50)
@given(drawn(), st.randoms(use_true_random=False))
def test_the_order_of_events_does_not_matter(events: list[dict[str, Any]], random: Random) -> None:
    shuffled = list(events)
    random.shuffle(shuffled)
    one, other = only(m.trace(*events), PIPELINE), only(m.trace(*shuffled), PIPELINE)
    assert (one.categories, one.compute, one.exposed) == (other.categories, other.compute, other.exposed)
    assert (one.communication, one.overlapped) == (other.communication, other.overlapped)


@given(st.lists(_moments, max_size=8), st.lists(_moments, max_size=8))
def test_exposed_is_communication_without_computation(
    computed: list[tuple[int, int]], sent: list[tuple[int, int]]
) -> None:
    kernels = [m.kernel("sm90_gemm", start, end) for start, end in computed]
    account = only(
        m.trace(m.step(1, 0, 200), *kernels, *(m.nccl("allreduce", *one) for one in sent), on_device=True)
    )
    window = of_pairs([(0, 200)])
    compute, communication = of_pairs(computed) & window, of_pairs(sent) & window
    assert account.categories["compute"] == compute.total * 1_000
    assert account.categories["exposed_communication"] == (communication - compute).total * 1_000
    assert account.overlapped == (communication & compute).total * 1_000


def test_work_of_no_known_operator_is_named_by_its_kernel() -> None:
    (work,) = work_of(m.trace(m.step(1, 0, 9), m.kernel("ampere_sgemm_128x64", 0, 5), on_device=True))
    assert (work.family, work.operator) == ("matrix products", None)


@pytest.mark.parametrize("steps", [1, 3])
def test_each_step_has_an_account(steps: int) -> None:
    accounts = account_of(m.trace(*(m.step(n, 10 * n, 10 * n + 8) for n in range(steps))), TWO)
    assert [account.step for account in accounts] == list(range(steps))
    assert all(account.categories["host"] == account.wall == 8_000 for account in accounts)
