"""The driver hangs, crashes, talks nonsense, loses a GPU and comes back: by a library that is really loaded."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app import devices, frame
from profiler import gpu_feed, present
from profiler.gpu_feed import GpuFeed
from tests.command_line import Command, answer_to
from tests.nvml_stub import DRIVER_NOT_LOADED, GPU_IS_LOST, MISMATCH, UNINITIALIZED, Driver, driver

__all__ = ["driver"]
ROOT = Path(__file__).parents[1]
PATIENCE = 60.0
H200 = "NVIDIA H200"


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def feed(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuFeed]:
    """The real child on the stub, quick to try again; it has answered."""
    monkeypatch.setattr(gpu_feed, "RETRY_SECONDS", 0.2)
    monkeypatch.setattr(gpu_feed, "HUNG_SECONDS", 4.0)
    # The child's own patience is a constant of the child's.
    child = (
        "from profiler import gpu_sample; gpu_sample.RETRY_SECONDS = gpu_sample.LOOK_SECONDS = 0.2; gpu_sample.main()"
    )
    found = GpuFeed((sys.executable, "-c", child))
    until(lambda: found.latest("cuda:0"))
    yield found
    found.close()


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return lambda *words: answer_to(words, monkeypatch, capsys)


def once(**environment: str) -> tuple[dict[str, Any], ...]:
    """What `gpu_sample --once` prints."""
    words = [sys.executable, "-m", "profiler.gpu_sample", "--once"]
    done = subprocess.run(words, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return tuple(map(json.loads, done.stdout.splitlines()))


def test_a_healthy_stub_is_an_h200(driver: Driver) -> None:
    told, sampled = once()
    (device,), (sample,) = told["devices"], sampled["samples"]
    assert (device["name"], device["sm_count"], device["driver"]) == (H200, 132, "580.95.05")
    assert (sample["power_watts"], sample["gpu_busy_percent"], sample["missing"]) == (512.0, 42, {})


NO_START = "NVML does not start"
UNLOADED = "the driver was unloaded; load it again (modprobe nvidia)."
UPDATED = "the driver was updated while it was loaded; restart the machine."
LOST = "GPU is lost; see dmesg for why, and reset it or restart the machine."


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"init": DRIVER_NOT_LOADED}, f"{NO_START}: Driver Not Loaded; load the NVIDIA driver (modprobe nvidia)."),
        ({"init": MISMATCH}, f"{NO_START}: RM has detected an NVML/RM version mismatch; {UPDATED}"),
        ({"error": UNINITIALIZED}, f"{NO_START}: Uninitialized; {UNLOADED}"),
        ({"lost": 0}, f"The NVIDIA driver opens none of its GPUs: NVML answers: {LOST}"),
        ({"gpus": 0}, "The NVIDIA driver sees no GPU."),
        ({"gpus": 2**32 - 1}, "The NVIDIA driver tells of 4,294,967,295 GPUs, which cannot be; restart the machine."),
    ],
)  # fmt: skip
def test_why_there_is_no_gpu_is_one_sentence(driver: Driver, words: dict[str, int], sentence: str) -> None:
    driver.set(**words)
    assert once() == ({"devices": [], "why_no_gpu": sentence},)


def test_a_missing_library_is_one_sentence(driver: Driver) -> None:
    driver.library.write_bytes(b"no library")
    (told,) = once()
    assert told["why_no_gpu"].startswith(
        "NVML does not start: NVML Shared Library Not Found; install the NVIDIA driver"
    )


def test_nonsense_is_no_number(driver: Driver) -> None:
    """0xFFFFFFFF is how a driver says that it does not know; no page shows four million watts."""
    driver.set(nonsense=1)
    told, gone = once()
    (device,) = told["devices"]
    assert device["name"] == "NVIDIA GPU without a name" and device["compute_capability"] is None
    assert [device[name] for name in ("memory_bytes", "sm_count", "peak_hbm_bytes_per_second")] == [None] * 3
    assert gone["why_no_gpu"] == "No GPU gives a reading any more (NVML answers: 1.84467e+19 B, which no GPU has)."
    script = (
        "from profiler.nvml import *; from profiler.gpu_sample import take_sample; import json\n"
        "with open_nvml() as nvml: print(json.dumps(take_sample(nvml, visible_gpus(nvml)[0], '').missing))"
    )
    missing = json.loads(subprocess.check_output([sys.executable, "-c", script], cwd=ROOT, timeout=60))
    assert len(missing) == 10
    assert missing["power_watts"] == "NVML answers: 4.29497e+06 W, which no GPU has"
    assert missing["gpu_busy_percent"] == "NVML answers: 4.29497e+09 %, which no GPU has"
    assert missing["compute_processes"] == "NVML answers with a list that cannot be"


def test_two_gpus_and_the_one_that_cuda_may_see(driver: Driver) -> None:
    driver.set(gpus=2)
    assert [device["device"] for device in once()[0]["devices"]] == ["cuda:0", "cuda:1"]
    assert len(once(CUDA_VISIBLE_DEVICES="1")[0]["devices"]) == 1
    assert "hides every GPU" in once(CUDA_VISIBLE_DEVICES="2")[0]["why_no_gpu"]
    driver.set(gpus=2, lost=0)
    told, _ = once()
    assert len(told["devices"]) == 1
    assert told["faults"] == [f"GPU 0 of 2 is not opened: NVML answers: {LOST}"]


def test_a_mig_instance_is_what_cuda_sees(driver: Driver) -> None:
    driver.set(mig=2)
    told, sampled = once()
    (device,) = told["devices"]
    assert (device["name"], device["sm_count"]) == ("NVIDIA H200 MIG 1g.18gb", 16)
    assert device["peak_hbm_bytes_per_second"] is None
    assert sampled["samples"][0]["missing"]["gpu_busy_percent"] == "NVML answers: Not Supported"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"lost": 0}, f"No GPU gives a reading any more (NVML answers: {LOST[:-1]})."),
        ({"error": DRIVER_NOT_LOADED}, "The NVIDIA driver stopped answering (NVML answers: Driver Not Loaded"),
        ({"error": UNINITIALIZED}, "The NVIDIA driver stopped answering (NVML answers: Uninitialized"),
        ({"hang": 1}, "NVML has not answered for "),
        ({"crash": 1}, "The process that reads NVML was ended by SIGSEGV; it is started again in "),
    ],
    ids=["lost", "unloaded", "uninitialized", "hangs", "crashes"],
)
def test_the_feed_says_what_became_of_the_driver_and_finds_it_again(
    feed: GpuFeed, driver: Driver, words: dict[str, int], sentence: str
) -> None:
    driver.set(**words)
    until(lambda: (feed.why_no_gpu or "").startswith(sentence))
    assert feed.latest("cuda:0") is None
    driver.set()
    until(lambda: feed.latest("cuda:0"))
    assert feed.why_no_gpu is None and [one.name for one in feed.devices()] == [H200]


def test_a_driver_that_hangs_for_good_is_asked_by_a_fresh_process(feed: GpuFeed, driver: Driver) -> None:
    """The one that hangs never comes back: its library reads another file than the one that says `healthy`."""
    hung = feed._child
    driver.set(hang=1)
    until(lambda: feed._child is not hung)
    assert hung is not None and hung.poll() == -9
    driver.set()
    until(lambda: feed.latest("cuda:0"))


def test_a_library_that_is_put_there_later_is_found(feed: GpuFeed, driver: Driver) -> None:
    driver.remove()
    driver.set(error=DRIVER_NOT_LOADED)
    until(lambda: "Shared Library Not Found" in (feed.why_no_gpu or ""))
    assert feed.devices() == ()
    driver.restore()
    driver.set()
    until(lambda: feed.latest("cuda:0"))


def test_gpus_that_come_go_and_are_split_are_noticed(feed: GpuFeed, driver: Driver) -> None:
    for words, names in (({"gpus": 2}, [H200] * 2), ({"mig": 1}, ["NVIDIA H200 MIG 1g.18gb"]), ({}, [H200])):
        driver.set(**words)
        until(lambda names=names: [one.name for one in feed.devices()] == names)
    driver.set(gpus=2, lost=1)
    until(lambda: feed.faults() == (f"GPU 1 of 2 is not opened: NVML answers: {LOST}",))
    assert [one.device for one in feed.devices()] == ["cuda:0"] and feed.why_no_gpu is None


def test_the_live_page_says_it_and_recovers(feed: GpuFeed, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "feed", lambda: feed)
    monkeypatch.setattr("app.views.live_gpu.feed", lambda: feed)

    def script() -> None:
        from app.views import live_gpu

        live_gpu.render(())

    def shown() -> str:
        at.run()
        assert not at.exception
        return " ".join(element.proto.body for element in at.get("html"))

    at = AppTest.from_function(script, default_timeout=60)
    assert f"{H200}: a kernel runs 42% of the time." in shown()
    driver.set(lost=0)
    until(lambda: feed.why_no_gpu)
    assert "No live readings of a GPU." in shown() and "GPU is lost; see dmesg" in shown()
    driver.set(gpus=2, lost=1)
    until(lambda: feed.why_no_gpu is None)
    assert "GPU 1 of 2 is not opened" in shown() and H200 in shown()
    assert frame is not None


DOCTOR = (sys.executable, "-m", "profiler", "doctor", "--json")
FACTS = (sys.executable, "-m", "profiler.facts")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"error": GPU_IS_LOST}, f"{NO_START}: {LOST}"),
        ({"crash": 1}, "The probe died of SIGSEGV inside NVML's library."),
    ],
    ids=["lost", "crashes"],
)
def test_the_doctor_says_it_in_one_sentence(driver: Driver, words: dict[str, int], sentence: str) -> None:
    driver.set(**words)
    done = subprocess.run(DOCTOR, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["devices"] == [] and found["why_no_gpu"].startswith(sentence)


def test_the_doctor_knows_a_gpu_that_talks_nonsense(driver: Driver) -> None:
    driver.set(nonsense=1)
    done = subprocess.run(FACTS, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)

    facts = [fact for line in done.stdout.splitlines() if line for fact in json.loads(line).get("facts", [])]
    values = {fact["name"]: fact["value"] for fact in facts if fact["device"] == "cuda:0"}
    assert values["GPU"] == "NVIDIA GPU without a name, compute capability not told"
    assert values["peak HBM bandwidth"].startswith("not known (")
    assert "busy not told (NVML answers: 4.29497e+09 %, which no GPU has)" in values["in use by others"]


# What a Run watches while other sources measure: a line once it has some ticks, and its notes after a line is read.
WATCH = """
import json, time
from types import SimpleNamespace
from profiler.counters import nvml
from profiler.run import DeviceInfo
log = []
sampled, nvml.read = nvml.read, lambda *arguments: log.append(1) or sampled(*arguments)
nvml.JOIN_SECONDS = 1.0
with nvml.watch(SimpleNamespace(device=DeviceInfo("cuda:0", "NVIDIA H200", compute_capability=(9, 0)))) as finish:
    while len(log) < 4:
        time.sleep(0.01)
    print("watching", flush=True)
    input()
    so_far = len(log)
    end = time.monotonic() + 1.5
    while len(log) < so_far + 4 and time.monotonic() < end:
        time.sleep(0.01)
    found = finish()
