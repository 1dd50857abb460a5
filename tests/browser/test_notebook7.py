"""The same in Notebook 7: streamed text, tool card, stop, and the transcript kept after save and restart."""

from __future__ import annotations

import pytest

from tests.browser.harness import CHROMIUM, Lab
from tests.browser.test_lab import SETUP

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]


def test_a_run_is_seen_stopped_and_kept() -> None:
    with Lab("notebook") as lab:
        page = lab.open(
            SETUP, "%%agent -m weather --tools get_weather\nWhat is the weather in Paris?", "%%agent -m slow\ngo on"
        )
        page.run(0)
        page.run(1, wait=False)
        page.output(1).locator(".rein-live .rein-card").wait_for(timeout=20_000)
        page.output(1).locator("strong", has_text="18 degrees").wait_for(timeout=10_000)
        page.idle()
        page.run(2, wait=False)
        page.output(2).get_by_text("word9").wait_for(timeout=10_000)
        page.output(2).get_by_role("button", name="Stop").click()
        page.idle(10)
        assert "Stopped" in page.text(2)
        saved = page.save()
        assert "widgets" not in saved["metadata"]
        page.restart_kernel()
        page.load()
        assert "18 degrees and cloudy in Paris" in page.text(1)
        assert page.output(1).locator("table td").count() == 2
        assert "word9" in page.text(2)
        assert page.remote_requests() == []
