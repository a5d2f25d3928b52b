"""What a plan says, refuses and explains."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from stoker.errors import BadInput
from stoker.layout import Layout
from stoker.model import flops_per_token, parameter_count
from stoker.planning import accelerators, make_plan, require_fits
from stoker.planning.host_memory import host_memory, offloaded_bytes
from stoker.planning.operations import block_matmuls, loss_matmuls
from stoker.planning.plan import PeakMemory, needed_bytes, what_fits
from stoker.recipe import Recipe
from tests.planning.machines import GIB, RATES, machine
from tests.planning.test_memory import recipe_of


def with_overrides(recipe: Recipe, overrides: str) -> Recipe:
    """`recipe` with `a.b=c d.e=f` put in."""
    content = recipe.model_dump()
    for override in overrides.split():
        key, _, value = override.partition("=")
        *path, leaf = key.split(".")
        target = content
        for part in path:
            target = target[part]
        target[leaf] = yaml.safe_load(value)
    return Recipe.model_validate(content)


MODEL = {"hidden_size": 64, "layers": 2, "heads": 4, "ffn_hidden_size": 160}


def test_what_is_offloaded_must_fit_into_the_hosts_memory() -> None:
    recipe = recipe_of(MODEL, memory={"offload_parameters": True})
    assert offloaded_bytes(recipe, 512, machine(device="cuda")) > 2 * 4 * parameter_count(recipe.model, 512).total
    needed = round(host_memory(recipe, 512, machine(device="cuda")).total * GIB)
    room = machine(device="cuda", host_available_bytes=needed)
    little = machine(device="cuda", host_available_bytes=needed // 2)
    require_fits(recipe, 512, room)
    assert make_plan(recipe, 512, room).warnings == make_plan(recipe_of(MODEL), 512, room).warnings
    with pytest.raises(BadInput, match="of host memory"):
        require_fits(recipe, 512, little)
    assert any("of host memory" in line for line in make_plan(recipe, 512, little).warnings)
    tight = machine(device="cuda", available_bytes=GIB // 400, host_available_bytes=0)
    assert not any("offload" in one.overrides for one in what_fits(recipe_of(MODEL), 512, tight))


def test_weights_on_the_host_leave_the_device() -> None:
    def planned(**memory: bool) -> PeakMemory:
        recipe = recipe_of({**MODEL, "layers": 12}, memory=memory)
        return make_plan(recipe, 512, machine(device="cuda")).peak_memory_gib

    away, here = planned(offload_parameters=True), planned()
    assert away.parameters == away.gradients == away.optimizer == 0
    assert away.total < here.total - 0.5 * (here.parameters + here.gradients + here.optimizer)


def test_results_that_recomputation_keeps_are_not_offloaded() -> None:
    def kept(recompute: str) -> float:
        memory = {"offload_activations": True, "recompute": {"name": recompute}}
        recipe = recipe_of({**MODEL, "layers": 12}, memory=memory)
        return make_plan(recipe, 512, machine(device="cuda")).peak_memory_gib.activations

    assert kept("operations") > 2 * kept("none") > 2 * kept("full")


def test_a_plan_has_the_shape_that_readers_expect() -> None:
    plan = make_plan(recipe_of(MODEL), 512, machine())
    figures = json.loads(json.dumps(plan.model_dump(mode="json")))
    assert figures["layout"] == Layout().model_dump(mode="json")
    assert set(figures["peak_memory_gib"]) == {
        "parameters", "gradients", "optimizer", "activations", "buffers", "total"
    }  # fmt: skip
    assert set(figures["step_seconds"]) == {
        "compute", "recompute", "tp", "cp", "ep", "dp", "pp_bubble", "offload", "optimizer", "total"
    }  # fmt: skip
    assert figures["parameters"] == parameter_count(recipe_of(MODEL).model, 512).total
    for field in ("micro_batch_size", "accumulation", "tokens_per_second_per_gpu", "mfu", "model_flops_per_step"):
        assert figures[field] is not None


def test_parts_add_up_and_speeds_follow_from_the_step() -> None:
    recipe = recipe_of(MODEL, {"dp_replicate": 2}, global_batch_size=8)
    plan = make_plan(recipe, 512, machine())
    step = plan.step_seconds
    assert step.total == pytest.approx(step.compute + step.dp + step.optimizer)
    assert plan.tokens_per_second == pytest.approx(8 * 32 / step.total)
    assert plan.tokens_per_second_per_gpu == pytest.approx(plan.tokens_per_second / 2)
    assert plan.model_flops_per_step == flops_per_token(recipe.model, 512, 32).full * 8 * 32
    assert plan.mfu == pytest.approx(plan.model_flops_per_step / step.total / (2 * RATES.matmul_flops_per_second))
    assert plan.total_hours == pytest.approx(10 * step.total / 3600)


def test_products_counted_for_time_are_the_models_flops() -> None:
    recipe = recipe_of(MODEL, global_batch_size=4, micro_batch_size=4)
    tokens = 4 * 32
    blocks = 2 * sum(matmul.flops for matmul in block_matmuls(recipe.model, tokens))
    head = 6 * tokens * 64 * 512
    assert blocks + head == flops_per_token(recipe.model, 512, 32).matrix * tokens
    from stoker.planning.memory import pass_of

    assert sum(m.flops for m in loss_matmuls(recipe.model, pass_of(recipe, 512, 4, "cpu"))) == head


@pytest.mark.parametrize(
    "changes",
    [
        {"moe": {"experts": 4, "experts_per_token": 2, "shared_experts": 1, "first_dense_layers": 1}},
        {
            "kv_heads": None,
            "latent_attention": {
                "kv_rank": 8,
                "query_rank": 12,
                "nope_head_size": 8,
                "rope_head_size": 4,
                "value_head_size": 6,
            },
        },
    ],
    ids=["experts", "latent"],
)
def test_products_of_every_architecture_are_its_flops(changes: dict[str, Any]) -> None:
    model = recipe_of({**MODEL, **changes}, global_batch_size=4, micro_batch_size=4).model
    tokens = 4 * 32
    blocks = sum(matmul.flops for layer in range(model.layers) for matmul in block_matmuls(model, tokens, layer))
    assert blocks + 6 * tokens * model.hidden_size * 512 == flops_per_token(model, 512, 32).matrix * tokens


def test_accumulation_splits_the_batch_and_costs_the_same_products() -> None:
    whole = make_plan(recipe_of(MODEL, global_batch_size=8, micro_batch_size=8), 512, machine())
    split = make_plan(recipe_of(MODEL, global_batch_size=8, micro_batch_size=2), 512, machine())
    assert (whole.accumulation, split.accumulation) == (1, 4)
    assert split.peak_memory_gib.activations < whole.peak_memory_gib.activations
    assert split.step_seconds.compute == pytest.approx(whole.step_seconds.compute, rel=0.05)


def test_a_ramp_is_planned_at_its_largest_batch_and_its_hours_added_up() -> None:
    ramp = [{"step": 6, "global_batch_size": 16}]
    plan = make_plan(recipe_of(MODEL, global_batch_size=4, micro_batch_size=4, batch_ramp=ramp), 512, machine())
    assert plan.global_batch_size == 16
    small = make_plan(recipe_of(MODEL, global_batch_size=4, micro_batch_size=4), 512, machine())
    assert plan.total_hours * 3600 == pytest.approx(5 * small.step_seconds.total + 5 * plan.step_seconds.total)


def test_more_ranks_communicate_and_one_does_not() -> None:
    assert make_plan(recipe_of(MODEL), 512, machine()).step_seconds.dp == 0
    replicated = make_plan(recipe_of(MODEL, {"dp_replicate": 4}), 512, machine()).step_seconds.dp
    sharded = make_plan(recipe_of(MODEL, {"dp_shard": 4}), 512, machine()).step_seconds.dp
    assert 0 < replicated < sharded


def test_what_cannot_fit_is_refused_with_what_would() -> None:
    recipe = recipe_of({**MODEL, "layers": 8}, sequence_length=512, global_batch_size=64, micro_batch_size=64)
    needed = make_plan(recipe, 512, machine()).needed_memory_gib
    small = machine(available_bytes=int(needed * GIB / 4))
    plan = make_plan(recipe, 512, small)
    assert any("this would fit: training." in warning for warning in plan.warnings)
    with pytest.raises(BadInput, match=r"would not fit: it needs .* free. this would fit: training.") as refused:
        require_fits(recipe, 512, small)
    found = what_fits(recipe, 512, small)
    assert len(found) == 3
    assert [one.slowdown for one in found] == sorted(one.slowdown for one in found)
    assert all(str(one) in str(refused.value) for one in found)
    for one in found:
        changed = with_overrides(recipe, one.overrides)
        require_fits(changed, 512, small)
        assert needed_bytes(changed, 512, small) == one.needed_bytes


def test_a_remedy_says_what_it_costs() -> None:
    recipe = recipe_of({**MODEL, "layers": 8}, sequence_length=512, global_batch_size=64, micro_batch_size=1)
    needed = needed_bytes(recipe, 512, machine())
    [full, *_] = what_fits(recipe, 512, machine(available_bytes=needed - 1))[::-1]
    assert "recompute" in full.overrides
    assert 0.02 < full.slowdown < 0.5
    assert "slower)" in str(full)


def test_sharding_is_proposed_where_smaller_micro_batches_do_not_help() -> None:
    wide = {"hidden_size": 512, "layers": 4, "heads": 8, "ffn_hidden_size": 2048}
    recipe = recipe_of(wide, {"dp_replicate": 4}, global_batch_size=4)
    needed = make_plan(recipe, 2048, machine(device="cuda")).needed_memory_gib
    accelerator = machine(device="cuda", available_bytes=int(needed * GIB * 0.8))
    plan = make_plan(recipe, 2048, accelerator)
    assert any("layout.dp_shard=" in warning for warning in plan.warnings)


def test_a_model_that_nothing_can_fit_says_so() -> None:
    tiny = machine(available_bytes=2 * 2**20)
    with pytest.raises(BadInput, match="no smaller micro-batch, recomputation or sharding fits either"):
        require_fits(recipe_of(MODEL), 512, tiny)


@pytest.mark.parametrize(
    "impossible",
    [
        {"hidden_size": 10**6},
        {"hidden_size": 10**12},
        {"layers": 10**9},
        {"ffn_hidden_size": 10**12},
        {"heads": 10**9, "hidden_size": 64 * 10**9},
    ],
    ids=str,
)
def test_a_model_beyond_any_machine_is_refused_from_its_size_alone(impossible: dict[str, int]) -> None:
    with pytest.raises(BadInput, match=r"would not fit.*Weights and gradients alone"):
        require_fits(recipe_of({**MODEL, **impossible}), 512, machine())


def test_sizes_with_countless_divisions_are_judged_at_once() -> None:
    recipe = recipe_of(MODEL, global_batch_size=8_648_640, micro_batch_size=8_648_640)
    with pytest.raises(BadInput, match=r"this would fit: .*training\.micro_batch_size="):
        require_fits(recipe, 512, machine())


def test_a_run_a_little_over_what_is_free_is_warned_of_and_not_refused() -> None:
    needed = make_plan(recipe_of(MODEL), 512, machine()).needed_memory_gib
    tight = machine(available_bytes=int(needed * GIB * 0.95))
    plan = make_plan(recipe_of(MODEL), 512, tight)
    assert plan.warnings
    require_fits(recipe_of(MODEL), 512, tight)


def test_ranks_on_one_processor_share_its_memory() -> None:
    one = make_plan(recipe_of(MODEL), 512, machine())
    four = make_plan(recipe_of(MODEL, {"dp_replicate": 4}), 512, machine())
    assert one.needed_memory_gib == pytest.approx(one.peak_memory_gib.total + one.host_memory_gib.total)
    assert four.needed_memory_gib == pytest.approx(4 * four.peak_memory_gib.total + four.host_memory_gib.total)


def test_an_unknown_accelerator_has_no_utilisation() -> None:
    unknown = machine(device="cuda", name="a new accelerator", accelerator=None)
    plan = make_plan(recipe_of(MODEL, precision="bf16"), 512, unknown)
    assert plan.mfu is None
    assert any("no published bf16 peak" in warning for warning in plan.warnings)


def test_a_known_accelerator_is_held_against_its_published_peak() -> None:
    known = accelerators()["nvidia h100 80gb hbm3"]
    plan = make_plan(recipe_of(MODEL, precision="bf16"), 512, machine(device="cuda", accelerator=known))
    assert plan.mfu == pytest.approx(plan.model_flops_per_step / plan.step_seconds.total / 989e12)
    assert any("989" in reason and "stas00/ml-engineering" in reason for reason in plan.reasons)
    assert make_plan(recipe_of(MODEL), 512, machine(device="cuda", accelerator=known)).mfu is None


def test_compiled_blocks_move_fewer_bytes_and_keep_fewer() -> None:
    eager = make_plan(recipe_of(MODEL), 512, machine())
    compiled = make_plan(recipe_of(MODEL, compile=True), 512, machine())
    assert compiled.step_seconds.compute < eager.step_seconds.compute
    assert compiled.peak_memory_gib.activations < eager.peak_memory_gib.activations


def test_a_plan_reads_as_text() -> None:
    plan = make_plan(recipe_of(MODEL, {"dp_shard": 2}), 512, machine())
    text = str(plan)
    for word in ("machine ", "memory ", "step ", "speed ", "in all ", "reason ", "dp_shard=2"):
        assert word in text
    assert plan.explain().count("\n") >= 4


DIVIDED_MODEL = {"hidden_size": 64, "layers": 8, "heads": 4, "ffn_hidden_size": 160}
EXPERTS = {"moe": {"experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 96}}


@pytest.mark.parametrize(
    ("layout", "waits_for"),
    [
        ({"tp": 2}, {"tp"}),
        ({"cp": 2}, {"cp", "dp"}),
        ({"pp": 2}, {"pp_bubble"}),
        ({"dp_replicate": 2, "ep": 2}, {"ep", "dp"}),
        ({"tp": 2, "ep": 2, "expert_tp": False}, {"tp", "ep"}),
        ({"pp": 2, "tp": 2, "dp_shard": 2, "cp": 2}, {"tp", "cp", "dp", "pp_bubble"}),
    ],
    ids=lambda value: ",".join(sorted(value)),
)
def test_a_step_has_the_parts_that_its_layout_waits_for(layout: dict[str, Any], waits_for: set[str]) -> None:
    model = {**DIVIDED_MODEL, **(EXPERTS if "ep" in layout else {})}
    step = make_plan(recipe_of(model, layout, global_batch_size=8, micro_batch_size=1), 512, machine()).step_seconds
    parts = step.model_dump(exclude={"total"})
    assert {name for name, value in parts.items() if value} == {"compute", "optimizer", *waits_for}
    assert step.total == pytest.approx(sum(parts.values()))


@pytest.mark.parametrize("layout", [{"tp": 2}, {"cp": 2}, {"pp": 2}, {"tp": 2, "cp": 2, "pp": 2}], ids=str)
def test_ranks_of_one_model_share_its_computation(layout: dict[str, Any]) -> None:
    def compute(**layout: Any) -> float:
        recipe = recipe_of(DIVIDED_MODEL, layout, global_batch_size=8, micro_batch_size=1, sequence_length=256)
        return make_plan(recipe, 512, machine(device="cuda")).step_seconds.compute

    ranks = recipe_of(DIVIDED_MODEL, layout).layout.world_size
    assert compute(**layout) == pytest.approx(compute() / ranks, rel=0.15)


def test_the_bubble_is_the_schedules() -> None:
    def step(schedule: str, micro_batches: int) -> Any:
        recipe = recipe_of(
            DIVIDED_MODEL,
            {"pp": 2, "pipeline_schedule": schedule},
            global_batch_size=micro_batches,
            micro_batch_size=1,
            sequence_length=256,
        )
        return make_plan(recipe, 64, machine(device="cuda")).step_seconds

    # Of p ranks and m micro-batches each rank waits for (p - 1) of them: as long as 1/m of its own work.
    few, many = step("1f1b", 4), step("1f1b", 32)
    assert few.pp_bubble / few.compute == pytest.approx(1 / 4, rel=0.3)
    assert many.pp_bubble / many.compute < 0.3 * few.pp_bubble / few.compute
    assert step("zbv", 4).pp_bubble < few.pp_bubble


def test_what_is_divided_unevenly_is_a_warning() -> None:
    plan = make_plan(recipe_of(MODEL, {"tp": 3}), 512, machine())
    assert any("cannot divide 4 query heads" in warning for warning in plan.warnings)
    assert any("cannot divide ffn_hidden_size 160" in warning for warning in plan.warnings)
    assert any("divided over 3 ranks" in reason for reason in plan.reasons)


def test_sharding_that_is_proposed_keeps_the_rest_of_the_layout() -> None:
    wide = {"hidden_size": 512, "layers": 4, "heads": 8, "ffn_hidden_size": 2048}
    recipe = recipe_of(wide, {"dp_replicate": 4, "tp": 2, "cp": 2}, global_batch_size=4, sequence_length=64)
    needed = make_plan(recipe, 2048, machine(device="cuda")).needed_memory_gib
    plan = make_plan(recipe, 2048, machine(device="cuda", available_bytes=int(needed * GIB * 0.8)))
    assert any("layout.dp_shard=2 layout.dp_replicate=2 (" in warning for warning in plan.warnings)


def test_a_plan_of_a_divided_model_reads_as_text() -> None:
    layout = {"pp": 2, "tp": 2, "cp": 2, "pipeline_schedule": "interleaved_1f1b"}
    text = str(make_plan(recipe_of(DIVIDED_MODEL, layout, micro_batch_size=1), 512, machine()))
    for words in (
        "waiting in the pipeline",
        "tensor-parallel communication",
        "interleaved_1f1b takes 4",
        "by ring",
    ):
        assert words in text
