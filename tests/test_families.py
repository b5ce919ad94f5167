"""Every family against what its model really computes.

Families that ask transformers for their attention function are compared with that function
(`eager_reference`), those with attention of their own with their projections, weights and
outputs (`own_reference`).
"""

from __future__ import annotations

import re

import pytest
import tiny_models
import torch
from eager_reference import Reference, eager_reference, plain_weights
from own_reference import OwnReference, own_reference
from torch import Tensor
from unrotated_reference import unrotated_reference

from attnviz import attention
from attnviz.capture import TOLERANCE, AttentionCall, Capture, UnreadableModel, capture

EXACT = {"atol": 1e-5, "rtol": 0}
FAMILIES, OWN = tuple(tiny_models.FAMILIES), tuple(tiny_models.OWN_ATTENTION)
ALL = [*FAMILIES, *OWN]
RUNS = [
    (family, name)
    for family in FAMILIES
    for name in ("sdpa", "eager")
    if name == "eager" or family not in tiny_models.EAGER_ONLY
]
OWN_RUNS = [(family, "eager") for family in OWN] + [
    (family, "sdpa") for family in OWN if family.startswith("falcon")
]
# Their queries carry biases that differ from term to term: q and k as such may not be had.
MIXED_QUERIES = ("xlnet", "funnel", "funnel_factorized")


def stacked(name: str, call: AttentionCall) -> Tensor:
    """Scores, logits, weights or output of every head and batch element."""
    compute = getattr(attention, name)
    batch = call.value.shape[0]
    return torch.stack(
        [torch.stack([compute(call, head, b) for head in range(call.heads)]) for b in range(batch)]
    )


def assert_logits(call: AttentionCall, expected: Tensor, *, up_to_row: bool = False) -> None:
    """Hidden where the reference hides, and equal elsewhere; perhaps up to a constant per row."""
    logits = stacked("logits", call)
    seen = expected > -torch.inf
    assert torch.equal(logits > -torch.inf, seen)
    if up_to_row:
        logits, expected = (_centred(x, seen) for x in (logits, expected))
    torch.testing.assert_close(logits[seen], expected[seen], **EXACT)


def _centred(logits: Tensor, seen: Tensor) -> Tensor:
    total = logits.masked_fill(~seen, 0).sum(-1, keepdim=True)
    return logits - total / seen.sum(-1, keepdim=True)


# --- on the attention interface


def assert_reads_as(call: AttentionCall, real: Reference) -> None:
    """q, k, v, logits, weights and outputs of every head and batch equal the model's own."""
    for name in ("query", "key", "value"):
        torch.testing.assert_close(getattr(call, name), getattr(real, name), **EXACT)
    assert_logits(call, real.logits)
    for name in ("weights", "output"):
        torch.testing.assert_close(stacked(name, call), getattr(real, name), **EXACT)
    assert call.max_error < 1e-5


@pytest.mark.parametrize(("family", "name"), RUNS)
def test_family_reads_as_its_eager_function(family: str, name: str):
    inputs = tiny_models.inputs_for(family, batch=2)
    read = capture(tiny_models.build(family, name), inputs)
    reference = eager_reference(tiny_models.build(family, "eager"), inputs)
    assert len(read.calls) == len(reference) > 0
    for call, real in zip(read.calls, reference, strict=True):
        assert_reads_as(call, real)


def test_memory_that_nothing_was_written_to_is_no_bias(monkeypatch: pytest.MonkeyPatch):
    """GPT-2's reordered product adds such memory, times nought."""
    empty = torch.empty

    def filled(*size, **options):
        tensor = empty(*size, **options)
        return tensor.fill_(torch.nan) if tensor.dim() == 3 else tensor

    model = tiny_models.build("gpt2_reordered", "eager")
    monkeypatch.setattr(torch, "empty", filled)
    for call in capture(model, tiny_models.inputs_for("gpt2_reordered", batch=2)).calls:
        assert call.query is not None
        assert call.bias is None
        assert torch.equal(call.mask.expand(2, 5, 13, 13)[0, 0], torch.ones(13, 13).bool().tril())


@pytest.mark.parametrize("family", FAMILIES)
def test_reference_is_sound_and_tells_heads_apart(family: str):
    """The guard of the test above: nearly uniform weights would hide every mistake."""
    calls = eager_reference(
        tiny_models.build(family, "eager"), tiny_models.inputs_for(family, batch=2)
    )
    for real in calls:
        torch.testing.assert_close(plain_weights(real), real.weights, atol=1e-6, rtol=0)
    assert_tells_apart(calls)


