"""Block sizes in a real browser: compile, open the code, click a tile, measure a sweep, stop it."""

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from kernels.problem import AttentionProblem, TileConfig
from profiler.store import save
from tests.browser.conftest import Dashboard
from tests.browser.test_main_paths import RUN, fill, go_to, settle
from tests.fake_runs import cpu_run

if TYPE_CHECKING:
    from playwright.sync_api import Page

PATIENCE = 120_000  # ms, for what compiles or interprets


def choose_tiles(page: "Page", *, block_m: tuple[str, ...], block_n: tuple[str, ...]) -> None:
    """Leave these blocks alone on the map."""
    page.get_by_role("button", name="Tiles").click()
    for name, wanted in (("BLOCK_M", block_m), ("BLOCK_N", block_n)):
        chosen = page.locator(f".st-key-blocks-{name} [data-selected='true']")
        # With no block left all usual ones would come back.
        for block in (*wanted, "16", "32", "64", "128", "256"):
            is_wanted, is_chosen = block in wanted, bool(chosen.get_by_text(block, exact=True).count())
            if is_wanted != is_chosen:
                page.locator(f".st-key-blocks-{name}").get_by_text(block, exact=True).click()
                expect(chosen.get_by_text(block, exact=True)).to_have_count(int(is_wanted))
                settle(page)
    page.keyboard.press("Escape")


def test_compile_open_the_code_and_choose_a_tile(page: "Page") -> None:
    fill(page, "seq_len", "64")
    go_to(page, "Block sizes")
    expect(page.locator("h1")).to_contain_text("Which tile for Flash?")
    choose_tiles(page, block_m=("32", "64"), block_n=("32", "64"))
    page.get_by_role("button", name=re.compile("^Compile")).click()
    expect(page.locator("h1")).to_contain_text("looks best, untimed.", timeout=PATIENCE)
    expect(page.get_by_role("button", name=re.compile("All compiled"))).to_be_disabled(timeout=PATIENCE)
    cells = page.locator(".st-key-bs-card-occupancy-by-tile text")
    expect(cells.first).to_be_visible()
    # A click in the left upper cell of the first map: BLOCK_M 64, BLOCK_N 32.
    box = page.locator(".js-plotly-plot .xy").first.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 4, box["y"] + box["height"] / 4)
    expect(page.get_by_text("64×32, 4 warps, 3 stages")).to_be_visible()
    code = page.get_by_text("Compiled code")
    expect(code).to_have_count(1)  # while the page is drawn anew the old one stands beside it
    code.click()
    page.get_by_role("radio", name="PTX").click()
    expect(page.get_by_text(".visible .entry flash_forward").first).to_be_visible()
    page.get_by_role("radio", name="SASS").click()
    expect(page.get_by_text(re.compile(r"\bEXIT\b")).first).to_be_visible()
    with page.expect_download() as got:
        page.get_by_role("button", name="Download SASS").click()
    assert got.value.suggested_filename.startswith("flash_64x32_w4_s3_sm")


def test_measure_and_stop_a_sweep(page: "Page", dashboard: Dashboard) -> None:
    fill(page, "seq_len", "64")
    go_to(page, "Block sizes")
    choose_tiles(page, block_m=("64",), block_n=("32", "64"))
    page.get_by_role("button", name=re.compile("^Measure 2 on the CPU, interpreted")).click()
    expect(page.locator(".st-key-bs-sweep-progress")).to_be_visible()
    expect(page.locator(".st-key-bs-sweep-progress")).to_have_count(0, timeout=PATIENCE)
    (folder,) = (dashboard.runs / "sweeps").iterdir()
    assert len(list((folder / "runs").glob("*.json"))) == 2
    fill(page, "seq_len", "1024")
    choose_tiles(page, block_m=("16",), block_n=("16",))  # minutes of interpreting
    page.get_by_role("button", name=re.compile("^Measure 1")).click()
    stop = page.locator(".st-key-bs-sweep-progress").get_by_role("button", name="Stop")
    expect(stop).to_have_count(1)
    stop.click()
    expect(page.locator(".st-key-bs-notice")).to_contain_text("0 of 1 cells measured")
    page.get_by_role("button", name="Dismiss").click()
    expect(page.get_by_role("button", **RUN)).to_be_enabled()


def test_the_page_follows_the_form(page: "Page", dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also away from a problem that was measured, whose name the browser then holds."""
    monkeypatch.setenv("BYTESCOPE_RUNS", str(dashboard.runs))
    save(cpu_run(AttentionProblem(1, 2, 2, 512, 512, 64, "float16"), TileConfig(64, 64, 4, 3), "measured-512"))
    go_to(page, "Block sizes")
    expect(page.locator(".bs-headline p")).to_contain_text("(1, 2, 512, 64)")
    fill(page, "seq_len", "640")
    expect(page.locator(".bs-headline p")).to_contain_text("(1, 2, 640, 64)")
    fill(page, "seq_len", "704")
    expect(page.locator(".bs-headline p")).to_contain_text("(1, 2, 704, 64)")
