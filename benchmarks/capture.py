"""CPU time and peak memory of reading a model, beside the plain forward and eager attention.

    python -m benchmarks.capture [--lengths 512 2048 8192] [--repeats 9] [--threads 2]

GPT-2-small's shape (12 layers × 12 heads, d_k 64) with random weights. CPU time is summed over
threads; the runs take turns in one process, so that a busy moment of the machine meets them
alike, and the median counts. Memory is the peak resident size above that before the run, and
that of the whole process, each in a process of its own. Threads that wait for each other burn
CPU time when other programs hold the cores: on a busy machine, measure with one.

Eager attention keeps every n × n matrix: where that is more than machines have, its need is
computed and not run.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

VARIANTS = ("plain", "capture", "statistics", "eager")
LAYERS, HEADS, WIDTH = 12, 12, 768
LONG = 4096  # tokens from which on eager attention is not run, and one round is enough

Figures = dict[str, float]


def main() -> None:
    """Measure every variant at every length and write a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, help="of torch; all cores if not given")
    parser.add_argument("--only", nargs=2, metavar=("WHAT", "LENGTH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        what, length = arguments.only[0], int(arguments.only[1])
        use(arguments.threads)
        figures = seconds(length, arguments.repeats) if what == "time" else peak(what, length)
        sys.stdout.write(json.dumps(figures))
        return
    options = ["--repeats", str(arguments.repeats)]
    if arguments.threads:
        options += ["--threads", str(arguments.threads)]
    sys.stdout.write(
        "| n | Q, K, V (MiB) | run | CPU s | ratio | peak memory (MiB) | whole process (MiB) |\n"
    )
    sys.stdout.write("|---|---|---|---|---|---|---|\n")
    for length in arguments.lengths:
        sys.stdout.write(rows(length, options))
        sys.stdout.flush()


def rows(length: int, options: list[str]) -> str:
    """The rows of one length."""
    size = 3 * LAYERS * WIDTH * length * 4 / 2**20
    times = in_own_process("time", length, options)
    lines = []
    for name in variants(length):
        memory = in_own_process(name, length, options)
        lines.append(
            f"| {length:,} | {size:.0f} | {name} | {times[name]:.2f} "
            f"| {times[name] / times['plain']:.2f} "
            f"| +{memory['peak']:,.0f} | {memory['whole']:,.0f} |\n"
        )
    if "eager" not in variants(length):
        need = LAYERS * HEADS * length**2 * 4 / 2**20
        lines.append(f"| {length:,} | {size:.0f} | eager, computed | | | +{need:,.0f} | |\n")
    return "".join(lines)


def variants(length: int) -> tuple[str, ...]:
    """What is run at a length."""
    return tuple(name for name in VARIANTS if name != "eager" or length < LONG)


def use(threads: int | None) -> None:
    """Let torch compute with so many threads."""
    import torch

    if threads:
        torch.set_num_threads(threads)


def in_own_process(what: str, length: int, options: list[str]) -> Figures:
    """Measure in a fresh interpreter, so that nothing is left from another run."""
    command = [sys.executable, "-m", "benchmarks.capture", *options]
    done = subprocess.run(
        [*command, "--only", what, str(length)], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout)


def seconds(length: int, repeats: int) -> Figures:
    """Median CPU seconds of each variant, in turns."""
    runs = {variant: prepared(variant, length) for variant in variants(length)}
    times: dict[str, list[float]] = {variant: [] for variant in runs}
    for repeat in range(1 + (repeats if length < LONG else 1)):
        for variant, run in runs.items():
            started = time.process_time()
            run()
            if repeat:  # the first round warms up
                times[variant].append(time.process_time() - started)
    return {variant: median(values) for variant, values in times.items()}


def peak(variant: str, length: int) -> Figures:
    """Peak memory of one variant in MiB: above what was resident before it, and with that."""
    run = prepared(variant, length)
    prepared(variant, 16)()
    gc.collect()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # makes the peak start here
    run()
    whole = resident("VmHWM")
    return {"peak": whole - before, "whole": whole}


def prepared(variant: str, length: int) -> Callable[[], object]:
    """The run to measure."""
    import torch
    from transformers import GPT2Config, GPT2Model

    from attnviz.call_statistics import of_all_heads
    from attnviz.capture import capture

    torch.manual_seed(0)
    config = GPT2Config(n_positions=length)
    name = "eager" if variant == "eager" else "sdpa"
    model = GPT2Model._from_config(config, attn_implementation=name).eval()
    inputs = {"input_ids": torch.randint(0, 50_000, (1, length))}

    if variant == "capture":
        return lambda: capture(model, inputs)
    if variant == "statistics":
        calls = capture(model, inputs).calls
        return lambda: [of_all_heads(call) for call in calls]

    @torch.no_grad()
    def run() -> object:
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
