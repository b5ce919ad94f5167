"""What a text may cost: estimates against measurements, places against models that run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import tiny
import tiny_models
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from attnviz import limits
from attnviz.capture import UnreadableModel, capture
from attnviz.limits import (
    beyond_training,
    cost,
    most_places,
    most_tokens,
    refusal,
    shape_of,
    share_to_cut,
)
from attnviz.models import load

# Peak memory of a capture above that before it (MiB), and CPU seconds on one core that made
# 8.5e10 operations a second.
MEASURED = {
    ("bundled", 512): (13, 0.03),
    ("bundled", 2048): (78, 0.12),
    ("bundled", 4096): (176, 0.31),
    ("bundled", 16000): (887, 2.57),
    ("gpt2", 512): (224, 1.66),
    ("gpt2", 2048): (649, 7.5),
    ("gpt2", 4096): (1317, 17.6),
}
SPEED = 8.5e10
LONG_READING = """
import gc, json, re, sys
from pathlib import Path
import torch
from attnviz.capture import capture
from attnviz.models import load
torch.set_num_threads(1)
model = load("bundled").model
status = Path("/proc/self/status")
memory = lambda which: int(re.search(rf"{which}:\\s+(\\d+)", status.read_text())[1])
read = lambda n: capture(model, {"input_ids": torch.arange(n)[None] % 3000})
read(16)
gc.collect()
before = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
calls = read(16_000).calls
peak, error = memory("VmHWM") - before, max(call.max_error for call in calls)
print(json.dumps([len(calls), calls[1].n[0], error, peak]))
"""


@pytest.fixture(scope="module")
def models() -> dict[str, PreTrainedModel]:
    gpt2 = GPT2LMHeadModel._from_config(GPT2Config(n_positions=4096))
    return {"bundled": load("bundled").model, "gpt2": gpt2.eval()}


@pytest.mark.parametrize(("name", "tokens"), MEASURED)
def test_estimates_are_within_a_factor_of_two(models, name, tokens):
    mebibytes, seconds = MEASURED[name, tokens]
    estimated = shape_of(models[name]).cost(tokens, SPEED)
    assert 0.5 <= estimated.memory / 2**20 / mebibytes <= 2
    assert 0.5 <= estimated.seconds / seconds <= 2


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_sixteen_thousand_tokens_are_read_within_the_estimate(models):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LONG_READING],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    calls, tokens, error, kibibytes = json.loads(done.stdout)
    assert (calls, tokens) == (2, 16_000)
    assert error < 1e-4
    assert 0.5 <= cost(models["bundled"], 16_000).memory / 2**10 / kibibytes <= 2


def test_the_numbers_of_a_llama_by_hand():
    """Width 24, inner 40, 4 heads and 2 kv_heads of 6, two layers, 300 tokens known."""
    shape = shape_of(tiny.llama())
    assert (shape.layers, shape.heads, shape.kv_heads, shape.d_k) == (2, 4, 2, 6)
    assert (shape.d_model, shape.d_inner, shape.vocabulary) == (24, 40, 300)
    assert shape.products == 2 * (2 * 24 * 24 + 2 * 24 * 12 + 3 * 24 * 40)
    assert (shape.rotates, shape.causal, shape.whole) == (True, True, False)


def test_memory_by_hand():
    """Queries, keys before and after rotation, and values; logits; one mask made from another."""
    shape = shape_of(tiny.llama())
    kept = 2 * (24 + 12 + 12 + 24 + 12)
    expected = 1000 * 4 * (kept + 6 * 24 + 4 * 40) + 2 * 1000**2
    assert shape.cost(1000, 1e10).memory == int(8e6 + 1.25 * expected)


def test_each_token_is_sent_to_some_of_the_experts():
    model = tiny_models.build("mixtral")
    experts = sum(p.numel() for n, p in model.named_parameters() if "experts" in n and p.dim() > 2)
    others = sum(
        p.numel() for n, p in model.named_parameters()
        if p.dim() == 2 and "embed" not in n and "lm_head" not in n
    )  # fmt: skip
    used = model.config.num_experts_per_tok / model.config.num_local_experts
    assert experts > 0
    assert shape_of(model).products == pytest.approx(others + experts * used)


def test_weights_of_all_heads_at_once_cost_more():
    sdpa, eager = (shape_of(tiny_models.build("gpt2", name)) for name in ("sdpa", "eager"))
    assert eager.cost(4096, SPEED).memory > 3 * sdpa.cost(4096, SPEED).memory
    assert eager.cost(4096, SPEED).seconds > sdpa.cost(4096, SPEED).seconds


@pytest.mark.parametrize("family", [*tiny_models.FAMILIES, *tiny_models.REFUSED])
def test_any_model_has_a_cost_that_grows(family):
    model = tiny_models.build(family, "eager")
    short, long = cost(model, 1000), cost(model, 2000)
    assert 0 < short.memory < long.memory
    assert 0 < short.seconds < long.seconds


def test_the_largest_number_counts_where_layers_differ():
    class Differing:
        per_layer_config = (SimpleNamespace(heads=3), SimpleNamespace(heads=7), SimpleNamespace())

        @property
        def heads(self):
            raise RuntimeError("it may vary across layers")

    assert limits._number(Differing(), "unknown", "heads") == 7


# --- refusals


def test_what_exceeds_memory_is_refused_with_the_figure_at_once(models, monkeypatch):
    monkeypatch.setattr(limits, "free_memory", lambda: int(2e9))
    started = time.perf_counter()
    told = refusal(models["bundled"], 50_312)
    assert time.perf_counter() - started < 1
    assert told is not None
    assert told.startswith(
        "This text has 50,312 tokens; reading it would take about 7.4 GB of memory, and 2.0 GB "
        "are free. At most about "
    )
    assert told.endswith(" tokens of this model fit; shorten it by about two thirds.")


@pytest.mark.parametrize("name", ["bundled", "gpt2"])
def test_the_longest_text_that_fits_just_fits(models, monkeypatch, name):
    monkeypatch.setattr(limits, "free_memory", lambda: int(2e9))
    monkeypatch.setattr(limits, "_speed", lambda model: SPEED)
    most = most_tokens(models[name])
    assert most % 10 ** (len(str(most)) - 2) == 0
    assert refusal(models[name], most) is None
    assert refusal(models[name], round(1.11 * most)) is not None


def test_what_takes_too_long_is_refused_with_the_figure(models, monkeypatch):
    monkeypatch.setattr(limits, "free_memory", lambda: None)
    monkeypatch.setattr(limits, "_speed", lambda model: 2e9)
    told = refusal(models["gpt2"], 4000, "target text")
    assert told is not None
    assert "This target text has 4,000 tokens; reading it would take about 11 minutes" in told
    assert "at most 3 minutes are spent on one" in told
    assert "shorten it by about" in told


def test_short_texts_are_read_without_asking(models, monkeypatch):
    monkeypatch.setattr(limits, "free_memory", lambda: 0)
    assert refusal(models["gpt2"], limits.SHORT) is None
    assert refusal(models["gpt2"], limits.SHORT + 1) is not None


def test_a_host_may_allow_less(models, monkeypatch):
    monkeypatch.setattr(limits, "MOST_TOKENS", 300)
    assert refusal(models["bundled"], 300) is None
    assert refusal(models["bundled"], 400) == (
        "This text has 400 tokens; at most 300 are read here at once. "
        "Shorten it by about a quarter."
    )


def test_the_speed_of_this_machine_is_tried_once(models):
    assert cost(models["bundled"], 9000) == cost(models["bundled"], 9000)
    assert cost(models["bundled"], 9000).seconds < cost(models["bundled"], 16_000).seconds


@pytest.mark.parametrize(
    ("length", "limit", "share"),
    [(100, 95, "about a tenth"), (1000, 260, "about three quarters"), (9, 3, "about two thirds"),
     (1000, 10, "more than nine tenths")],
)  # fmt: skip
def test_shares(length, limit, share):
    assert share_to_cut(length, limit) == share


# --- places

READING_TEXT = [
    family
    for family in [*tiny_models.FAMILIES, *tiny_models.OWN_ATTENTION]
    if family not in tiny_models.EAGER_ONLY
    and tiny_models.build(family).main_input_name == "input_ids"
]


@pytest.mark.parametrize("family", READING_TEXT)
def test_models_without_a_table_of_places_run_beyond_what_they_state(family):
    """The oracle is the model: it runs on a longer text, or it has no vector for its end."""
    model = tiny_models.build(family)
    stated = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if stated is None:
        pytest.skip("it states no length")
    places = most_places(model, stated)
    longer = tiny_models.inputs_for(family, length=stated + 5)
    if places is not None:
        assert places == stated
        with pytest.raises(UnreadableModel, match="cannot run on this input"):
            capture(model, longer)
    else:
        assert capture(model, longer).calls[0].n[0] == stated + 5


def test_the_bundled_model_reads_on_with_a_warning(models):
    assert most_places(models["bundled"], 256) is None
    assert most_places(models["gpt2"], 4096) == 4096
    assert beyond_training(256, 256) is None
    assert beyond_training(9000, None) is None
    told = beyond_training(1300, 256)
    assert told is not None
    assert "1,300 tokens, longer than the 256 positions that this model was trained on" in told
