"""What models and papers do with the scale and with the projections, and where that stands.

Every row says where it was read. What no source confirmed is not here. Which rows a captured
layer belongs to is told from what was read of it, never from the name of its family.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from attnviz.anatomy import Heads, LayerAnatomy
    from attnviz.surroundings import Origin, Wiring

Read = Literal[
    "abstract",
    "paper",
    "code",
    "configuration",
    "documentation",
    "results",
    "discussion",
    "account",
    "toy",
]

TRANSFORMERS = "5.24.0"  # whose code was read
MODELS_AT = f"https://github.com/huggingface/transformers/blob/v{TRANSFORMERS}/src/transformers"


@dataclass(frozen=True)
class Source:
    """Where a fact stands, and what was read of it: an account is what others tell of a paper.

    `address` is None for what this app itself trains.
    """

    title: str
    address: str | None
    read: Read


@dataclass(frozen=True)
class Example:
    """A checkpoint, the width of its queries, and the factor on q·k that follows from it."""

    checkpoint: str
    d_k: int
    factor: float

    @property
    def multiple(self) -> float:
        """The factor as a multiple of the usual 1/√d_k."""
        return self.factor * self.d_k**0.5


@dataclass(frozen=True)
class Practice:
    """One way of doing it, the models that do, and what is worth knowing of it."""

    name: str
    models: str
    remark: str
    sources: tuple[Source, ...]
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True)
class HalfTruth:
    """What is often said, and the half of it that is not so."""

    claim: str
    truth: str
    sources: tuple[Source, ...]


def _code(family: str) -> Source:
    """A family's modelling file in transformers."""
    name = f"modeling_{family}.py"
    return Source(f"code of {family}", f"{MODELS_AT}/models/{family}/{name}", "code")


def _arxiv(title: str, number: str, read: Read) -> Source:
    return Source(title, f"https://arxiv.org/abs/{number}", read)


VASWANI = _arxiv("Vaswani et al. 2017, section 3.2.1", "1706.03762", "paper")
MU_P = Source("mup, README", "https://github.com/microsoft/mup", "documentation")
QK_NORM = _arxiv("Dehghani et al. 2023, ViT-22B", "2302.05442", "account")
INSTABILITY = _arxiv("Wortsman et al. 2023", "2309.14322", "abstract")
SSMAX = _arxiv("Nakanishi 2025, SSMax", "2501.19399", "abstract")
T5_SCALE = Source(
    "maxtext, pull request 1349",
    "https://github.com/AI-Hypercomputer/maxtext/pull/1349",
    "discussion",
)
GRANITE_8B = Source(
    "IBM's foundation-model-stack, granite.py",
    "https://github.com/foundation-model-stack/foundation-model-stack/blob/"
    "00b9af6305656b97003d6c14529457b401db8bc6/fms/models/granite.py",
    "configuration",
)
GEMMA_27B = Source(
    "Google's gemma_pytorch, config.py",
    "https://github.com/google/gemma_pytorch/blob/"
    "03e657582d17cb5a8617ebf333c1c16f3694670e/gemma/config.py",
    "configuration",
)
DEEPSEEK_V2 = Source(
    "DeepSeek-V2, config.json",
    "https://huggingface.co/deepseek-ai/DeepSeek-V2/commit/"
    "4c2b2d14d44c19274c99545cb5d64b5e2642e62e",
    "configuration",
)
PROJECTIONS_AT = "https://github.com/Brainchip-Inc/Do-Transformers-Need-3-Projections"
KAYYAM = _arxiv("Kayyam et al. 2026", "2606.04032", "abstract")
KAYYAM_TIED = Source(
    "their note on tying after training",
    f"{PROJECTIONS_AT}/blob/1bc8fdf7118a296b9207367fe331f2a735d21feb/theory/kv_tying_theory.tex",
    "paper",
)
KAYYAM_KEYLESS = Source(
    "their test of keyless attention",
    f"{PROJECTIONS_AT}/blob/ff3ef42e48a86e93aa87b380cc0e53001c3ce843/"
    "keyless_singlehead_equivalence_results.csv",
    "results",
)
KEYLESS = _arxiv("Gao 2026, Keyless Attention", "2606.21848", "abstract")
GATED = _arxiv("Qiu et al. 2025, Gated Attention", "2505.06708", "abstract")
CIRCUITS = Source(
    "Elhage et al. 2021", "https://transformer-circuits.pub/2021/framework/index.html", "account"
)
SCALE_TOY = Source("our toy, in the step “In training”", None, "toy")
PROJECTION_TOY = Source("our toy, on the page “Why three”", None, "toy")


