"""The live page's words and charts from one reading, and its section on what can be measured here."""

import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app import doctor_table
from app.doctor_table import OPTION, Checkup, Outcome, machine, sources
from app.style import LIGHT
from app.views.live_gpu import charts, figures, headline
from profiler.codec import encode
from profiler.diagnosis import Answer, Diagnosis, Fact, Found
from profiler.gpu_sample import GpuSample
from profiler.run import Measurement
from tests.fake_runs import H200

NOW = GpuSample(
    device="cuda:0",
    time=1000.0,
    memory_used_bytes=4 * 2**30,
    memory_free_bytes=135 * 2**30,
    memory_total_bytes=139 * 2**30,
    gpu_busy_percent=97.0,
    memory_busy_percent=50.0,
    power_watts=612.4,
    sm_clock_hertz=1.98e9,
    memory_clock_hertz=3.201e9,
    temperature_celsius=55.0,
    compute_processes=1,
)
NO_POWER = GpuSample(
    "cuda:0",
    1000.0,
    None,
    None,
    None,
    0.0,
    None,
    None,
    None,
    None,
    None,
    None,
    {"power_watts": "NVML answers: Not Supported"},
)


def test_headline_says_what_the_gpu_does() -> None:
    assert headline(H200, NOW).sentence == "NVIDIA H200: a kernel runs 97% of the time."
    assert headline(H200, NO_POWER).sentence == "NVIDIA H200: it is idle."
    assert "1 compute process." in headline(H200, NOW).detail


def test_figures_carry_units_and_say_that_busy_is_no_bandwidth() -> None:
    found = {figure.label: figure for figure in figures(NOW)}
    assert found["memory used"].value == "4.00 GiB" and found["memory used"].detail == "of 139 GiB"
    assert found["memory busy"].value == "50%" and found["memory busy"].detail == "of time, no bandwidth"
    assert found["power"].value == "612 W" and found["SM clock"].value == "1,980 MHz"
    assert {figure.source for figure in found.values()} == {"nvml"}


def test_what_nvml_does_not_answer_is_a_dash_with_its_reason() -> None:
    power = next(figure for figure in figures(NO_POWER) if figure.label == "power")
    assert (power.value, power.reason) == ("–", "NVML answers: Not Supported")
    chart = next(picture for picture in charts([NO_POWER], NO_POWER, LIGHT) if picture.title == "Power")
    assert len(chart.chart.data) == 0 and "Not Supported" in chart.caption


def test_charts_are_thinned_and_end_now() -> None:
    samples = [GpuSample(**{**NOW.__dict__, "time": 940.0 + i * 0.05}) for i in range(1201)]
    memory = charts(samples, NOW, LIGHT)[0].chart.data[0]
    assert len(memory.x) <= 301
    assert (memory.x[0], memory.x[-1], memory.y[0]) == (-60.0, 0.0, 4.0)


COPIED = Found("copy of 480 MiB", (Measurement("l2_sm_bytes", 1.007e9, "B", "ncu"),))
FOUND = Diagnosis(
    (H200,),
    "",
    (Fact("", "torch", "2.10.0", "torch 2.10.0 is not known here."), Fact("cuda:0", "GPU", "NVIDIA H200")),
    (
        Answer("any", "schedule", "Schedule", True),
        Answer("cuda:0", "ncu", "Nsight Compute (ncu)", True, "", COPIED),
        Answer("cuda:0", "cupti_range", "CUPTI", False, "<b>administrators</b> only"),
    ),
)
SAY = (sys.executable, "-c", f"print('a word'); print({json.dumps(encode(FOUND))!r})")


def test_the_sources_say_what_they_measured_or_why_not() -> None:
    assert sources(FOUND).columns == ("source", OPTION, "available", "what it measured, or why not")
    assert sources(FOUND).rows == (
        ("Schedule", "", "yes", "needs no GPU"),
        ("Nsight Compute (ncu)", "ncu", "yes", "L2↔SM 1.007 GB."),
        ("CUPTI", "cupti-range", "no", "<b>administrators</b> only"),
    )
    assert machine(FOUND).rows == (
        ("torch", "2.10.0. Warning: torch 2.10.0 is not known here."),
        ("GPU", "NVIDIA H200"),
    )