def assert_tells_apart(calls: list) -> None:
    assert max(float(real.weights.max()) for real in calls) > 0.5
    for real in calls:
        assert float((real.weights[:, 0] - real.weights[:, 1]).abs().max()) > 0.02
        assert float((real.weights[0] - real.weights[-1]).abs().max()) > 0.02


# --- attention of their own


@pytest.mark.parametrize(("family", "name"), OWN_RUNS)
def test_family_with_attention_of_its_own_reads_as_it_computes(family: str, name: str):
    inputs = tiny_models.inputs_for(family, batch=2)
    read = capture(tiny_models.build(family, name), inputs)
    reference = own_reference(tiny_models.build(family, name), inputs)
    assert len(read.calls) == len(reference) > 0
    for call, real in zip(read.calls, reference, strict=True):
        for part in ("weights", "output"):
            torch.testing.assert_close(stacked(part, call), getattr(real, part), **EXACT)
        torch.testing.assert_close(per_head(call.value, call), per_head(real.value, call), **EXACT)
        if family not in MIXED_QUERIES or call.query is not None:
            assert_products(call, real)
        assert call.max_error < 1e-5


def assert_products(call: AttentionCall, real: OwnReference) -> None:
    """q and k of the projections, but for a number that may stand in q or in the scale."""
    assert call.query is not None
    assert call.key is not None
    assert_parallel(call.query, real.query)
    assert_parallel(per_head(call.key, call), per_head(real.key, call))
    scores = real.query @ per_head(real.key, call).mT
    torch.testing.assert_close(call.scale * stacked("scores", call), real.scale * scores, **EXACT)
    assert_logits(call, real.logits, up_to_row=True)


def assert_parallel(one: Tensor, other: Tensor) -> None:
    factor = (one * other).sum() / (other * other).sum()
    torch.testing.assert_close(one, factor * other, **EXACT)


