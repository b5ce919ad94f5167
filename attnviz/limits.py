"""How long a text may be: what reading it costs, estimated before anything runs.

Three limits meet: the places that a model has vectors for, the memory that is free, and the time
that a person waits. A public host may set a fourth, `MOST_TOKENS`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from statistics import median
from typing import TYPE_CHECKING, Any

from attnviz.memory import free_memory
from attnviz.refusals import gigabytes

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

MOST_TOKENS: int | None = None  # of one text; a public host may set what it can bear
MOST_SECONDS = 180.0  # of one run
SHORT = 512  # up to so many tokens, a run takes less than the headroom left beside the weights

# Measured on two models, from 512 to 16,000 tokens (tests/test_limits.py).
SLACK = 1.25  # what an allocator leaves between tensors; rather too much than too little
START = 8e6  # bytes that any run takes
SECONDS_PER_LAYER = 0.01
CAUSAL_BYTES = 2  # a cell of a causal mask, and of another while it is looked through
LOCAL_BYTES = 5  # a local layer has a mask of its own, put together from several
SQUARES_PER_SECOND = 3e8  # cells of a mask that are looked through
EAGER_COPIES = 3  # of a layer's weights at once: logits, softmax, and what goes between
EAGER_SECONDS = 12e-10  # a weight that is written to memory and read again, some times over

INNER_WIDTHS = ("intermediate_size", "n_inner", "d_ff", "ffn_dim", "encoder_ffn_dim")
SHARES = {  # how much of a text to cut, and its name
    0.1: "about a tenth",
    0.25: "about a quarter",
    1 / 3: "about a third",
    0.5: "about half",
    2 / 3: "about two thirds",
    0.75: "about three quarters",
    0.9: "about nine tenths",
}


@dataclass(frozen=True)
class Cost:
    """What reading a text takes: bytes of memory beside the weights, and seconds."""

    memory: int
    seconds: float


@dataclass(frozen=True)
class Shape:
    """What the cost of a run hangs on.

    `products` counts the parameters that each token is multiplied with. `whole` is True where a
    model computes all weights of a layer at once, `biased` where it adds a number to each logit,
    `causal` where later tokens are hidden.
    """

    layers: int
    heads: int
    kv_heads: int
    d_k: int
    d_model: int
    d_inner: int
    vocabulary: int
    products: float
    bytes_per_number: int
    rotates: bool
    causal: bool
    local: bool
    whole: bool
    biased: bool

    def cost(self, tokens: int, speed: float) -> Cost:
        """The cost at so many tokens, at so many operations a second."""
        return Cost(int(START + SLACK * self._memory(tokens)), self._seconds(tokens, speed))

    def _memory(self, tokens: int) -> int:
        queries, keys = self.heads * self.d_k, self.kv_heads * self.d_k
        kept = queries + 2 * keys + (queries + keys if self.rotates else 0)
        passing = max(6 * self.d_model + 4 * self.d_inner, self.vocabulary)
        squares = self.causal * CAUSAL_BYTES + self.local * LOCAL_BYTES
        squares += EAGER_COPIES * self.heads * self.bytes_per_number if self.whole else 0
        squares += 2 * self.heads * self.bytes_per_number + 40 if self.biased else 0
        return tokens * self.bytes_per_number * (self.layers * kept + passing) + tokens**2 * squares

    def _seconds(self, tokens: int, speed: float) -> float:
        weights = self.layers * self.heads * tokens**2
        spared = 2 if self.causal and not self.whole else 1
        operations = 2 * tokens * (self.products + self.d_model * self.vocabulary)
        operations += 4 * weights * self.d_k / spared
        others = SECONDS_PER_LAYER * self.layers + tokens**2 / SQUARES_PER_SECOND
        return operations / speed + others + (EAGER_SECONDS * weights if self.whole else 0)


def cost(model: PreTrainedModel, tokens: int) -> Cost:
    """Estimate what reading a text of so many tokens takes; nothing is run but a short product."""
    return shape_of(model).cost(tokens, _speed(model))


def refusal(model: PreTrainedModel, tokens: int, called: str = "text") -> str | None:
    """Why a text of so many tokens is not read here, in a sentence; None where it is."""
    told = f"This {called} has {tokens:,} tokens; "
    if MOST_TOKENS is not None and tokens > MOST_TOKENS:
        share = share_to_cut(tokens, MOST_TOKENS)
        return f"{told}at most {MOST_TOKENS:,} are read here at once. Shorten it by {share}."
    if tokens <= SHORT:
        return None
    needed, free = cost(model, tokens), free_memory()
    if free is not None and needed.memory > free:
        why = (
            f"reading it would take about {gigabytes(needed.memory)} of memory, and "
            f"{gigabytes(free)} are free"
        )
    elif needed.seconds > MOST_SECONDS:
        why = (
            f"reading it would take about {_minutes(needed.seconds)} on this machine, and at most "
            f"{_minutes(MOST_SECONDS)} are spent on one"
        )
    else:
        return None
    most = most_tokens(model)
    return (
        f"{told}{why}. At most about {most:,} tokens of this model fit; shorten it by "
        f"{share_to_cut(tokens, most)}."
    )


def most_tokens(model: PreTrainedModel) -> int:
    """The longest text that fits into the free memory and the time, in two digits."""
    shape, speed, free = shape_of(model), _speed(model), free_memory()
    few, many = SHORT, 10_000_000
    while many - few > few // 100:
        tried = (few + many) // 2
        needed = shape.cost(tried, speed)
        fits = needed.seconds <= MOST_SECONDS and (free is None or needed.memory <= free)
        few, many = (tried, many) if fits else (few, tried)
    digit = 10 ** (len(str(few)) - 2)
    return few // digit * digit


def most_places(model: PreTrainedModel, stated: int | None) -> int | None:
    """How many tokens a model takes: what it states where it has a vector for each place.

    Without a table of places (rotation, relative distances) there is no end, None.
    """
    from attnviz.families import POSITION_TABLE

    parts = chain(model.named_modules(), model.named_parameters(), model.named_buffers())
    leaves = (name.rpartition(".")[2] for name, _ in parts)
    return stated if any(POSITION_TABLE.fullmatch(leaf) for leaf in leaves) else None


def beyond_training(tokens: int, stated: int | None) -> str | None:
    """What to know of a text that is longer than those that a model was trained on."""
    if stated is None or tokens <= stated:
        return None
    return (
        f"This text has {tokens:,} tokens, longer than the {stated:,} positions that this model "
        "was trained on; what its heads do beyond them it has never practised."
    )


def share_to_cut(length: int, limit: int) -> str:
    """Return in words how much of a text must go."""
    cut = 1 - limit / length
    return next((SHARES[s] for s in SHARES if s >= cut - 1e-9), "more than nine tenths")


def shape_of(model: PreTrainedModel) -> Shape:
    """What the configuration and the parameters of a model say of its cost."""
    from attnviz.families import has_rotation, writes_alone

    config = _text_config(model)
    both = bool(model.config.is_encoder_decoder)
    heads = _number(config, "num_attention_heads") or 1
    d_model = _number(config, "hidden_size", "d_model") or 0
    return Shape(
        # A decoder that looks across has two calls a layer, beside the encoder's one.
        layers=(3 if both else 1) * (_number(config, "num_hidden_layers", "num_layers") or 1),
        heads=heads,
        kv_heads=_number(config, "num_key_value_heads") or heads,
        d_k=_number(config, "head_dim", "d_kv") or d_model // heads,
        d_model=d_model,
        d_inner=_number(config, *INNER_WIDTHS) or 4 * d_model,
        vocabulary=_vocabulary(model),
        products=_products(model, config),
        bytes_per_number=model.dtype.itemsize,
        rotates=has_rotation(model),
        causal=writes_alone(model),
        local=bool(_number(config, "sliding_window")),
        whole=getattr(config, "_attn_implementation", None) == "eager",
        biased=any(hasattr(config, name) for name in ("relative_attention_num_buckets", "alibi")),
    )


def _text_config(model: PreTrainedModel) -> Any:
    try:
        return model.config.get_text_config()
    except ValueError:  # several text parts
        return model.config


def _number(config: Any, *names: str) -> int | None:
    """The first positive number under one of these names."""
    found = (_stated(config, name) for name in names)
    return next((number for number in found if isinstance(number, int) and number > 0), None)


def _stated(config: Any, name: str) -> Any:
    """An entry of a configuration; its largest number where layers differ in it."""
    try:
        return getattr(config, name, None)
    except Exception:  # transformers' own kind of error, for what has no one value
        layers = (getattr(layer, name, None) for layer in config.per_layer_config)
        return max((number for number in layers if isinstance(number, int)), default=None)


def _vocabulary(model: PreTrainedModel) -> int:
    """How many logits each token gets; 0 where a model predicts no tokens."""
    head: Any = model.get_output_embeddings()
    weight = getattr(head, "weight", None)
    return 0 if weight is None else int(weight.shape[0])


def _products(model: PreTrainedModel, config: Any) -> float:
    """How many parameters each token is multiplied with, but for those of the logits.

    Vectors that are looked up are not; of a mixture's experts those that a token is sent to.
    """
    looked_up = {
        id(module.weight) for module in model.modules() if type(module).__name__ == "Embedding"
    }
    head: Any = model.get_output_embeddings()
    looked_up.add(id(getattr(head, "weight", None)))
    experts = _number(config, "num_local_experts", "n_routed_experts", "num_experts") or 1
    used = min(1.0, (_number(config, "num_experts_per_tok") or experts) / experts)
    return sum(
        weight.numel() * (used if weight.dim() > 2 else 1.0)
        for weight in model.parameters()
        if weight.dim() > 1 and id(weight) not in looked_up
    )


def _speed(model: PreTrainedModel) -> float:
    """Operations a second of this machine, tried once for each precision."""
    device = model.device if model.device.type != "meta" else "cpu"
    return _tried_speed(model.dtype, str(device))


@lru_cache(maxsize=8)
def _tried_speed(dtype: torch.dtype, device: str) -> float:
    import torch

    rows, inner, columns = 384, 768, 1536
    one = torch.ones(rows, inner, dtype=dtype, device=device)
    other = torch.ones(inner, columns, dtype=dtype, device=device)
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        float((one @ other)[0, 0])
        seconds.append(time.perf_counter() - started)
    return 2 * rows * inner * columns / median(seconds)


def _minutes(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    return f"{minutes:,} minute" + ("s" if minutes != 1 else "")