def test_several_gpus_are_told_apart() -> None:
    other = replace(H200, device="cuda:1")
    more = (*FOUND.sources, *(replace(answer, device="cuda:1") for answer in FOUND.sources[1:]))
    found = replace(FOUND, devices=(H200, other), sources=more)
    assert sources(found).columns[2] == "device"
    assert [row[2] for row in sources(found).rows] == ["any", "cuda:0", "cuda:0", "cuda:1", "cuda:1"]
    assert [row[0] for row in machine(found).rows] == ["torch", "GPU, cuda:0"]


def outcome(checkup: Checkup) -> Outcome:
    """What asking leads to."""
    checkup.start()
    end = time.monotonic() + 20
    while checkup.seconds is not None:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert checkup.outcome is not None
    return checkup.outcome


def test_a_checkup_keeps_the_last_answer() -> None:
    assert outcome(Checkup(SAY)).diagnosis == FOUND


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("raise SystemExit('no memory left')", "The doctor ended with exit code 1: no memory left"),
        ("", "The doctor ended with exit code 0: it said nothing"),
        ("print('{')", "The doctor cannot be understood: Expecting property name"),
        ("print('{}')", "The doctor cannot be understood: The doctor's answer lacks the field 'devices'."),
        ("import time; time.sleep(60)", "The doctor had no answer after 1 s and was stopped."),
    ],
)
def test_a_doctor_that_fails_is_a_sentence(monkeypatch: pytest.MonkeyPatch, script: str, sentence: str) -> None:
    if "sleep" in script:
        monkeypatch.setattr(doctor_table, "MOST_SECONDS", 1.0)
    found = outcome(Checkup((sys.executable, "-S", "-c", script)))
    assert found.diagnosis is None and found.fault.startswith(sentence)


def test_a_program_that_is_not_there_is_a_sentence() -> None:
    assert "No such file" in outcome(Checkup(("/nowhere/python",))).fault


def test_two_sessions_ask_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    checkup = Checkup((sys.executable, "-c", f"import time; open({str(log)!r}, 'a').write('x'); time.sleep(0.5)"))
    checkup.start()
    checkup.start()
    outcome(checkup)
    assert log.read_text() == "x"


def test_check_asks_in_the_background_and_the_answer_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    checkup = Checkup(SAY)
    monkeypatch.setattr(doctor_table, "checkup", lambda: checkup)

    def script() -> None:
        from app import doctor_table

        doctor_table.draw()

    def shown() -> str:
        return " ".join(element.proto.body for element in at.get("html"))

    at = AppTest.from_function(script, default_timeout=30).run()
    assert "Check tries every source" in shown()
    at.button(key="doctor-check").click().run()
    outcome(checkup)
    at.run()
    assert not at.exception and at.button(key="doctor-check").label == "Check again"
    assert "Tried on a copy of 480 MiB." in shown()
    assert "&lt;b&gt;administrators&lt;/b&gt; only" in shown() and "<b>administrators" not in shown()
    assert "Warning: torch 2.10.0 is not known here." in shown()
    checkup.outcome = Outcome(None, "The doctor <i>failed</i>.", checkup.outcome.at)
    at.run()
    assert '<p class="bs-message error" role="alert">The doctor &lt;i&gt;failed&lt;/i&gt;.</p>' in shown()


def test_while_it_checks_the_page_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    checkup = Checkup((sys.executable, "-c", "import time; time.sleep(3)"))
    monkeypatch.setattr(doctor_table, "checkup", lambda: checkup)

    def script() -> None:
        from app import doctor_table

        doctor_table.draw()

    at = AppTest.from_function(script, default_timeout=30).run()
    at.button(key="doctor-check").click().run()
    assert at.button(key="doctor-check").disabled
    assert re.search(r"Checking… \d s\.", " ".join(element.proto.body for element in at.get("html")))
    outcome(checkup)