def per_head(tensor: Tensor, call: AttentionCall) -> Tensor:
    """A key or value for every query head."""
    return tensor.repeat_interleave(call.heads // tensor.shape[1], dim=1)


@pytest.mark.parametrize(("family", "name"), OWN_RUNS)
def test_own_reference_is_sound_and_tells_heads_apart(family: str, name: str):
    calls = own_reference(tiny_models.build(family, name), tiny_models.inputs_for(family, batch=2))
    for real in calls:
        value = real.value.repeat_interleave(real.weights.shape[1] // real.value.shape[1], dim=1)
        torch.testing.assert_close(real.weights @ value, real.output, atol=3e-6, rtol=0)
    assert_tells_apart(calls)


# --- masks from outside


@pytest.mark.parametrize("name", ["sdpa", "eager"])
def test_mask_of_a_prefix_is_read_as_it_is_given(name: str):
    """Five tokens that all see each other, before eight that look back."""
    mask = torch.ones(13, 13, dtype=torch.bool).tril()
    mask[:5, :5] = True
    added = torch.zeros(2, 1, 13, 13).masked_fill(~mask, torch.finfo(torch.float32).min)
    inputs = tiny_models.inputs_for("llama", batch=2) | {"attention_mask": added}
    calls = capture(tiny_models.build("llama", name), inputs).calls
    reference = eager_reference(tiny_models.build("llama", "eager"), inputs)
    for call, real in zip(calls, reference, strict=True):
        assert torch.equal(call.mask.expand(2, 1, 13, 13), mask.expand(2, 1, 13, 13))
        assert_reads_as(call, real)


# --- what belongs to a call


def selfs(tower: str, *layers: int) -> list[tuple[str, str, int]]:
    return [(tower, "self", layer) for layer in layers]


def with_cross(*layers: int) -> list[tuple[str, str, int]]:
    return [("decoder", kind, layer) for layer in layers for kind in ("self", "cross")]


ENCODERS = ("bert", "roberta", "distilbert", "albert", "electra", "modernbert")
OWN_ENCODERS = tuple(f for f in OWN if not f.startswith(("bloom", "mpt", "falcon", "gpt_neo")))
PLACES = {
    **dict.fromkeys((*FAMILIES, *OWN), selfs("decoder", 0, 1, 2)),
    **dict.fromkeys((*ENCODERS, *OWN_ENCODERS), selfs("encoder", 0, 1, 2)),
    **dict.fromkeys(("vit", "dinov2", "dinov2_registers", "swin"), selfs("vision", 0, 1, 2)),
    **dict.fromkeys(
        ("t5", "flan_t5", "bart", "marian", "pegasus"),
        selfs("encoder", 0, 1, 2) + with_cross(0, 1),
    ),
    **dict.fromkeys(("jamba", "qwen3_next"), selfs("decoder", 1, 4)),
    **dict.fromkeys(
        ("funnel", "funnel_factorized"), selfs("encoder", 0, 1, 2) + selfs("decoder", 0)
    ),
    "gpt_neo": selfs("decoder", 0, 1, 2, 3),
    "diffllama": selfs("decoder", 0, 0, 1, 1, 2, 2),  # one pattern, applied to two sets of values
    "bert_decoder": with_cross(0, 1, 2),
    "tied_encoder_decoder": selfs("encoder", 0, 1, 2) + with_cross(0, 1, 2),
    "whisper": selfs("audio", 0, 1, 2) + with_cross(0, 1),
    "wav2vec2": selfs("audio", 0, 1, 2),
    "clip": selfs("vision", 0, 1, 2) + selfs("text", 0, 1, 2),
}
UNREAD = {
    "jamba": ((0, 2, 3), "state"),
    "qwen3_next": ((0, 2, 3), "state|linear"),
}
SCALES = {  # 1/√d_k unless said otherwise
    "gpt2_by_layer": [11**-0.5, 11**-0.5 / 2, 11**-0.5 / 3],
    "gemma2": [16**-0.5] * 3,
    "gemma3": [19**-0.5] * 3,
    "granite": [0.23] * 3,
    **dict.fromkeys(("t5", "flan_t5"), [1.0] * 7),
    "opt": [1.0] * 3,  # it divides its queries
    "whisper": [1.0] * 7,  # likewise
    "clip": [14**-0.5] * 3 + [11**-0.5] * 3,
}
ROTATED = {
    *("gpt_neox", "gptj", "phi", "phi3", "stablelm", "llama", "mistral", "mixtral", "qwen2"),
    *("qwen3", "qwen3_moe", "gemma2", "gemma3", "cohere", "cohere2", "olmo2", "smollm3"),
    *("granite", "gpt_oss", "deepseek_v3", "llama4", "qwen3_next", "diffllama", "modernbert"),
}
OWN_ROTATED = ("falcon", "falcon_grouped", "roformer", "roformer_value")
D_K = {
    **dict.fromkeys(FAMILIES, 11),
    **dict.fromkeys((*ROTATED, "jamba"), 14),
    "phi": 12,
    "stablelm": 16,
    "deepseek_v3": 13,
    "swin": 7,
}
LOCAL_AND_GLOBAL = ("gemma2", "gemma3", "cohere2", "gpt_oss", "llama4")
SEEN_BY_LOCAL_LAYERS = {
    "mistral": [5, 5, 5],
    **{family: [5, None, 5] for family in LOCAL_AND_GLOBAL},
    "modernbert": [None, 7, None],  # three to each side
    "gpt_neo": [None, 5, None, 5],
}
WITHOUT_POSITIONS = ("smollm3", "llama4", "cohere2")  # in their second layer


@pytest.fixture(scope="module")
def reads() -> dict[str, Capture]:
    return {}


@pytest.fixture
def read(family: str, reads: dict[str, Capture]) -> Capture:
    """A family, captured once for all the questions below."""
    if family not in reads:
        model = tiny_models.build(family, "eager" if family in tiny_models.EAGER_ONLY else "sdpa")
        reads[family] = capture(model, tiny_models.inputs_for(family, batch=2))
    return reads[family]


@pytest.mark.parametrize("family", ALL)
def test_tower_kind_and_layer(family: str, read: Capture):
    assert [(call.tower, call.kind, call.layer) for call in read.calls] == PLACES[family]


@pytest.mark.parametrize("family", ALL)
def test_layers_without_softmax_attention_are_named(family: str, read: Capture):
    layers, reason = UNREAD.get(family, ((), ""))
    assert tuple(each.layer for each in read.unread) == layers
    for each in read.unread:
        assert each.tower == "decoder"
        assert re.search(reason, each.reason)
        assert each.reason.endswith(".")


@pytest.mark.parametrize("family", FAMILIES)
def test_scale(family: str, read: Capture):
    expected = SCALES.get(family, [D_K[family] ** -0.5] * len(read.calls))
    assert [call.scale for call in read.calls] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("family", "factor"), [("opt", 11**-0.5), ("whisper", 14**-0.5), ("t5", 1.0), ("llama", 1.0)]
)
def test_factor_that_stands_in_the_query(family: str, factor: float, read: Capture):
    assert [call.query_factor for call in read.calls] == pytest.approx([factor] * len(read.calls))


@pytest.mark.parametrize("family", ALL)
def test_window_is_what_a_row_sees_at_most(family: str, read: Capture):
    expected = SEEN_BY_LOCAL_LAYERS.get(family, [None] * len(read.calls))
    assert [call.window for call in read.calls] == expected
    for call in read.calls:
        if call.window:
            assert int((stacked("weights", call) > 0).sum(-1).max()) == call.window


@pytest.mark.parametrize("family", ALL)
def test_soft_cap_and_sinks(family: str, read: Capture):
    caps = {"gemma2": 5.0}
    assert {call.softcap for call in read.calls} == {caps.get(family)}
    if family != "gpt_oss":
        assert all(call.sinks is None for call in read.calls)
        return
    layers = tiny_models.build("gpt_oss", "eager").model.layers
    for call, layer in zip(read.calls, layers, strict=True):
        torch.testing.assert_close(call.sinks, layer.self_attn.sinks.detach(), atol=0, rtol=0)


@pytest.mark.parametrize("family", ALL)
def test_bias_is_there_where_the_model_adds_one(family: str, read: Capture):
    added = ("swin", "bloom", "mpt", "falcon_alibi", "deberta", "mpnet")
    for call in read.calls:
        if family in ("t5", "flan_t5"):
            assert (call.bias is not None) == (call.kind == "self")
        elif call.query is not None and family not in MIXED_QUERIES:
            biased = family.startswith(added) and family != "deberta_content"
            assert (call.bias is not None) == biased


def test_t5_reads_its_bias_from_its_table():
    """Up to seven tokens apart each distance has a bucket of its own, ahead and behind."""
    model = tiny_models.build("t5")
    calls = capture(model, tiny_models.inputs_for("t5", length=8)).calls
    table = model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.detach()
    for call in calls[:3]:
        for query in range(8):
            for key in range(8):
                bucket = query - key if key <= query else key - query + 16
                torch.testing.assert_close(call.bias[0, :, query, key], table[bucket])


@pytest.mark.parametrize("family", ["llama", "falcon_grouped"])
def test_query_heads_share_key_heads_in_groups(family: str, read: Capture):
    for call in read.calls:
        assert (call.heads, call.kv_heads) == (6, 3)
        assert [call.kv_head(head) for head in range(6)] == [0, 0, 1, 1, 2, 2]


def test_halves_that_share_their_weights_are_told_apart():
    model = tiny_models.build("tied_encoder_decoder")
    weights = [
        half.encoder.layer[0].attention.self.query.weight
        for half in (model.encoder, model.decoder.bert)
    ]
    assert weights[0] is weights[1]
    modules = [
        call.module.partition(".")[0]
        for call in capture(model, tiny_models.inputs_for("tied_encoder_decoder")).calls
    ]
    assert modules == ["encoder"] * 3 + ["decoder"] * 6


def test_latent_attention_keeps_two_widths():
    for call in capture(
        tiny_models.build("deepseek_v3"), tiny_models.inputs_for("deepseek_v3")
    ).calls:
        assert (call.query.shape[-1], call.value.shape[-1]) == (13, 11)


# --- before rotation


@pytest.mark.parametrize("family", sorted(ROTATED))
def test_query_and_key_before_rotation(family: str, read: Capture):
    name = "eager" if family in tiny_models.EAGER_ONLY else "sdpa"
    reference = unrotated_reference(
        tiny_models.build(family, name), tiny_models.inputs_for(family, batch=2)
    )
    calls = read.calls[::2] if family == "diffllama" else read.calls
    assert len(calls) == len(reference)
    for call, (query, key) in zip(calls, reference, strict=True):
        if family in WITHOUT_POSITIONS and call.layer == 1:
            assert call.query_unrotated is call.key_unrotated is None
        else:
            assert_unrotated(call, query, key, permuted=family == "deepseek_v3")


@pytest.mark.parametrize("family", OWN_ROTATED)
def test_query_and_key_before_rotation_where_attention_is_their_own(family: str, read: Capture):
    reference = own_reference(tiny_models.build(family), tiny_models.inputs_for(family, batch=2))
    for call, real in zip(read.calls, reference, strict=True):
        assert_unrotated(call, *real.unrotated)


def assert_unrotated(call: AttentionCall, query: Tensor, key: Tensor, permuted: bool = False):
    """Equal to the reference, or with dimensions in another order, the same for q and k."""
    assert call.query_unrotated is not None
    assert call.key_unrotated is not None
    assert call.query_unrotated.shape == call.query.shape
    assert call.key_unrotated.shape == call.key.shape
    for seen, real in ((call.query_unrotated, query), (call.key_unrotated, key)):
        if not permuted:
            torch.testing.assert_close(seen, real, **EXACT)
        torch.testing.assert_close(seen.sort(-1).values, real.sort(-1).values, **EXACT)
    scores = query @ per_head(key, call).mT
    seen = call.query_unrotated @ per_head(call.key_unrotated, call).mT
    torch.testing.assert_close(seen, scores, atol=1e-5, rtol=1e-5)
    # The guard: rotated ones would be told apart.
    assert float((stacked("scores", call) - scores).abs().max()) > 0.1


@pytest.mark.parametrize("family", [f for f in ALL if f not in (*ROTATED, *OWN_ROTATED)])
def test_nothing_is_called_unrotated_where_nothing_rotates(family: str, read: Capture):
    for call in read.calls:
        assert call.query_unrotated is None
        assert call.key_unrotated is None


# --- padding

PADDED = ("gpt2", "bert", "llama", "t5", "opt", "bloom", "mpt", "falcon", "gpt_neo", "deberta_v3")
POSITIONS_FROM_OUTSIDE = ("gpt2", "bert", "llama", "falcon", "gpt_neo")  # others find them
LENGTHS, TARGET_LENGTHS = (13, 8), (7, 4)


def two_texts(family: str, side: str) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
    """Two texts of unequal length, each alone, and both padded into one batch."""
    dice = torch.Generator().manual_seed(3)

    def ids(count: int) -> Tensor:
        return torch.randint(3, tiny_models.VOCABULARY, (1, count), generator=dice)

    texts = [{"input_ids": ids(count)} for count in LENGTHS]
    batch = _padded_pair([text["input_ids"] for text in texts], side)
    if family == "t5":
        for text, count in zip(texts, TARGET_LENGTHS, strict=True):
            text["decoder_input_ids"] = ids(count)
        targets = _padded_pair([text["decoder_input_ids"] for text in texts], side)
        batch |= {f"decoder_{name}": tensor for name, tensor in targets.items()}
    if family in POSITIONS_FROM_OUTSIDE:
        batch["position_ids"] = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    return texts, batch


def _padded_pair(texts: list[Tensor], side: str) -> dict[str, Tensor]:
    longest = max(text.shape[1] for text in texts)

    def fill(tensor: Tensor) -> Tensor:
        missing = longest - tensor.shape[1]
        ends = (missing, 0) if side == "left" else (0, missing)
        return torch.nn.functional.pad(tensor, ends)

    return {
        "input_ids": torch.cat([fill(text) for text in texts]),
        "attention_mask": torch.cat([fill(torch.ones_like(text)) for text in texts]),
    }


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    ("family", "name"),
    [(family, "eager") for family in PADDED]
    + [(family, "sdpa") for family in PADDED if family in FAMILIES or family == "falcon"],
)
def test_padding_is_marked_and_changes_no_real_row(family: str, side: str, name: str):
    texts, batch = two_texts(family, side)
    model = tiny_models.build(family, name)
    together = capture(model, batch)
    for number, text in enumerate(texts):
        alone = capture(model, text)
        assert len(alone.calls) == len(together.calls) > 0
        for one, both in zip(alone.calls, together.calls, strict=True):
            decodes = family == "t5" and both.tower == "decoder"
            mask = batch["attention_mask"][number].bool()
            rows = batch["decoder_attention_mask"][number].bool() if decodes else mask
            keys = mask if both.kind == "cross" else rows
            assert torch.equal(both.query_padding[number], ~rows)
            assert torch.equal(both.key_padding[number], ~keys)
            assert_same_real_rows(one, both, number, rows, keys)


