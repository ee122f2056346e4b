"""How are programs timed so that a ratio can be believed?

All contenders are compiled first (that time apart), then run in turn, repeat after repeat, each
blocked on; a ratio is the median over repeats of paired ratios, so that a machine that slows down
slows both sides. The matmul peak is one of the contenders.
"""

import resource
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

PEAK_SIZE = 2048  # of the square matrices whose product is taken for the peak


class Program(NamedTuple):
    """A compiled program with its arguments; `updates` divides its time."""

    call: Callable[[], Any]
    compile_s: float
    updates: int = 1


def compile_program(fn: Callable, *args: Any, updates: int = 1) -> Program:
    """Trace and compile `fn`, timed together."""
    start = time.perf_counter()
    compiled = jax.jit(fn).lower(*args).compile()
    seconds = time.perf_counter() - start
    return Program(lambda: compiled(*args), seconds, updates)


def matmul_program(size: int = PEAK_SIZE, count: int = 2) -> Program:
    """`count` float32 products of square matrices, the measure of what the machine can do."""
    a = jnp.full((size, size), 1 / size, jnp.float32)

    def products(a):
        return jax.lax.fori_loop(0, count, lambda _, x: jnp.dot(x, a, precision="highest"), a)

    return compile_program(products, a)


def matmul_flop(size: int = PEAK_SIZE, count: int = 2) -> float:
    """Floating-point operations of `matmul_program`."""
    return 2.0 * size**3 * count


def interleave(programs: Mapping[str, Program], repeats: int) -> dict[str, list[float]]:
    """Seconds an update of each program, `repeats` times in turn after one warm-up."""
    times: dict[str, list[float]] = {name: [] for name in programs}
    for repeat in range(repeats + 1):
        for name, program in programs.items():
            start = time.perf_counter()
            jax.block_until_ready(program.call())
            if repeat:
                times[name].append((time.perf_counter() - start) / program.updates)
    return times


def ratio(over: list[float], under: list[float]) -> float:
    """Median of paired ratios.

    >>> ratio([2.0, 4.0, 9.0], [1.0, 2.0, 3.0])
    2.0
    """
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def spread(times: list[float]) -> tuple[float, float, float]:
    """Minimum, median, maximum."""
    return min(times), statistics.median(times), max(times)


def peak_memory(program: Program) -> int:
    """Highest memory in bytes while a program runs: the device's, or on a CPU the process's."""
    stats = jax.devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in stats:
        jax.block_until_ready(program.call())
        return int(jax.devices()[0].memory_stats()["peak_bytes_in_use"])
    marks = Path("/proc/self/clear_refs")
    try:
        marks.write_text("5")  # resets the high-water mark
    except OSError:
        jax.block_until_ready(program.call())
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    jax.block_until_ready(program.call())
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
