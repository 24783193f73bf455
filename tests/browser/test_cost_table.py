"""The sidebar's cost table in a real browser: long names give way to numbers."""

from typing import TYPE_CHECKING

from app.cost import Cost
from app.form import cost_html
from app.page import CSS
from profiler.workload import CPU

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAME = "some_package.some_module.attention_kernels:attention_of_packed_documents"
MEASURE = """() => {
    const name = document.querySelector("tr + tr th"), cost = document.querySelector(".bs-cost");
    const numbers = [...document.querySelectorAll("td")].map(cell => cell.getBoundingClientRect().right);
    return [name.scrollWidth > name.clientWidth, Math.max(...numbers) <= cost.getBoundingClientRect().right + 0.5];
}"""


def test_a_long_name_is_shortened_and_its_numbers_stay(chromium: "Browser") -> None:
    cost = Cost(16_800_000, 268_000_000, {NAME: 123_000_000, "Flash": 1}, {NAME: 2**24, "Flash": 1}, None)
    page = chromium.new_page()
    page.set_content(f"<style>{CSS.read_text()}</style><div style='width:300px'>{cost_html(cost, CPU)}</div>")
    assert page.evaluate(MEASURE) == [True, True]
    page.close()