def assert_same_real_rows(
    alone: AttentionCall, batch: AttentionCall, number: int, rows: Tensor, keys: Tensor
) -> None:
    for head in range(alone.heads):
        weights = attention.weights(batch, head, number)
        assert not weights.isnan().any()
        assert not weights[~rows].any()
        assert not weights[:, ~keys].any()
        real = weights[rows][:, keys]
        torch.testing.assert_close(real, attention.weights(alone, head), **EXACT)
        output = attention.output(batch, head, number)
        assert not output.isnan().any()
        torch.testing.assert_close(output[rows], attention.output(alone, head), **EXACT)


@pytest.mark.parametrize("family", ["gpt2", "bert", "t5", "bloom"])
def test_nothing_is_marked_where_nothing_is_padded(family: str):
    for call in capture(tiny_models.build(family), tiny_models.inputs_for(family)).calls:
        for padding in (call.query_padding, call.key_padding):
            assert padding is None or not padding.any()


# --- precision

# Three layers round some ten times in a row, each time by up to half a unit in the last place
# (2⁻⁹ and 2⁻¹² of the number), and logits reach about 10: they differ by up to 0.1 and 0.0125.
# A softmax passes on at most half of a difference between two logits.
ROUNDED = {torch.bfloat16: 0.1, torch.float16: 0.0125}


