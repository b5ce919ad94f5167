"""Write a page of BertViz; run by a Python that has `requirements-bertviz.txt`.

    PYTHON -m benchmarks.bertviz_view FOLDER VIEW FILE < text

VIEW is `head_view` or `model_view`. Writes to standard output how many seconds the page took to
build, without the model.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

PAGE = '<!doctype html><html><head><meta charset="utf-8"></head><body>{}</body></html>'


def main(folder: str, view: str, file: str) -> None:
    """Let the model of a folder read what comes by standard input, and write the view of it."""
    import bertviz
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(sys.stdin.read(), return_tensors="pt")
    with torch.no_grad():
        attentions = model(input_ids=inputs.input_ids, output_attentions=True).attentions
    tokens = tokenizer.convert_ids_to_tokens(inputs.input_ids[0])
    start = time.perf_counter()
    made = getattr(bertviz, view)(attentions, tokens, html_action="return")
    Path(file).write_text(PAGE.format(made.data), encoding="utf-8")
    sys.stdout.write(f"{time.perf_counter() - start}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
