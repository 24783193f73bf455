"""Runs whose files carry markup in every text that a Run file may choose, and what a page must not make of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from profiler.codec import NotARun
from profiler.run import LaunchedKernel, Measurement, Run, Series
from profiler.run_document import from_json, to_json
from tests import fake_memory
from tests.fake_runs import sampled_naive_run

if TYPE_CHECKING:
    from playwright.sync_api import Page

MARK = "zq"  # every text below has it, and no word of the pages
HOSTILE = (
    '"><img src=x onerror="window.pwned=1">\'</style></script><script>window.pwned=1</script> <b>zqhtml</b> **zqbold** '
    "`zqcode` :red[zqred] :material/home: $zq^{2}$ ![zqimage](http://zq.invalid/a.png) [zqlink](javascript:pwned=1) "
    '<a href="http://zq.invalid/b">zqanchor</a> http://zq.invalid/c %{x} {{7*7}} &lt;i&gt;zqentity&lt;/i&gt;'
)
SHORT = "zq<img src=x onerror=pwned=1>**zqbold** <b>zqhtml</b> $zq^2$"  # tensors' names are short
# What tells a Run's numbers apart, or what is drawn at all: instead of replacing them, more of them are added.
KEPT = ("measurements[].name", "measurements[].launch", "series[].name", "spans[].launch", "id")

# Elements that only markup from one of the texts above can have made, and scripts of it that ran.
SCRIPT_RAN = "A script ran."
MADE_OF_MARKUP = """() => {
    const inside = ["zqhtml", "zqbold", "zqcode", "zqred", "zqimage", "zqlink", "zqanchor", "zqentity"];
    const made = [...document.querySelectorAll("body *")].filter((one) =>
        inside.includes(one.textContent.trim().toLowerCase()) ||
        /zq[.]invalid|javascript:/.test(one.src || one.href || "") || one.getAttribute("onerror") !== null ||
        one.matches(".katex") ||
        (one.matches('[data-testid="stIconMaterial"]') && one.textContent === "home"));
    return [...made.map((one) => one.outerHTML.slice(0, 200)), ...(window.pwned ? ["A script ran."] : [])];
}"""


def seen(page: Page) -> int:
    """How often the texts stand on a page, whether they are shown or folded away."""
    return int(page.evaluate(f"document.documentElement.textContent.split('{MARK}').length - 1"))


@cache
def hostile_runs() -> tuple[Run, ...]:
    """Of one problem on an H200 naive with all that a Run can hold, flash, and a function whose name is Markdown."""
    naive = fake_memory.with_memory(sampled_naive_run(), 4256 * 2**20, 4256 * 2**20)
    flash = fake_memory.flash_run()
    work = replace(flash.workload, kernel="zq:__zqbold__", tile=None, trace=None)
    own = replace(flash, workload=work, softmax=None, timeline=None)
    # One problem: pages show the newest Run and those that can be held against it.
    named = {"naive": naive, "flash": flash, "own": own}
    return tuple(_hostile(_with_more(replace(run, id=f"hostile-{name}"))) for name, run in named.items())


def _with_more(run: Run) -> Run:
    """Besides what a Run has, measurements, samples, kernels and series of hostile names."""
    more = (
        Measurement(HOSTILE, 1.0, "1", "torch", HOSTILE),
        Measurement(f"{HOSTILE}2", None, "B", "torch", HOSTILE, launch=HOSTILE),
        Measurement("hbm_read_bytes", 5.0, "B", "cupti-range", HOSTILE, launch=f"qk, kernel {HOSTILE}"),
        Measurement("requested_read_bytes", 5.0, "B", "schedule", HOSTILE, launch=HOSTILE),
    )
    series = Series(HOSTILE, HOSTILE, HOSTILE, (0.0, 1.0), (1.0, 2.0))
    return replace(
        run,
        measurements=(*run.measurements, *more),
        samples={**run.samples, HOSTILE: (1.0, 2.0)},
        series=(*run.series, series),
        kernels=(*run.kernels, LaunchedKernel(HOSTILE, HOSTILE), LaunchedKernel("qk", HOSTILE)),
        phases={**run.phases, HOSTILE: 1.0},
        environment={**run.environment, HOSTILE: HOSTILE},
    )


def _hostile(run: Run) -> Run:
    """The Run with every text replaced that may be anything; those that a reader refuses stay as they are."""
    document = json.loads(to_json([run]))
    for place in sorted({place for place, _, _ in _texts(document["runs"][0])} - {*KEPT}):
        for text in (HOSTILE, SHORT):
            changed = json.loads(json.dumps(document))
            for other, holder, key in list(_texts(changed["runs"][0])):
                if other == place:
                    holder[key] = text
            try:
                from_json(json.dumps(changed))
            except NotARun:
                continue
            document = changed
            break
    return from_json(json.dumps(document))[0]


def _texts(value: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every text below a value: its place, without the numbers of a list, and where it can be replaced."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        name = f"{place}[]" if isinstance(value, list) else f"{place}.{key}".lstrip(".")
        if isinstance(item, str):
            yield name, value, key
        elif isinstance(item, dict | list):
            yield from _texts(item, name)