@pytest.mark.parametrize("dtype", ROUNDED, ids=str)
@pytest.mark.parametrize("family", ["llama", "gpt2", "bert", "t5"])
def test_half_precision_is_recomputed_in_float32(family: str, dtype: torch.dtype):
    inputs = tiny_models.inputs_for(family, batch=2)
    model = tiny_models.build(family).to(dtype)
    half = capture(model, inputs)
    full = capture(model.float(), inputs)  # the same numbers, computed with more digits
    assert len(half.calls) == len(full.calls) > 0
    for call, exact in zip(half.calls, full.calls, strict=True):
        assert {call.query.dtype, call.key.dtype, call.value.dtype} == {dtype}
        assert call.max_error <= TOLERANCE[dtype] * float(exact.value.abs().max())
        weights = stacked("weights", call)
        assert weights.dtype == torch.float32
        torch.testing.assert_close(weights, in_double_precision(call).float(), atol=1e-6, rtol=0)
        difference = float((weights - stacked("weights", exact)).abs().max())
        assert 0 < difference < ROUNDED[dtype]


@pytest.mark.parametrize("family", ["llama", "gptj", "cohere", "modernbert"])
def test_half_precision_is_followed_before_its_rotation(family: str):
    """The tables of angles are rounded too: a rotation keeps lengths to three digits only."""
    inputs = tiny_models.inputs_for(family, batch=2)
    model = tiny_models.build(family).to(torch.bfloat16)
    calls, reference = capture(model, inputs).calls, unrotated_reference(model, inputs)
    for call, pair in zip(calls, reference, strict=True):
        for seen, real in zip((call.query_unrotated, call.key_unrotated), pair, strict=True):
            assert seen is not None
            torch.testing.assert_close(seen.float(), real.float(), atol=0, rtol=0)