# What q·k is multiplied by. A model's own scale is found among these by its name.
USUAL = "1/√d_k"
START = "1, for smaller start values"
NOTHING = "1, and nothing else"
INVERSE = "1/d_k"
SETTING = "1/√(a setting)"
NORM = "1/√d_k after a norm"
NORM_ALONE = "1 after a norm"
CAP = "a soft cap besides"
SINK = "a learned sink besides"
COSINE = "cosine times a learned factor"
PRODUCTS = "1/√(3 · d_k)"
BY_LAYER = "1/(√d_k · (layer + 1))"

SCALES = (
    Practice(
        USUAL,
        "Most, among them GPT-2, BERT, Llama, Mistral and ViT",
        "Brings the variance of q·k back to 1, if the components of q and k are independent with "
        "variance 1: so at the start of training.",
        (VASWANI, _code("llama")),
        (Example("GPT-2", 64, 64**-0.5),),
    ),
    Practice(
        START,
        "T5, mT5, UMT5, Switch Transformers",
        "W_Q starts out smaller by √d_k instead. The same at the start; not after it, where the "
        "optimiser is Adam, whose steps do not shrink with the weights.",
        (_code("t5"), T5_SCALE),
        (Example("T5-small", 64, 1.0),),
    ),
    Practice(
        NOTHING,
        "GPT-Neo",
        "q·k enters the softmax at its full size, computed in float32.",
        (_code("gpt_neo"),),
        (Example("GPT-Neo-1.3B", 128, 1.0),),
    ),
    Practice(
        INVERSE,
        "Granite 3",
        "Shipped models that divide by d_k itself: the attention_multiplier of their "
        "configuration is the whole factor.",
        (_code("granite"), GRANITE_8B),
        (Example("Granite 3.0 8B", 128, 1 / 128),),
    ),
    Practice(
        "1/d_k times a constant (µP)",
        "A rule for models of growing width, not a family",
        "Trained queries and keys are aligned, so that q·k grows like d_k, not like √d_k. The "
        "constant is free: the authors' package takes 8/d_k, which is 1/√d_k where d_k is 64.",
        (MU_P, _arxiv("Yang et al. 2022, Tensor Programs V", "2203.03466", "account")),
    ),
    Practice(
        SETTING,
        "Gemma 2, Gemma 3",
        "query_pre_attn_scalar in the configuration. It is d_k in the smaller models, and "
        "d_model / heads = 144 in the 27B of Gemma 2, where d_k is 128.",
        (_code("gemma2"), _code("gemma3"), GEMMA_27B),
        (Example("Gemma 2 27B", 128, 144**-0.5),),
    ),
    Practice(
        NORM,
        "ViT-22B, Qwen3, OLMo 2",
        "Queries and keys pass a norm with a learned gain g (QK-norm). Then |q·k| is at most "
        "d_k · max|g_q| · max|g_k|, whatever training does. OLMo 2 norms all heads at once, so "
        "one head may take more than its part.",
        (QK_NORM, INSTABILITY, _code("qwen3"), _code("olmo2")),
    ),
    Practice(
        NORM_ALONE,
        "Gemma 3n, Gemma 4",
        "The learned gain of the norm takes the place of the divisor.",
        (_code("gemma3n"), _code("gemma4")),
    ),
    Practice(
        CAP,
        "Gemma 2",
        "The logits z become 50 · tanh(z / 50): none can be larger than 50, and the gradient of "
        "large ones shrinks by 1 − tanh².",
        (_code("gemma2"), GEMMA_27B),
    ),
    Practice(
        COSINE,
        "Swin Transformer V2",
        "q and k are brought to length 1; each head learns its factor, which starts at 10 and is "
        "at most 100. d_k plays no part.",
        (_code("swinv2"), _arxiv("Liu et al. 2022", "2111.09883", "abstract")),
    ),
    Practice(
        "1/√d_k times a growing log n",
        "SSMax; Llama 4 in its layers without rotation",
        "With n keys the largest weight fades as n grows, whatever d_k is. SSMax multiplies by "
        "s · ln n with a learned s; Llama 4 multiplies the query by "
        "1 + 0.1 · ln(1 + ⌊(position + 1) / 8192⌋).",
        (SSMAX, _code("llama4")),
    ),
    Practice(
        "1/√d_k times m²",
        "DeepSeek-V2, DeepSeek-V3",
        "For texts longer than those of training (YaRN): m = 0.1 · mscale · ln(factor) + 1. In "
        "DeepSeek-V2 mscale is 0.707 and the factor 40, so m² is 1.59.",
        (_code("deepseek_v2"), DEEPSEEK_V2),
        (Example("DeepSeek-V2", 192, 0.114721),),
    ),
    Practice(
        PRODUCTS,
        "DeBERTa",
        "Three products are added to one score, of content and of position: three times the "
        "variance.",
        (_code("deberta"),),
    ),
    Practice(
        BY_LAYER,
        "GPT-2, as an option",
        "Each layer divides by its number besides, counted from 1.",
        (_code("gpt2"),),
    ),
    Practice(
        SINK,
        "gpt-oss",
        "Each head learns one more logit, which takes its share of every row and is then dropped: "
        "the weights shown sum to less than 1.",
        (_code("gpt_oss"),),
    ),
)

