"""The installed kernel, over its own sockets. `tests.notebook.kernels` and `tests.notebook.run_all` do the same at length and on other versions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.notebook import kernels, run_all
from tests.notebook.kernel import PYTHON, Kernel

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with Kernel() as kernel:
        kernel.run(kernels.SETUP)
        kernel.open_subshell()
        yield kernel


def test_C109_C111_every_output_is_in_its_own_cell(kernel: Kernel) -> None:
    assert [name for name, right in kernels.outputs(kernel).items() if not right] == []


@pytest.mark.parametrize("cell", [kernels.SYNC, kernels.AWAIT, "slow.run('go')", "await slow.arun('go')"])
def test_C112_an_interrupt_stops_the_run_and_keeps_what_came(kernel: Kernel, cell: str) -> None:
    kernels.latencies(kernel, cell, kernel.interrupt, 1)


@pytest.mark.parametrize("cell", [kernels.SYNC, kernels.AWAIT])
def test_C120_a_click_on_stop_is_heard_while_the_cell_runs(kernel: Kernel, cell: str) -> None:
    kernels.latencies(kernel, cell, lambda: kernel.click({"k": "stop"}), 1)


def test_C120_a_blocking_cell_that_no_click_reaches_asks_by_text(kernel: Kernel) -> None:
    assert kernels.asked_by_text(kernel)


def test_approval_is_denied_at_once_where_nobody_reads() -> None:
    assert kernels.denied_when_headless(PYTHON)


def test_nothing_is_dropped_or_misplaced_in_run_all() -> None:
    with Kernel() as kernel:
        kernel.run(run_all.SETUP)
        assert run_all.run_all(kernel) == []
