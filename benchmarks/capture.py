"""CPU time and peak memory of reading a model, beside the plain forward and eager attention.

    python -m benchmarks.capture [--lengths 512 2048] [--repeats 5]

GPT-2-small's shape (12 layers × 12 heads, d_k 64) with random weights. Every figure comes
from a process of its own; CPU time is the median over the repeats, summed over threads;
memory is the peak resident size above that before the run.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

VARIANTS = ("plain", "capture", "eager")
LAYERS, WIDTH = 12, 768


def main() -> None:
    """Measure every variant at every length and write a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--measure", nargs=2, metavar=("VARIANT", "LENGTH"))
    arguments = parser.parse_args()
    if arguments.measure:
        variant, length = arguments.measure
        sys.stdout.write(json.dumps(measure(variant, int(length), arguments.repeats)))
        return
    sys.stdout.write("| n | Q, K, V (MiB) | run | CPU s | ratio | peak memory (MiB) |\n")
    sys.stdout.write("|---|---|---|---|---|---|\n")
    for length in arguments.lengths:
        for line in table(length, arguments.repeats):
            sys.stdout.write(line + "\n")


def table(length: int, repeats: int) -> list[str]:
    """The rows of one length."""
    size = 3 * LAYERS * WIDTH * length * 4 / 2**20
    figures = {variant: in_own_process(variant, length, repeats) for variant in VARIANTS}
    plain = figures["plain"]["seconds"]
    return [
        f"| {length:,} | {size:.0f} | {variant} | {figure['seconds']:.2f} "
        f"| {figure['seconds'] / plain:.2f} | +{figure['peak']:.0f} |"
        for variant, figure in figures.items()
    ]


def in_own_process(variant: str, length: int, repeats: int) -> dict[str, float]:
    """Run `measure` in a fresh interpreter, so that no memory is left from another run."""
    command = [sys.executable, "-m", "benchmarks.capture", "--repeats", str(repeats)]
    done = subprocess.run(
        [*command, "--measure", variant, str(length)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def measure(variant: str, length: int, repeats: int) -> dict[str, float]:
    """Median CPU seconds and peak memory in MiB of one variant."""
    run = prepared(variant, length)
    run()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # makes the peak start here
    seconds = []
    for _ in range(repeats):
        started = time.process_time()
        run()
        seconds.append(time.process_time() - started)
    return {"seconds": median(seconds), "peak": resident("VmHWM") - before}


def prepared(variant: str, length: int) -> Callable[[], None]:
    """The run to measure; its result is dropped at once."""
    import torch
    from transformers import GPT2Config, GPT2Model

    from attnviz.capture import capture

    torch.manual_seed(0)
    config = GPT2Config(n_positions=length)
    model = GPT2Model._from_config(
        config, attn_implementation="eager" if variant == "eager" else "sdpa"
    ).eval()
    inputs = {"input_ids": torch.randint(0, 50_000, (1, length))}

    @torch.no_grad()
    def run() -> None:
        if variant == "capture":
            capture(model, inputs)
        else:
            model(**inputs, use_cache=False, output_attentions=variant == "eager")

    return run


def resident(which: str) -> float:
    """A figure of this process's memory, in MiB."""
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{which}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


if __name__ == "__main__":
    main()
