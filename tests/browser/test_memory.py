"""The Memory page in a real browser: the snapshot that it hands out, and its charts on a phone."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from profiler.memory_snapshot import snapshot
from profiler.store import save
from tests import fake_memory
from tests.browser.conftest import Dashboard
from tests.browser.test_main_paths import go_to
from tests.test_memory_snapshot import unpickled

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def saved(dashboard: Dashboard) -> None:
    """Two Runs with a history in the store, before the page is opened."""
    for run in (fake_memory.naive_run(), fake_memory.flash_run()):
        save(run, dashboard.runs)


@pytest.mark.usefixtures("saved")
def test_the_snapshot_is_the_runs_history(page: "Page") -> None:
    go_to(page, "Memory")
    expect(page.locator("h1")).to_contain_text("Naive holds 4.16 GiB at its peak")
    with page.expect_download() as downloading:
        page.get_by_role("button", name="Snapshot of naive").click()
    memory = fake_memory.naive_run().memory
    assert memory is not None
    assert unpickled(Path(downloading.value.path()).read_bytes()) == snapshot(memory)
    page.get_by_text("Each on its own axis").last.click()
    expect(page.locator(".st-key-bs-card-allocations-of-one-pass")).to_contain_text("allocated, MiB")


@pytest.mark.usefixtures("saved")
def test_a_phone_scrolls_no_page_sideways(page: "Page") -> None:
    go_to(page, "Memory")
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(("width", "is_beside"), [(390, False), (768, False), (1440, True)])
def test_each_kernel_has_its_allocations_in_sight(page: "Page", width: int, is_beside: bool) -> None:
    """Below each other where two have no room, and as wide as the card lets them be, without a scroll inside it."""
    page.set_viewport_size({"width": width, "height": 844})
    page.goto(f"{page.url.rstrip('/')}/memory")
    card = page.locator(".st-key-bs-card-allocations-of-one-pass")
    expect(card.locator(".js-plotly-plot")).to_have_count(2)
    expect(card.get_by_text("flash, peak 128 MiB")).to_be_visible()
    assert card.evaluate("card => card.scrollWidth <= card.clientWidth")
    naive, flash = (plot.bounding_box() for plot in card.locator(".js-plotly-plot").all())
    assert naive is not None and flash is not None
    assert flash["x"] + flash["width"] <= width and (naive["y"] == flash["y"]) == is_beside
