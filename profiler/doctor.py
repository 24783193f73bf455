"""What can be measured here, what cannot, why, and what would allow it: asked in throw-away processes.

This process loads neither torch nor a driver's library, so that nothing broken can end it.
"""

import asyncio
import os
import pkgutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import product

from rich.table import Table
from rich.text import Text

from profiler import counters
from profiler.codec import NotARun, decode
from profiler.device import detect
from profiler.diagnosis import BUSY, Answer, Diagnosis, Fact
from profiler.interpreter import why_not_interpreted
from profiler.run import DeviceInfo
from profiler.throwaway import NoAnswer, Throwaway, throwaway
from profiler.workload import CPU

FACTS = ("-m", "profiler.facts")
PROBE = ("-m", "profiler.probe")
NVML_SECONDS = 20.0
IMPORT_SECONDS = 60.0  # of torch from a cold or distant disk
MOST_PROBES = 8  # processes at a time; each imports torch
WORDS = "what it measured, or why not and what would allow it"

Tell = Callable[[str], None]


def default_device() -> str:
    """The first GPU, else the CPU."""
    return next((device.device for device in detect()), CPU)


def diagnose(tell: Tell = lambda _: None) -> Diagnosis:
    """Ask for facts, then every source on every device; `tell` hears what is being asked."""
    # In a thread of its own: whoever asks may have an event loop already, as a notebook has.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _diagnose(tell)).result()


async def _diagnose(tell: Tell) -> Diagnosis:
    tell("NVML, the driver and libraries")
    devices, why_no_gpu, facts = await _ask_facts()
    names = tuple(module.name for module in pkgutil.iter_modules(counters.__path__))
    tell(f"{len(names)} sources")
    if devices:
        answers = await _ask_gpus(devices, names, tell)
    else:
        # On a CPU sources only say no: one process asks them all, and a crash costs another one.
        answers = await _ask(CPU, names, Turn(), tell)
    return Diagnosis(devices, why_no_gpu, facts, (*_everywhere(), *answers))


def _everywhere() -> list[Answer]:
    """What needs no GPU."""
    reason = "torch is not installed; install the versions of requirements.txt" if find_spec("torch") is None else ""
    reason = reason or why_not_interpreted() or ""
    return [
        Answer("any", "schedule", "Schedule: requested bytes, tile steps", True),
        Answer(
            "any", "interpreter", "Triton's interpreter: loads and stores, softmax state, errors", not reason, reason
        ),
    ]


async def _ask_facts() -> tuple[tuple[DeviceInfo, ...], str, tuple[Fact, ...]]:
    """The GPUs, or why there are none, and the facts; those told before a crash stay."""
    devices: tuple[DeviceInfo, ...] = ()
    why_no_gpu, facts = "", []
    async with throwaway(FACTS, "Python") as process:
        try:
            while not (said := await process.hear(NVML_SECONDS)).get("end"):
                process.subject = said.get("asking", process.subject)
                if "devices" in said:
                    devices = decode(tuple[DeviceInfo, ...], said["devices"], "devices")
                    why_no_gpu = decode(str, said.get("why_no_gpu"), "why_no_gpu")
                facts += decode(tuple[Fact, ...], said.get("facts", []), "facts")
        except (NoAnswer, NotARun) as fault:
            facts.append(Fact("", process.subject, "not known", str(fault)))
            if not devices:
                why_no_gpu = why_no_gpu or str(fault)
    return devices, why_no_gpu, tuple(facts)


class Turn:
    """One GPU's turn: two sources that count at once would disturb each other."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.is_busy = False  # a measurement outside the doctor holds the GPU


async def _ask_gpus(devices: tuple[DeviceInfo, ...], names: tuple[str, ...], tell: Tell) -> list[Answer]:
    """A process for each source and GPU: they import side by side, and take turns on the GPU."""
    slots, turns = asyncio.Semaphore(min(MOST_PROBES, os.cpu_count() or 1)), {one.device: Turn() for one in devices}

    async def ask(name: str, device: str) -> list[Answer]:
        async with slots:
            return await _ask(device, (name,), turns[device], tell)

    async with asyncio.TaskGroup() as group:
        asked = {pair: group.create_task(ask(*pair)) for pair in product(names, turns)}
    return [answer for device in turns for name in names for answer in asked[name, device].result()]


async def _ask(device: str, names: tuple[str, ...], turn: Turn, tell: Tell) -> list[Answer]:
    """The answers of some sources on one device; where one ends its process, the next one gets a fresh process."""
    answers: list[Answer] = []
    while left := names[len(answers) :]:
        async with throwaway((*PROBE, device, *left), left[0]) as process:
            for name in left:
                process.subject = name
                try:
                    answers.append(await _hear(process, device, name, turn, tell))
                except (NoAnswer, NotARun) as fault:
                    answers.append(Answer(device, name, process.subject, False, str(fault)))
                    break
    return answers


async def _hear(process: Throwaway, device: str, name: str, turn: Turn, tell: Tell) -> Answer:
    """One source's answer; if it can be tried, once it is its turn. Raises NoAnswer or NotARun."""
    said = await process.hear(IMPORT_SECONDS)
    if "title" in said:
        process.subject = decode(str, said["title"], "title")
        async with turn.lock:
            if turn.is_busy:
                return Answer(device, name, process.subject, False, BUSY)
            tell(f"{process.subject} on {device}")
            await process.say("go")
            said = await process.hear(decode(float, said.get("seconds"), "seconds"))
            turn.is_busy = said.get("is_busy") is True
    return decode(Answer, said.get("answer"), f"What {process.subject}'s probe said")  # type: ignore[no-any-return]


def facts_table(found: Diagnosis) -> Table:
    """The machine and its GPUs; a warning stands below the fact that it is about."""
    table = Table("device", "fact", "value", title="This machine")
    for fact in found.facts:
        value = Text(fact.value)
        if fact.warning:
            value.append(f"\n{fact.warning}", style="yellow")
        table.add_row(fact.device, Text(fact.name), value)
    return table


def sources_table(found: Diagnosis) -> Table:
    """One row for each source and device: whether it answers, and what it measured or why not."""
    table = Table("device", "source", "available", WORDS, title="What can be measured here")
    for answer in found.sources:
        table.add_row(answer.device, Text(answer.title), answer.verdict, Text(answer.words))
    without = f"{found.why_no_gpu} Kernels are interpreted; recorded Runs show a GPU." if found.why_no_gpu else ""
    table.caption = Text(found.tried_on or without)
    return table
