"""A progress bar on standard error, without further packages."""
from __future__ import annotations

import sys
import time
from typing import Any


class Bar:
    """Prints at most ten times per second, and only to a terminal."""

    def __init__(self, total: int, desc: str) -> None:
        self.total, self.desc, self.n, self.tokens = total, desc, 0, 0
        self.start = self.last = time.monotonic()
        self.shown = False

    def update(self, n: int = 1, tokens: int = 0) -> None:
        self.n += n
        self.tokens += tokens
        now = time.monotonic()
        if not sys.stderr.isatty() or (now - self.last < 0.1 and self.n < self.total): return
        self.last, self.shown = now, True
        width, share = 30, self.n / max(self.total, 1)
        bar = '#' * int(width * share)
        rate = self.tokens / max(now - self.start, 1e-9)
        sys.stderr.write(f'\r{self.desc}: {share:4.0%} |{bar:<{width}}| {self.n}/{self.total} [{now - self.start:.0f} s'
                         f'{f", {rate:.0f} tokens/s" if self.tokens else ""}]')
        sys.stderr.flush()

    def close(self) -> None:
        if self.shown: sys.stderr.write('\n')


class _Hidden(Bar):
    def update(self, n: int = 1, tokens: int = 0) -> None: pass


class _Given:
    """A bar of another package, such as tqdm: an object with update(n) and close()."""

    def __init__(self, bar: Any) -> None: self.bar = bar

    def update(self, n: int = 1, tokens: int = 0) -> None: self.bar.update(n)

    def close(self) -> None: self.bar.close()


def progress(use: Any, total: int, desc: str) -> Any:
    """use: False = none, True = a Bar, or a class with tqdm's arguments."""
    if not use: return _Hidden(total, desc)
    return Bar(total, desc) if use is True else _Given(use(total=total, desc=desc))