print(json.dumps({m.name: [m.value, m.note] for m in found.measurements}), flush=True)
import os; os._exit(0)
"""


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"lost": 0}, f", then NVML answers: {LOST[:-1]}"),
        ({"nonsense": 1}, ", then NVML answers: 4.29497e+06 W, which no GPU has"),
        ({"hang": 1}, ", then NVML has not answered for 1 s"),
    ],
    ids=["lost", "nonsense", "hangs"],
)
def test_a_run_keeps_what_was_read_before_and_says_why_no_more(
    driver: Driver, words: dict[str, int], reason: str
) -> None:
    command = [sys.executable, "-c", WATCH]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdin is not None and watching.stdout is not None
        assert watching.stdout.readline() == "watching\n"
        driver.set(**words)
        watching.stdin.write("go on\n")
        watching.stdin.flush()
        value, note = json.loads(watching.stdout.readline())["power_watts"]
    assert value == 512.0 and note.endswith(reason)


@pytest.mark.parametrize("word", ["run", "audit", "sweep --block-m 32,64 --yes", "resources"])
@pytest.mark.parametrize("is_hung", [False, True], ids=["crashes", "hangs"])
def test_a_command_that_looks_for_a_gpu_is_not_taken_along(
    driver: Driver, command: Command, monkeypatch: pytest.MonkeyPatch, word: str, is_hung: bool
) -> None:
    monkeypatch.setattr(present, "SECONDS", 2.0 if is_hung else PATIENCE)
    driver.set(hang=1) if is_hung else driver.set(crash=1)
    answer = command(*word.split())
    why = "NVML gave no answer within 2 s" if is_hung else "The probe died of SIGSEGV inside NVML's library."
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"Whether there is a GPU here is not known. {why}")
    assert answer.err.endswith("Or name a device, such as cpu.\n")


def test_the_doctor_names_a_gpu_that_is_not_opened(driver: Driver) -> None:
    driver.set(gpus=2, lost=1)
    said = subprocess.check_output(FACTS, cwd=ROOT, text=True, timeout=120)
    facts = [fact for line in said.splitlines() if line for fact in json.loads(line).get("facts", [])]
    assert [fact["value"] for fact in facts if fact["name"] == "not opened"] == [
        f"GPU 1 of 2 is not opened: NVML answers: {LOST}"
    ]
