"""What the examples promise is what the models do."""

from __future__ import annotations

import pytest

from attnviz import attention
from attnviz.capture import capture
from attnviz.models import ModelNotLoaded, load
from attnviz.tokens import model_inputs, tokenize
from attnviz.ui.examples import EXAMPLES, hint

PRONOUN, NAME, LIST = EXAMPLES


@pytest.mark.parametrize(
    ("example", "model", "query", "looks_at", "least"),
    [
        (PRONOUN, "minilm", ("it", -1), ("cat", 0), 0.7),
        (PRONOUN, "bundled", ("it", -1), ("because", 0), 0.7),
        (NAME, "minilm", ("alice", 1), ("alice", 0), 0.8),
        (NAME, "bundled", ("Alice", 1), ("Alice", 0), 0.2),
        (LIST, "bundled", ("door", 1), ("gold", 0), 0.8),
        (LIST, "minilm", ("door", 1), ("door", 0), 0.8),
    ],
)
def test_the_named_head_looks_where_the_example_says(example, model, query, looks_at, least):
    try:
        loaded = load(model)
    except ModelNotLoaded as reason:
        pytest.skip(str(reason))
    tokens = tokenize(loaded.tokenizer, example.text)
    layer, head = example.heads[model]
    weights = attention.weights(capture(loaded.model, model_inputs(tokens)).calls[layer], head)

    def position(word: str, which: int) -> int:
        return [i for i, label in enumerate(tokens.labels) if label.strip("␣") == word][which]

    row = weights[position(*query)]
    assert int(row.argmax()) == position(*looks_at)
    assert float(row.max()) >= least


def test_examples_have_their_word_and_say_what_to_see():
    for example in EXAMPLES:
        assert example.word in example.text
        assert example.see.endswith(".")


def test_only_models_that_were_tried_get_a_hint():
    text = EXAMPLES[0].text
    assert hint(text, "minilm") == EXAMPLES[0].see
    assert hint(text, "somebody/else") is None
    assert hint(f"{text} ", "minilm") is None
