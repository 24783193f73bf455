"""What can be measured here, what cannot, why, and what would allow it: asked in throw-away processes.

This process loads neither torch nor a driver's library, so that nothing broken can end it.
"""

import asyncio
import os
import pkgutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import product

from rich.table import Table
from rich.text import Text

from profiler import counters
from profiler.codec import NotARun, decode
from profiler.diagnosis import BUSY, Answer, Diagnosis, Fact
from profiler.probe import INTERPRETER
from profiler.run import DeviceInfo
from profiler.throwaway import GPU_HANGS, NoAnswer, Throwaway, throwaway
from profiler.workload import CPU

FACTS = ("-m", "profiler.facts")
PROBE = ("-m", "profiler.probe")
NVML_SECONDS = 20.0
IMPORT_SECONDS = 60.0  # of torch from a cold or distant disk
IMPORT_HANGS = (
    "Its import hangs: see whether `python -c 'import torch'` ends here, and install the versions of requirements.txt."
)
MOST_PROBES = 8  # processes at a time; each imports torch
SCHEDULE = Answer("any", "schedule", "Schedule: requested bytes, tile steps", True)
WORDS = "what it measured, or why not and what would allow it"

Tell = Callable[[str], None]


def diagnose(tell: Tell = lambda _: None) -> Diagnosis:
    """Ask for facts, then every source on every device; `tell` hears what is being asked."""
    task: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Diagnosis]]] = Future()

    async def ask() -> Diagnosis:
        asking = asyncio.create_task(_diagnose(tell))
        task.set_result((asyncio.get_running_loop(), asking))
        return await asking

    # In a thread of its own: whoever asks may have an event loop already, as a notebook has.
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(asyncio.run, ask())
        try:
            return answer.result()
        except KeyboardInterrupt:
            # Else the block would wait until the last probe has answered.
            loop, asking = task.result()
            with suppress(RuntimeError):  # the loop has just ended
                loop.call_soon_threadsafe(asking.cancel)
            raise


async def _diagnose(tell: Tell) -> Diagnosis:
    tell("NVML, the driver and libraries")
    devices, why_no_gpu, facts = await _ask_facts()
    names = tuple(module.name for module in pkgutil.iter_modules(counters.__path__))
    tell(f"{len(names)} sources")
    if devices:
        answers = await _ask_gpus(devices, names, tell)
    else:
        # On a CPU sources only say no: one process asks them all, and a crash costs another one.
        answers = await _ask(CPU, (INTERPRETER.name, *names), Turn(), Start(), tell)
    return Diagnosis(devices, why_no_gpu, facts, (SCHEDULE, *answers))


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


class Start:
    """What every probe does first; where it fails once, nobody waits for it again."""

    def __init__(self) -> None:
        self.why_not = ""


async def _ask_gpus(devices: tuple[DeviceInfo, ...], names: tuple[str, ...], tell: Tell) -> list[Answer]:
    """A process for each source and GPU, and the interpreter: they import side by side, and take turns on the GPU."""
    slots, turns = asyncio.Semaphore(min(MOST_PROBES, os.cpu_count() or 1)), {one.device: Turn() for one in devices}
    start = Start()

    async def ask(name: str, device: str, turn: Turn) -> list[Answer]:
        async with slots:
            return await _ask(device, (name,), turn, start, tell)

    async with asyncio.TaskGroup() as group:
        interpreter = group.create_task(ask(INTERPRETER.name, CPU, Turn()))
        asked = {pair: group.create_task(ask(*pair, turns[pair[1]])) for pair in product(names, turns)}
    on_gpus = [answer for device in turns for name in names for answer in asked[name, device].result()]
    return [*interpreter.result(), *on_gpus]


async def _ask(device: str, names: tuple[str, ...], turn: Turn, start: Start, tell: Tell) -> list[Answer]:
    """The answers of some sources on one device; where one ends its process, the next one gets a fresh process."""
    answers: list[Answer] = []
    while (left := names[len(answers) :]) and not start.why_not:
        async with throwaway((*PROBE, device, *left), "Python") as process:
            try:
                await _ready(process)
            except (NoAnswer, NotARun) as fault:
                start.why_not = str(fault)
                break
            for name in left:
                process.subject = name
                try:
                    answers.append(await _hear(process, device, name, turn, tell))
                except (NoAnswer, NotARun) as fault:
                    answers.append(_no(device, name, process.subject, str(fault)))
                    break
    return [*answers, *(_no(device, name, name, start.why_not) for name in left)]


def _no(device: str, name: str, title: str, reason: str) -> Answer:
    if name == INTERPRETER.name:
        return replace(INTERPRETER, available=False, reason=reason)
    return Answer(device, name, title, False, reason)


async def _ready(process: Throwaway) -> None:
    """Wait until it has imported torch and NVML answers. Raises NoAnswer or NotARun, about the one that does not."""
    seconds, if_it_hangs = IMPORT_SECONDS, IMPORT_HANGS
    while "is_ready" not in (said := await process.hear(seconds, if_it_hangs)):
        process.subject = decode(str, said.get("asking", process.subject), "What a probe asks")
        if process.subject == "NVML":
            seconds, if_it_hangs = NVML_SECONDS, GPU_HANGS


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
    table = Table("device", "source", "--counters", "available", WORDS, title="What can be measured here")
    for answer in found.sources:
        table.add_row(answer.device, Text(answer.title), answer.counters, answer.verdict, Text(answer.words))
    without = f"{found.why_no_gpu} Kernels are interpreted; recorded Runs show a GPU." if found.why_no_gpu else ""
    table.caption = Text(found.tried_on or without)
    return table
