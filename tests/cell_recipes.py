"""Where W_Q, W_K, W_V, W_O and the stream are in each family, by hand, read from its own source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from own_reference import alibi_slopes
from torch import Tensor

if TYPE_CHECKING:
    from cell_reference import Seen

Rows = Callable[[int], list[int]]  # of each head
ROLES = ("query", "key", "value")


@dataclass(frozen=True)
class Cut:
    """Rows of a matrix, head by head; columns, where it is W_O.

    `matrix` is a module or a parameter below the layer. `x` is the module that takes the token's
    vector, where the matrix is given something that was made of it.
    """

    matrix: str
    rows: Rows
    x: str | None = None


@dataclass(frozen=True)
class Recipe:
    """One kind of layer, `layer` with each of the numbers `runs` behind it, run `times` times.

    All other paths are below that, "" being the layer itself. The stream enters `before`; what is
    added to it leaves `added`, or is the difference to what enters `after`, the next module. A
    block `beside` this one adds its output at once, and the layer returns the sum. `norms` are
    those of queries and of keys, `factor` multiplies and the parameter `shift` is added to queries
    before they match, and the sigmoid of `gate` multiplies the output before W_O. `positions` are
    the table that is added, and its row for the first token.
    """

    layer: str
    attention: str
    heads: int
    query: tuple[Cut, ...]
    key: tuple[Cut, ...]
    value: tuple[Cut, ...]
    mixed: Cut | None
    before: str
    after: str
    scale: float
    added: str | None = None
    kv_heads: int = 0  # as many as heads
    runs: tuple[int, ...] = (0, 1, 2)
    times: int = 1
    changed: bool = False
    beside: str | None = None
    rotated: bool = False
    norms: tuple[str, str] | None = None
    gate: Cut | None = None
    factor: float = 1.0
    shift: str | None = None
    softcap: float | None = None
    biased: bool = False
    bias: Callable[[Seen, int, int], Tensor] | None = None
    tokens_first: bool = False
    positions: tuple[str, int] | None = None


def every(step: int, width: int, start: int = 0) -> Rows:
    """`width` rows in every `step` rows."""
    return lambda head: [head * step + start + d for d in range(width)]


def heads_of(width: int, start: int = 0) -> Rows:
    """One head after the other."""
    return every(width, width, start)


def separate(attention: str, names: str, out: str, width: int) -> dict:
    """A matrix for each of query, key and value, and W_O."""
    roles = zip(("query", "key", "value"), names.split(), strict=True)
    cuts = {role: (Cut(f"{attention}.{name}", heads_of(width)),) for role, name in roles}
    return {"attention": attention, "mixed": Cut(out, heads_of(width)), "added": out, **cuts}


def by_head(attention: str, name: str, out: str, width: int) -> dict:
    """One matrix: query, key and value of one head, then those of the next."""
    rows = {role: every(3 * width, width, at * width) for at, role in enumerate(ROLES)}
    return fused(attention, name, out, width, rows)


def in_thirds(attention: str, name: str, out: str, width: int, heads: int) -> dict:
    """One matrix: the queries of all heads, then the keys, then the values."""
    rows = {role: heads_of(width, at * heads * width) for at, role in enumerate(ROLES)}
    return fused(attention, name, out, width, rows)


def fused(attention: str, name: str, out: str, width: int, rows: Mapping[str, Rows]) -> dict:
    cuts = {role: (Cut(f"{attention}.{name}", rows[role]),) for role in ROLES}
    out = f"{attention}.{out}"
    return {"attention": attention, "mixed": Cut(out, heads_of(width)), "added": out, **cuts}


def recipe(*fields: Mapping, **more) -> Recipe:
    whole = {key: value for part in (*fields, more) for key, value in part.items()}
    return Recipe(**{"kv_heads": whole["heads"], **whole})


LLAMA = {
    "layer": "model.layers",
    "heads": 6,
    "kv_heads": 3,
    "before": "input_layernorm",
    "after": "post_attention_layernorm",
    "scale": 14**-0.5,
    "rotated": True,
    **separate("self_attn", "q_proj k_proj v_proj", "self_attn.o_proj", 14),
}
NORMED = {"norms": ("self_attn.q_norm", "self_attn.k_norm")}
BERT = {
    "layer": "encoder.layer",
    "heads": 5,
    "before": "attention.self",
    "after": "attention.output.LayerNorm",
    "scale": 11**-0.5,
    "positions": ("embeddings.position_embeddings.weight", 0),
    **separate("attention.self", "query key value", "attention.output.dense", 11),
}


def bundled() -> Recipe:
    own = separate("self_attn", "q_proj k_proj v_proj", "self_attn.o_proj", 32)
    return recipe(LLAMA, own, heads=4, kv_heads=4, scale=32**-0.5, runs=(0, 1))


def minilm() -> Recipe:
    own = separate("attention.self", "query key value", "attention.output.dense", 32)
    return recipe(BERT, own, heads=12, scale=32**-0.5, runs=tuple(range(6)))


def gemma2() -> Recipe:
    return recipe(
        LLAMA,
        added="post_attention_layernorm",
        after="pre_feedforward_layernorm",
        changed=True,
        scale=16**-0.5,
        softcap=5.0,
    )


def olmo2() -> Recipe:
    return recipe(
        LLAMA,
        NORMED,
        before="self_attn.q_proj",
        added="post_attention_layernorm",
        after="mlp",
        changed=True,
    )


def deepseek_v3() -> Recipe:
    """Queries and keys have 7 numbers that are not rotated, and 6 that are, the even ones first.

    Keys have the latter from another matrix, the same for all heads.
    """
    turned = [0, 2, 4, 1, 3, 5]
    q_x, kv_x = "self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa"

    def queries(head: int) -> list[int]:
        return [head * 13 + d for d in [*range(7), *(7 + t for t in turned)]]

    return recipe(
        LLAMA,
        heads=5,
        kv_heads=5,
        scale=13**-0.5,
        query=(Cut("self_attn.q_b_proj", queries, q_x),),
        key=(
            Cut("self_attn.kv_b_proj", every(18, 7), kv_x),
            Cut(kv_x, lambda head: [19 + t for t in turned]),
        ),
        value=(Cut("self_attn.kv_b_proj", every(18, 11, 7), kv_x),),
        mixed=Cut("self_attn.o_proj", heads_of(11)),
    )


def phi3() -> Recipe:
    """One matrix: 6 queries, 3 keys, 3 values."""
    starts = {"query": 0, "key": 6 * 14, "value": 9 * 14}
    rows = {role: heads_of(14, start) for role, start in starts.items()}
    return recipe(LLAMA, fused("self_attn", "qkv_proj", "o_proj", 14, rows))


def qwen3_next() -> Recipe:
    """W_Q gives each head a query and then a gate."""
    return recipe(
        LLAMA,
        NORMED,
        runs=(1, 4),
        query=(Cut("self_attn.q_proj", every(28, 14)),),
        gate=Cut("self_attn.q_proj", every(28, 14, 14)),
    )


def diffllama(half: int) -> Recipe:
    """The calls of a layer share queries and keys, each has one half of the values, twice over."""
    return recipe(
        LLAMA,
        heads=12,
        kv_heads=4,
        value=(Cut("self_attn.v_proj", lambda head: heads_of(14, 28 * half)(head % 2)),),
        mixed=None,
        added=None,
    )


def gpt2() -> Recipe:
    return recipe(
        in_thirds("attn", "c_attn", "c_proj", 11, 5),
        layer="transformer.h",
        heads=5,
        before="ln_1",
        after="ln_2",
        scale=11**-0.5,
        positions=("transformer.wpe.weight", 0),
    )


def gpt_neox() -> Recipe:
    return recipe(
        by_head("attention", "query_key_value", "dense", 14),
        layer="gpt_neox.layers",
        heads=5,
        before="input_layernorm",
        after="",
        beside="mlp",
        scale=14**-0.5,
        rotated=True,
    )


def gptj() -> Recipe:
    return recipe(
        separate("attn", "q_proj k_proj v_proj", "attn.out_proj", 14),
        layer="transformer.h",
        heads=5,
        before="ln_1",
        after="",
        beside="mlp",
        scale=14**-0.5,
        rotated=True,
    )


def opt() -> Recipe:
    return recipe(
        separate("self_attn", "q_proj k_proj v_proj", "self_attn.out_proj", 11),
        layer="model.decoder.layers",
        heads=5,
        before="self_attn_layer_norm",
        after="final_layer_norm",
        scale=1.0,
        factor=11**-0.5,
        positions=("model.decoder.embed_positions.weight", 2),
    )


def albert() -> Recipe:
    return recipe(
        separate("attention", "query key value", "attention.dense", 11),
        layer="encoder.albert_layer_groups.0.albert_layers",
        runs=(0,),
        times=3,
        heads=5,
        before="attention",
        after="attention.LayerNorm",
        scale=11**-0.5,
        positions=("embeddings.position_embeddings.weight", 0),
    )


def modernbert() -> Recipe:
    return recipe(
        in_thirds("attn", "Wqkv", "Wo", 14, 5),
        layer="layers",
        heads=5,
        before="attn_norm",
        after="mlp_norm",
        scale=14**-0.5,
        rotated=True,
    )


def vit() -> Recipe:
    return recipe(
        separate("attention", "q_proj k_proj v_proj", "attention.o_proj", 11),
        layer="layers",
        heads=5,
        before="layernorm_before",
        after="layernorm_after",
        scale=11**-0.5,
        positions=("embeddings.position_embeddings", 0),
    )


def t5(half: str, part: int, attention: str, **more) -> Recipe:
    """Nothing divides the scores. The first layer holds the biases of all layers of its half."""
    own = f"layer.{part}.{attention}"
    return recipe(
        separate(own, "q k v", f"{own}.o", 11),
        layer=f"{half}.block",
        heads=5,
        before=f"layer.{part}.layer_norm",
        after=f"layer.{part + 1}.layer_norm",
        scale=1.0,
        **more,
    )


def t5_self(half: str, runs: tuple[int, ...]) -> Recipe:
    table = f"{half}.block.0.layer.0.SelfAttention.relative_attention_bias"

    def bias(seen: Seen, queries: int, keys: int) -> Tensor:
        return seen.outputs[table][0].permute(2, 0, 1)[None]  # it has heads last

    return t5(half, 0, "SelfAttention", runs=runs, biased=True, bias=bias)


def bart(half: str, attention: str, **more) -> Recipe:
    return recipe(
        separate(attention, "q_proj k_proj v_proj", f"{attention}.out_proj", 11),
        layer=f"model.{half}.layers",
        heads=5,
        before=f"{attention}.q_proj",
        after=f"{attention}_layer_norm",
        scale=11**-0.5,
        **more,
    )


def bart_self(half: str, runs: tuple[int, ...]) -> Recipe:
    table = f"model.{half}.embed_positions.weight"
    return bart(half, "self_attn", runs=runs, positions=(table, 2))


def bloom_bias(seen: Seen, queries: int, keys: int) -> Tensor:
    return (alibi_slopes(5)[:, None, None] * torch.arange(keys)).expand(1, 5, queries, keys)


def mpt_bias(seen: Seen, queries: int, keys: int) -> Tensor:
    """Six heads have every second slope of eight, and then two of the others."""
    slopes = 2.0 ** -torch.tensor([2.0, 4.0, 6.0, 8.0, 1.0, 3.0])
    distance = torch.arange(keys) - (keys - 1)
    return (slopes[:, None, None] * distance).expand(1, 6, queries, keys)


def bloom() -> Recipe:
    return recipe(
        by_head("self_attention", "query_key_value", "dense", 11),
        layer="transformer.h",
        heads=5,
        before="input_layernorm",
        after="post_attention_layernorm",
        scale=11**-0.5,
        biased=True,
        bias=bloom_bias,
    )


def mpt() -> Recipe:
    return recipe(
        in_thirds("attn", "Wqkv", "out_proj", 11, 6),
        layer="transformer.blocks",
        heads=6,
        before="norm_1",
        after="norm_2",
        scale=11**-0.5,
        biased=True,
        bias=mpt_bias,
    )


FALCON = {"layer": "transformer.h", "before": "", "after": "", "beside": "mlp"}


def falcon_grouped() -> Recipe:
    """One matrix: two queries, a key and a value of each group."""
    rows = {
        "query": lambda head: [head // 2 * 40 + head % 2 * 10 + d for d in range(10)],
        "key": every(40, 10, 20),
        "value": every(40, 10, 30),
    }
    parts = fused("self_attention", "query_key_value", "dense", 10, rows)
    return recipe(FALCON, parts, heads=6, kv_heads=3, scale=10**-0.5, rotated=True)


def falcon_alibi() -> Recipe:
    """Its linear layers add the bias by themselves. ALiBi is divided like the scores, and twice."""

    def bias(seen: Seen, queries: int, keys: int) -> Tensor:
        return 2 * 12**-0.5 * bloom_bias(seen, queries, keys)

    parts = by_head("self_attention", "query_key_value", "dense", 12)
    return recipe(FALCON, parts, heads=5, scale=12**-0.5, biased=True, bias=bias)


def deberta_v2() -> Recipe:
    """Position terms, which depend on the words too, are added to the scores."""
    names, out = "query_proj key_proj value_proj", "attention.output.dense"
    parts = separate("attention.self", names, out, 11)
    return recipe(BERT, parts, scale=(3 * 11) ** -0.5, biased=True, positions=None)


def xlnet() -> Recipe:
    """Its matrices are parameters (d_model, head, d_k) without modules."""
    return recipe(
        separate("rel_attn", "q k v", "rel_attn.o", 14),
        layer="layer",
        heads=5,
        before="rel_attn",
        added=None,
        after="rel_attn.layer_norm",
        scale=14**-0.5,
        shift="rel_attn.r_w_bias",
        biased=True,
        tokens_first=True,
    )


RECIPES: dict[str, tuple[Recipe, ...]] = {
    "bundled": (bundled(),),
    "minilm": (minilm(),),
    "gpt2": (gpt2(),),
    "llama": (recipe(LLAMA),),
    "gemma2": (gemma2(),),
    "gpt_oss": (recipe(LLAMA),),
    "t5": (
        t5_self("encoder", (0, 1, 2)),
        t5_self("decoder", (0, 1)),
        t5("decoder", 1, "EncDecAttention", runs=(0, 1)),
    ),
    "bart": (
        bart_self("encoder", (0, 1, 2)),
        bart_self("decoder", (0, 1)),
        bart("decoder", "encoder_attn", runs=(0, 1)),
    ),
    "deepseek_v3": (deepseek_v3(),),
    "vit": (vit(),),
    "gpt_neox": (gpt_neox(),),
    "gptj": (gptj(),),
    "phi3": (phi3(),),
    "qwen3": (recipe(LLAMA, NORMED),),
    "qwen3_next": (qwen3_next(),),
    "olmo2": (olmo2(),),
    "opt": (opt(),),
    "bert": (recipe(BERT),),
    "albert": (albert(),),
    "modernbert": (modernbert(),),
    "diffllama": (diffllama(0), diffllama(1)),
    "bloom": (bloom(),),
    "mpt": (mpt(),),
    "falcon_grouped": (falcon_grouped(),),
    "falcon_alibi": (falcon_alibi(),),
    "deberta_v2": (deberta_v2(),),
    "xlnet": (xlnet(),),
}
