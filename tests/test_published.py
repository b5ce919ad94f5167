"""What is published here agrees with the installed code, its settings, and with captured models."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from urllib.parse import urlparse

import pytest
import tiny_models
import torch
import transformers as hf
from torch import Tensor
from transformers.models.deepseek_v2.modeling_deepseek_v2 import yarn_apply_mscale
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention

from attnviz import published
from attnviz.anatomy import LayerAnatomy, anatomy
from attnviz.capture import Capture, capture
from attnviz.published import Example, Practice
from attnviz.surroundings import Origin, Wiring
from attnviz.wiring import wiring

ROWS = (*published.SCALES, *published.PROJECTIONS)
HALF_TRUTHS = (*published.SCALE_HALF_TRUTHS, *published.PROJECTION_HALF_TRUTHS)
MODELS = Path(hf.__file__).parent / "models"

SWIN = {
    "image_size": 24,
    "patch_size": 2,
    "embed_dim": 21,
    "depths": [2, 1],
    "num_heads": [3, 6],
    "window_size": 3,
}
LAYERS = ["sliding_attention", "full_attention", "full_attention"]
GEMMA_4 = {
    "attention_k_eq_v": True,
    "num_global_key_value_heads": 2,
    "global_head_dim": 10,
    "head_dim": 14,
    "sliding_window": 5,
    "layer_types": LAYERS,
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": tiny_models.VOCABULARY,
    "num_kv_shared_layers": 0,
}
GEMMA_3N = {
    "head_dim": 14,
    "sliding_window": 5,
    "layer_types": LAYERS,
    "hidden_size_per_layer_input": 7,
    "vocab_size_per_layer_input": tiny_models.VOCABULARY,
    "num_kv_shared_layers": 0,
    "laurel_rank": 4,
    "altup_num_inputs": 2,
}
SIZES = {
    "vocab_size": tiny_models.VOCABULARY,
    "hidden_size": 42,
    "intermediate_size": 31,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "max_position_embeddings": 97,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GRANITE_8B = {"hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 1}
MORE = {  # families whose tiny models no other test needs
    "swinv2": lambda: (hf.Swinv2Model, hf.Swinv2Config(**SWIN)),
    "gemma4": lambda: (hf.Gemma4ForCausalLM, hf.Gemma4TextConfig(**SIZES | GEMMA_4)),
    "gemma3n": lambda: (hf.Gemma3nForCausalLM, hf.Gemma3nTextConfig(**SIZES | GEMMA_3N)),
    "granite_8b": lambda: (  # the factor of the real one, at its d_k
        hf.GraniteForCausalLM,
        hf.GraniteConfig(**SIZES | GRANITE_8B, attention_multiplier=0.0078125),
    ),
}


@cache
def model(family: str) -> hf.PreTrainedModel:
    if family in MORE:
        model_class, config = MORE[family]()
        return tiny_models.spread(model_class._from_config(config, attn_implementation="eager"))
    return tiny_models.build(family, "eager" if family in tiny_models.EAGER_ONLY else "sdpa")


def inputs(family: str) -> dict[str, Tensor]:
    alike = {"swinv2": "swin", "gemma4": "llama", "gemma3n": "llama", "granite_8b": "llama"}
    return tiny_models.inputs_for(alike.get(family, family))


@cache
def run(family: str) -> Capture:
    return capture(model(family), inputs(family))


@cache
def layers(family: str) -> tuple[LayerAnatomy, ...]:
    return anatomy(model(family), run(family))


def wires(family: str, place: int) -> Wiring:
    read = run(family)
    return wiring(model(family), inputs(family), read, read.calls[place])


def row(name: str) -> Practice:
    return next(practice for practice in ROWS if practice.name == name)


def example(checkpoint: str) -> Example:
    return next(x for practice in ROWS for x in practice.examples if x.checkpoint == checkpoint)


# --- sources


@pytest.mark.parametrize("practice", [*ROWS, *HALF_TRUTHS], ids=lambda x: getattr(x, "name", ""))
def test_every_row_says_where_it_stands(practice):
    assert practice.sources
    assert all(text.strip() == text for text in vars(practice).values() if isinstance(text, str))


@pytest.mark.parametrize("source", published.every_source(), ids=lambda source: source.title)
def test_every_address_is_well_formed(source):
    if source.address is None:
        assert source.read == "toy"
        return
    address = urlparse(source.address)
    assert address.scheme == "https"
    assert re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", address.netloc)
    assert re.fullmatch(r"[\w./#-]*", address.path)  # nothing that would end a link in Markdown
    if address.netloc == "arxiv.org":
        assert re.fullmatch(r"/abs/\d{4}\.\d{5}", address.path)


def test_the_code_that_is_named_is_the_installed_one():
    assert hf.__version__ == published.TRANSFORMERS
    named = [source for source in published.every_source() if source.title.startswith("code of ")]
    assert len(named) > 20
    for source in named:
        assert (MODELS / str(source.address).partition("/models/")[2]).is_file()


def test_names_tell_rows_apart():
    for rows in (published.SCALES, published.PROJECTIONS):
        assert len({practice.name for practice in rows}) == len(rows)


# --- the numbers of the rows


@pytest.mark.parametrize(
    ("checkpoint", "config", "family", "d_k"),
    [
        ("GPT-2", hf.GPT2Config, "gpt2", lambda c: c.n_embd // c.n_head),
        ("T5-small", hf.T5Config, "t5", lambda c: c.d_kv),
        ("GPT-Neo-1.3B", hf.GPTNeoConfig, "gpt_neo", lambda c: c.hidden_size // c.num_heads),
    ],
)
def test_widths_are_those_of_the_configuration(checkpoint, config, family, d_k):
    assert example(checkpoint).d_k == d_k(config())
    documented = (MODELS / family / f"configuration_{family}.py").read_text().lower()
    assert checkpoint.lower().removesuffix("-small") in documented


def test_granite_divides_by_exactly_its_width():
    granite = example("Granite 3.0 8B")
    assert granite.d_k == 4096 // 32  # d_model and heads of its configuration
    assert granite.factor == 0.0078125 == 1 / granite.d_k
    assert granite.multiple == pytest.approx(128**-0.5)


def test_the_setting_of_gemma_2_is_not_its_width():
    gemma = example("Gemma 2 27B")
    assert gemma.factor == pytest.approx((4608 / 32) ** -0.5)
    assert gemma.multiple == pytest.approx(math.sqrt(128 / 144))
    assert hf.Gemma2Config().query_pre_attn_scalar == hf.Gemma2Config().head_dim  # the smaller ones


def test_deepseek_stretches_its_scale_as_transformers_does():
    stretched = {"rope_type": "yarn", "mscale_all_dim": 0.707, "factor": 40}
    deepseek = example("DeepSeek-V2")
    assert deepseek.d_k == 128 + 64
    expected = yarn_apply_mscale(stretched, deepseek.d_k**-0.5)
    assert deepseek.factor == pytest.approx(expected, rel=1e-5)
    assert f"{deepseek.multiple:.2f}" == "1.59"
    assert "m² is 1.59" in row("1/√d_k times m²").remark


def test_settings_that_are_quoted():
    assert hf.Gemma2Config().attn_logit_softcapping == 50
    llama = hf.Llama4TextConfig()
    assert (llama.attn_scale, llama.floor_scale) == (0.1, 8192)
    assert hf.MistralConfig().num_key_value_heads < hf.MistralConfig().num_attention_heads
    assert hf.FalconConfig().multi_query
    assert hf.GPTBigCodeConfig().multi_query


def test_the_factor_of_swin_v2_starts_at_10_and_ends_at_100():
    head = Swinv2SelfAttention(hf.Swinv2Config(**SWIN), dim=21, num_heads=3, window_size=(3, 3))
    assert torch.allclose(head.logit_scale.exp(), torch.tensor(10.0))
    assert "max=math.log(1.0 / 0.01)" in (MODELS / "swinv2" / "modeling_swinv2.py").read_text()


def test_t5_starts_its_query_smaller_by_the_root_of_its_width():
    config = hf.T5Config(d_model=499, d_kv=47, num_heads=11, num_layers=1, d_ff=7, vocab_size=53)
    torch.manual_seed(0)
    attention = hf.T5EncoderModel(config).encoder.block[0].layer[0].SelfAttention
    ratio = attention.k.weight.std() / attention.q.weight.std()
    assert ratio.item() == pytest.approx(math.sqrt(47), rel=0.01)


# --- captured models belong where the rows say


@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("gpt2", ["1/√d_k"]),
        ("bert", ["1/√d_k"]),
        ("t5", [published.START]),
        ("gpt_neo", [published.NOTHING]),
        ("granite_8b", ["1/d_k"]),
        ("gemma2", [published.SETTING, published.CAP]),
        ("gemma3", [published.SETTING]),
        ("qwen3", [published.NORM]),
        ("olmo2", [published.NORM]),
        ("gemma3n", [published.NORM_ALONE]),
        ("gemma4", [published.NORM_ALONE]),
        ("gpt_oss", ["1/√d_k", published.SINK]),
        ("deberta", [published.PRODUCTS]),
        ("gpt2_by_layer", [published.BY_LAYER]),
        ("granite", []),  # a factor that no row has
    ],
)
def test_a_captured_scale_is_in_its_row(family: str, names: list[str]):
    heads = [layer.heads for layer in layers(family) if layer.heads]
    assert heads
    for of_layer in heads:
        assert list(published.scale_names(of_layer)) == names
    for name in names:
        assert row(name) in published.SCALES


def test_cosine_takes_the_place_of_the_scale():
    first = layers("swinv2")[0].heads
    assert first is not None
    assert list(published.scale_names(first, cosine=True)) == [published.COSINE]


@pytest.mark.parametrize("family", ["qwen3", "gemma3"])
def test_a_norm_bounds_the_scores_as_its_row_says(family: str):
    """|q·k| ≤ d_k · max|g_q| · max|g_k|: what the row of QK-norm and a half-truth rest on."""
    for call in run(family).calls:
        module = model(family).get_submodule(call.module)
        added = 1.0 if family == "gemma3" else 0.0  # Gemma keeps its gains less 1
        gains = [
            (norm.weight + added).abs().max().item() for norm in (module.q_norm, module.k_norm)
        ]
        keys = call.key.repeat_interleave(call.heads // call.kv_heads, dim=1)
        largest = float((call.query @ keys.mT).abs().max())
        assert 0 < largest <= call.d_k * gains[0] * gains[1] * (1 + 1e-5)


def test_one_head_of_olmo_2_may_exceed_that_bound():
    call = run("olmo2").calls[0]
    module = model("olmo2").get_submodule(call.module)
    bound = call.d_k**0.5 * module.q_norm.weight.abs().max().item()
    assert float(call.query.norm(dim=-1).max()) > bound


@pytest.mark.parametrize(
    ("family", "place", "names"),
    [
        ("gpt2", 0, [published.OUTPUT, published.THREE]),
        ("bert", 1, [published.OUTPUT, published.THREE]),
        ("llama", 0, [published.OUTPUT, published.GROUPED]),
        ("falcon", 0, [published.OUTPUT, published.MULTI_QUERY]),
        ("deepseek_v3", 0, [published.OUTPUT, published.LATENT]),
        ("gemma4", 0, [published.OUTPUT, published.GROUPED]),
        ("gemma4", 1, [published.OUTPUT, published.GROUPED, published.SHARED_KEY_VALUE]),
        ("qwen3_next", 0, [published.OUTPUT, published.GROUPED, published.GATE]),
        ("diffllama", 0, [published.GROUPED, published.TWICE]),
    ],
)
def test_captured_projections_are_in_their_rows(family: str, place: int, names: list[str]):
    module = run(family).calls[place].module
    layer = next(layer for layer in layers(family) if layer.module == module)
    assert list(published.projection_names(layer, wires(family, place))) == names
    for name in names:
        assert row(name) in published.PROJECTIONS


def test_an_unread_layer_is_in_no_row():
    unread = replace(layers("gpt2")[0], heads=None)
    assert list(published.projection_names(unread, Wiring())) == []


def test_nothing_is_said_of_matrices_that_were_not_found():
    assert list(published.projection_names(layers("gpt2")[0], Wiring())) == []


def origin(columns: list[int], which: int = 0) -> Origin:
    """Two tokens of one head, each of as many numbers as there are columns."""
    shape = (1, 1, 2, len(columns))
    row = torch.tensor([0, 1])[:, None]
    return Origin(
        (),
        torch.full(shape, which),
        row.expand(shape).clone(),
        torch.tensor(columns).expand(shape).clone(),
    )


def test_the_same_matrix_is_not_yet_the_same_numbers():
    assert published.same_numbers(origin([0, 1, 2]), origin([0, 1, 2]))
    assert not published.same_numbers(origin([0, 1, 2]), origin([3, 4, 5]))  # a fused matrix
    assert not published.same_numbers(origin([0, 1, 2]), origin([0, 1]))
    assert not published.same_numbers(origin([0, 1], -1), origin([0, 1], -1))  # not found at all
    assert not published.same_numbers(origin([0, 1]), None)
