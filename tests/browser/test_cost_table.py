"""The sidebar's cost table in a real browser: long names give way to numbers."""

from typing import TYPE_CHECKING

from app.cost import Cost
from app.form import cost_html
from app.page import CSS
from kernels.base import all_kernels
from profiler.workload import CPU

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAME = "some_package.some_module.attention_kernels:attention_of_packed_documents"
MEASURE = """() => {
    const [, ...names] = document.querySelectorAll("th"), cost = document.querySelector(".bs-cost");
    const right = element => element.getBoundingClientRect().right;
    const furthest = Math.max(...[...document.querySelectorAll("td")].map(right));
    return [names.map(name => name.scrollWidth > name.clientWidth), furthest <= right(cost) + 0.5];
}"""


def test_a_long_name_is_shortened_and_its_numbers_stay(chromium: "Browser") -> None:
    titles = [NAME, *(kernel.title for kernel in all_kernels().values())]
    cost = Cost(16_800_000, 268_000_000, dict.fromkeys(titles, 123_000_000), dict.fromkeys(titles, 2**24), None)
    page = chromium.new_page()
    page.set_content(f"<style>{CSS.read_text()}</style><div style='width:260px'>{cost_html(cost, CPU)}</div>")
    assert page.evaluate(MEASURE) == [[True, *[False] * len(all_kernels())], True]
    page.close()