def in_double_precision(call: AttentionCall) -> Tensor:
    logits = call.scale * call.query.double() @ per_head(call.key, call).double().mT
    if call.bias is not None:
        logits = logits + call.bias.double()
    if call.mask is not None:
        logits = logits.masked_fill(~call.mask, -torch.inf)
    return logits.softmax(-1)


# --- refusals

REASONS = {
    "longformer": "band",
    "big_bird_sparse": "sparse.*blocks",
    "reformer_lsh": "hash",
    "nystromformer": "landmark",
    "mamba": "no softmax attention",
    "rwkv": "no softmax attention",
    "fnet": "Fourier.*no softmax attention",
}


@pytest.mark.parametrize(("family", "reason"), REASONS.items())
def test_other_attention_is_refused_with_its_reason(family: str, reason: str):
    model = tiny_models.build(family)
    with pytest.raises(UnreadableModel, match=reason) as refusal:
        capture(model, tiny_models.inputs_for(family))
    assert str(refusal.value).endswith(".")
    assert "\n" not in str(refusal.value)


def test_led_is_read_where_it_attends_to_all_keys():
    read = capture(tiny_models.build("led"), tiny_models.inputs_for("led", batch=2))
    assert [(call.tower, call.kind, call.layer) for call in read.calls] == with_cross(0, 1)
    assert [(each.tower, each.layer) for each in read.unread] == [
        ("encoder", layer) for layer in range(3)
    ]
    assert all(re.search("band", each.reason) for each in read.unread)
