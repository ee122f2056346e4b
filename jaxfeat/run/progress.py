"""How far is a loop? A bar on a terminal, one plain line every few steps elsewhere."""

import contextlib
import math
import sys
import time
from collections.abc import Iterator
from typing import Any


class Progress:
    """What a loop calls: `begin` before each of its parts, `tick` after each of its steps.

    The first step of a part is its warm-up: "compiling" is said until it ends, and its time does
    not count in tokens/s and ETA. The loss is read from the device only when it is shown.
    """

    def __init__(self, total: int, desc: str, every: int = 0, stream: Any = None):
        self.total, self.desc, self.stream = total, desc, sys.stderr if stream is None else stream
        self.every = every or max(1, math.ceil(total / 20))
        self.done, self.warm, self.tokens, self.seconds, self.shown = 0, 0, 0, 0.0, 0.0
        self.name, self.bar = desc, None
        self.last: float | None = None  # when the part's last step ended
        if self.stream.isatty():
            from tqdm import tqdm

            self.bar = tqdm(total=total, desc=desc, file=self.stream)

    def begin(self, part: str = "", done: int = 0, steps: int = 0) -> None:
        """A part begins, `done` of whose `steps` were made before (all: nothing is compiled)."""
        self.name = f"{self.desc} {part}".rstrip()
        self.done, self.last = self.done + done, None
        if self.bar is not None:
            self.bar.update(done)
        if done and done == steps:
            self._say(f"{self.name}: done before")
        else:
            self._say(f"{self.name}: compiling")
            if self.bar is not None:
                self.bar.set_description(f"{self.name} (compiling)")

    def tick(self, loss: Any = None, tokens: int = 0, steps: int = 1) -> None:
        """So many steps are done."""
        crossed = (self.done + steps) // self.every > self.done // self.every
        self.done += steps
        last, now = self.last, time.perf_counter()
        first = last is None
        end = self.done == self.total
        show = now - self.shown > 0.5 if self.bar is not None else crossed
        told = ""
        if show or first or end:
            told = "" if loss is None else f"loss {float(loss):.4g}"
            now = self.shown = time.perf_counter()  # reading the loss waits for the device
        if last is not None:
            self.seconds += now - last
            self.tokens += tokens
            self.warm += steps
        self.last = now
        if self.warm and not first:
            per_step = max(self.seconds, 1e-9) / self.warm
            told += f"  {self.tokens / (per_step * self.warm):,.0f} tokens/s" if self.tokens else ""
            if self.bar is None:
                told += f"  ETA {clock(per_step * (self.total - self.done))}"
        if self.bar is not None:
            self.bar.set_description(self.name)
            self.bar.set_postfix_str(told.strip(), refresh=False)
            self.bar.update(steps)
        elif show or end:
            self._say(f"{self.name}: {self.done}/{self.total}  {told.strip()}".rstrip())

    def _say(self, line: str) -> None:
        """A plain line, where there is no bar."""
        if self.bar is None:
            print(line, file=self.stream, flush=True)


@contextlib.contextmanager
def progress(total: int, desc: str, *, every: int = 0, stream: Any = None) -> Iterator[Progress]:
    """A `Progress` of a loop, closed at its end.

    Args:
        total: steps of the whole loop.
        desc: what the loop does.
        every: steps between lines; by default a twentieth of the loop.
        stream: where to write, by default standard error.
    """
    shown = Progress(total, desc, every, stream)
    try:
        yield shown
    finally:
        if shown.bar is not None:
            shown.bar.close()


def clock(seconds: float) -> str:
    """A duration as `12.3 s`, `4:05` or `1:02:03`.

    >>> [clock(t) for t in (12.34, 245, 3723)]
    ['12.3 s', '4:05', '1:02:03']
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    hours, rest = divmod(round(seconds), 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