SCALE_HALF_TRUTHS = (
    HalfTruth(
        "Dividing by d_k shrinks the scores too much.",
        "At the start it does: the logits then vary by 1/√d_k only, and attention is nearly "
        "even. But it trains well: µP prescribes it, Granite ships it, and in our toy it ends as "
        "high as √d_k and bears the largest learning rates.",
        (MU_P, _code("granite"), SCALE_TOY),
    ),
    HalfTruth(
        "Dividing by d_k² destroys the signal.",
        "At the start, and with SGD for good. With Adam at a rate of 0.01 our toy recovers it "
        "fully: Adam's steps do not shrink with the gradients.",
        (SCALE_TOY,),
    ),
    HalfTruth(
        "Without a divisor training fails.",
        "T5 has none: its start values hold it, which with Adam is not the same afterwards. "
        "GPT-Neo has none at all. In our toy it is slower and breaks at high rates, but it does "
        "arrive.",
        (_code("t5"), T5_SCALE, _code("gpt_neo"), SCALE_TOY),
    ),
    HalfTruth(
        "√d_k keeps the variance at 1.",
        "At the start. Logits grow in training all the same, until large models diverge; a norm "
        "of q and k caps |q·k| for good, which no divisor can.",
        (QK_NORM, INSTABILITY),
    ),
    HalfTruth(
        "√d_k keeps attention sharp.",
        "It takes out d_k, not n: over more keys the largest weight fades.",
        (SSMAX,),
    ),
)

# What q, k and v are made by. A model's own are found among these by their names.
THREE = "three matrices, a key and value per head"
GROUPED = "grouped-query attention"
MULTI_QUERY = "multi-query attention"
LATENT = "multi-head latent attention"
SHARED_KEY_VALUE = "one matrix for k and v"
GATE = "a gate, as a fourth"
TWICE = "differential attention"
OUTPUT = "W_O, the fourth that all have"

PROJECTIONS = (
    Practice(
        THREE,
        "GPT-2, BERT, T5, ViT, Whisper",
        "They may be stored as one: that changes nothing.",
        (VASWANI, _code("bert"), _code("gpt2")),
    ),
    Practice(
        OUTPUT,
        "All of these",
        "It mixes the heads. Only two products matter to the result: W_Q·W_Kᵀ for where to look, "
        "W_V·W_O for what to bring.",
        (CIRCUITS,),
    ),
    Practice(
        GROUPED,
        "Mistral, Qwen3, Gemma 2, Granite",
        "Several query heads read one key and value head. Close to separate ones in quality, "
        "nearly as fast as a single one.",
        (
            _arxiv("Ainslie et al. 2023", "2305.13245", "abstract"),
            _code("mistral"),
        ),
    ),
    Practice(
        MULTI_QUERY,
        "Falcon 7B, GPT-BigCode",
        "All query heads read one key and value head: much faster to decode, a little worse.",
        (
            _arxiv("Shazeer 2019", "1911.02150", "abstract"),
            _code("falcon"),
            _code("gpt_bigcode"),
        ),
    ),
    Practice(
        LATENT,
        "DeepSeek-V2, DeepSeek-V3",
        "Keys and values of all heads are made from one short vector, which alone is kept: 93.3% "
        "less memory for past tokens than DeepSeek 67B.",
        (_arxiv("DeepSeek-AI 2024", "2405.04434", "abstract"), _code("deepseek_v3")),
    ),
    Practice(
        SHARED_KEY_VALUE,
        "Gemma 4, in the layers that see all, where attention_k_eq_v is set",
        "Two projections, as in the second claim. A learned gain and a rotation still tell the "
        "key from the value. Trained so, a language model of 300M loses 3.1% in perplexity and "
        "halves what it keeps of past tokens.",
        (_code("gemma4"), KAYYAM),
    ),
    Practice(
        "one matrix for q and k",
        "Reformer",
        "Keys are brought to one length, and a token sees itself only if nothing else is left. "
        "The paper claims no loss; a reproduction could not confirm that.",
        (
            _arxiv("Kitaev et al. 2020", "2001.04451", "abstract"),
            _code("reformer"),
            Source(
                "its reproduction",
                "https://wandb.ai/fastai_community/reformer-fastai/reports/"
                "Experiments-Shared-Query-Key-Attention--Vmlldzo0MzI1MTc",
                "results",
            ),
        ),
    ),
    Practice(
        "no key matrix",
        "Keyless Attention (models of 280M to 1.5B)",
        "Queries are matched with the values. As good as three in 4 of 5 models. In a test of "
        "recall with 4 narrow heads 0.34 to 0.37 where three matrices reach 0.9995; with one "
        "wide head 1.0. It depends on the room in a head.",
        (KEYLESS, KAYYAM_KEYLESS),
    ),
    Practice(
        GATE,
        "Qwen3-Next",
        "What a head brings is multiplied by a sigmoid of the token that looks. It is not linear, "
        "so it cannot be folded into the others: better and more stable in models of 1.7B and "
        "15B.",
        (GATED, _code("qwen3_next")),
    ),
    Practice(
        TWICE,
        "DiffLlama",
        "Two sets of weights, the second subtracted from the first by a learned share: a token "
        "may count against another.",
        (
            _arxiv("Ye et al. 2024, Differential Transformer", "2410.05258", "abstract"),
            _code("diffllama"),
        ),
    ),
    Practice(
        "talking heads",
        "DeBERTa, as an option",
        "Two small matrices mix the heads with each other before and after the softmax.",
        (_arxiv("Shazeer et al. 2020", "2003.02436", "abstract"), _code("deberta")),
    ),
)

