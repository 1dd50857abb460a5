"""Deltas in, events and one Completion out. The only code that accumulates.

Lives here: the accumulator (pure, synchronous, an explicit state machine) and the cancellation token.

May import: `ir`. May not know: any dialect, network, event loop or provider.
"""

from rein_nb.stream.accumulator import Accumulator
from rein_nb.stream.cancel import CancellationToken, Cancelled

__all__ = ["Accumulator", "CancellationToken", "Cancelled"]
