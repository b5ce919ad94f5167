"""CPU time and peak memory of reading a model, beside the plain forward and eager attention.

    python -m benchmarks.capture [--lengths 512 2048] [--repeats 9]

GPT-2-small's shape (12 layers × 12 heads, d_k 64) with random weights. CPU time is summed over
threads; the runs take turns in one process, so that a busy moment of the machine meets them
alike, and the median counts. Memory is the peak resident size above that before the run, each
in a process of its own.
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

Figures = dict[str, float]


def main() -> None:
    """Measure every variant at every length and write a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", nargs=2, metavar=("WHAT", "LENGTH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        what, length = arguments.only[0], int(arguments.only[1])
        figures = seconds(length, arguments.repeats) if what == "time" else peak(what, length)
        sys.stdout.write(json.dumps(figures))
        return
    sys.stdout.write("| n | Q, K, V (MiB) | run | CPU s | ratio | peak memory (MiB) |\n")
    sys.stdout.write("|---|---|---|---|---|---|\n")
    for length in arguments.lengths:
        sys.stdout.write(rows(length, arguments.repeats))


def rows(length: int, repeats: int) -> str:
    """The rows of one length."""
    size = 3 * LAYERS * WIDTH * length * 4 / 2**20
    times = in_own_process("time", length, repeats)
    peaks = {name: in_own_process(name, length, repeats)["peak"] for name in VARIANTS}
    return "".join(
        f"| {length:,} | {size:.0f} | {name} | {times[name]:.2f} "
        f"| {times[name] / times['plain']:.2f} | +{peaks[name]:.0f} |\n"
        for name in VARIANTS
    )


def in_own_process(what: str, length: int, repeats: int) -> Figures:
    """Measure in a fresh interpreter, so that nothing is left from another run."""
    command = [sys.executable, "-m", "benchmarks.capture", "--repeats", str(repeats)]
    done = subprocess.run(
        [*command, "--only", what, str(length)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def seconds(length: int, repeats: int) -> Figures:
    """Median CPU seconds of each variant, in turns."""
    runs = {variant: prepared(variant, length) for variant in VARIANTS}
    times: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for repeat in range(repeats + 1):
        for variant, run in runs.items():
            started = time.process_time()
            run()
            if repeat:  # the first round warms up
                times[variant].append(time.process_time() - started)
    return {variant: median(values) for variant, values in times.items()}


def peak(variant: str, length: int) -> Figures:
    """Peak memory of one variant in MiB, above what was resident before it."""
    run = prepared(variant, length)
    prepared(variant, 16)()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # makes the peak start here
    run()
    return {"peak": resident("VmHWM") - before}


def prepared(variant: str, length: int) -> Callable[[], object]:
    """The run to measure."""
    import torch
    from transformers import GPT2Config, GPT2Model

    from attnviz.capture import capture

    torch.manual_seed(0)
    config = GPT2Config(n_positions=length)
    name = "eager" if variant == "eager" else "sdpa"
    model = GPT2Model._from_config(config, attn_implementation=name).eval()
    inputs = {"input_ids": torch.randint(0, 50_000, (1, length))}

    @torch.no_grad()
    def run() -> object:
        if variant == "capture":
            return capture(model, inputs)
        return model(**inputs, use_cache=False, output_attentions=variant == "eager")

    return run


def resident(which: str) -> float:
    """A figure of this process's memory, in MiB."""
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{which}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


if __name__ == "__main__":
    main()