PROJECTION_HALF_TRUTHS = (
    HalfTruth(
        "With two projections matching and retrieval cannot be told apart.",
        "Not where a head has room: our toy with k = v fails at a width of 4 and is perfect at "
        "16. Gemma 4 ships it.",
        (PROJECTION_TOY, _code("gemma4"), KAYYAM),
    ),
    HalfTruth(
        "A trained model can do with two as well.",
        "Not after the fact: if k and v of a trained model are made one, what needs moving "
        "between tokens falls to chance. Some further training repairs it.",
        (KAYYAM_TIED,),
    ),
    HalfTruth(
        "More than three would be redundant.",
        "A fourth linear map is: it folds into the others. A gate is not.",
        (GATED, PROJECTION_TOY),
    ),
)


def every_source() -> tuple[Source, ...]:
    """All sources, each once, in the order of the rows."""
    rows = (*SCALES, *SCALE_HALF_TRUTHS, *PROJECTIONS, *PROJECTION_HALF_TRUTHS)
    return tuple(dict.fromkeys(source for row in rows for source in row.sources))


def scale_names(heads: Heads, cosine: bool = False) -> Iterator[str]:
    """The names of the rows in `SCALES` that a layer belongs to, as far as they are known here.

    `cosine` says that its keys have length 1.
    """
    scale = heads.scale
    if cosine:
        yield COSINE
    elif scale.rule == "1/√d_k":
        yield NORM if heads.norm else USUAL
    elif scale.rule == "1":
        yield {"start values": START, "norm": NORM_ALONE}.get(scale.reason or "", NOTHING)
    elif scale.setting and scale.setting[0] == "query_pre_attn_scalar":
        yield SETTING
    elif scale.rule in (INVERSE, PRODUCTS, BY_LAYER):
        yield scale.rule
    if heads.softcap is not None:
        yield CAP
    if heads.sinks:
        yield SINK


def projection_names(layer: LayerAnatomy, wires: Wiring) -> Iterator[str]:
    """The names of the rows in `PROJECTIONS` that a layer belongs to, as far as they are seen."""
    heads = layer.heads
    if heads is None:
        return
    if wires.output is not None:
        yield OUTPUT
    if heads.kv_heads < heads.heads:
        yield MULTI_QUERY if heads.kv_heads == 1 else GROUPED
    if heads.projections == "latent":
        yield LATENT
    elif same_numbers(wires.key, wires.value):
        yield SHARED_KEY_VALUE
    elif wires.key is not None and wires.value is not None and heads.kv_heads == heads.heads:
        yield THREE
    if has_gate(heads, wires.query, wires.key):
        yield GATE
    if layer.twice:
        yield TWICE


def same_numbers(one: Origin | None, other: Origin | None) -> bool:
    """Whether two roles' vectors are made from the very same numbers of the same products."""
    if one is None or other is None or one.which.shape != other.which.shape:
        return False
    if bool((one.which < 0).any() | (other.which < 0).any()):
        return False
    names = [[projection.name for projection in origin.projections] for origin in (one, other)]
    alike = (one.which == other.which) & (one.row == other.row) & (one.column == other.column)
    return names[0] == names[1] and bool(alike.all())


def has_gate(heads: Heads, query: Origin | None, key: Origin | None) -> bool:
    """Whether the query's own matrix makes twice as many numbers as the queries have.

    So does that of Qwen3-Next, whose other half is the gate.
    """
    if query is None or key is None or heads.d_k is None or int(query.which.min()) < 0:
        return False
    used, by_key = query.which.unique(), key.which.unique()
    if len(used) != 1 or bool((by_key == used).any()):
        return False
    made = query.projections[int(used)].weight.shape[0]
    return made == 2 * heads.heads * heads.d_k
