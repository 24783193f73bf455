"""HBM and L2↔SM bytes of Loads as Nsight Compute counts them, in a process of its own; every failure a sentence."""

import json
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from kernels.own_import import permitted
from profiler.codec import decode, encode
from profiler.counter import Reading, Unavailable
from profiler.cupti.driver import current_chip
from profiler.cupti.host import TrafficMetrics
from profiler.cupti.library import PERMIT, CuptiError
from profiler.cupti.library import load as load_cupti
from profiler.launched import shortened
from profiler.ncu_csv import (
    DRAIN,
    DRAINED,
    MAX_BYTES,
    PASS,
    LoadMarks,
    MarkedKernels,
    NcuError,
    ProfiledKernel,
    parse,
    split,
)
from profiler.ncu_program import Ncu, command, find, last_line, metrics_of, run
from profiler.plausible import MAX_LAUNCHES, printable
from profiler.run import DeviceInfo, LaunchedKernel, Measurement
from profiler.scratch import scratch

UNITS = {"hbm_read_bytes": "B", "hbm_write_bytes": "B", "l2_sm_bytes": "B", "gpu_time_seconds": "s"}
L2_READS = {"l2_to_sm_bytes": "bytes that arrived at the SMs' L1", "l2_sm_read_bytes": "L2 sectors read × 32 B"}
QUANTITIES = tuple((name, unit, "ncu") for name, unit in UNITS.items() if unit == "B")  # of a whole pass
START_SECONDS, LOAD_SECONDS = 60.0, 30.0
MAX_ANSWER_BYTES = 2**20  # 20,000 marks
ERROR, MOST_ERRORS = "\n==ERROR==", 1000
NEAR_BYTES = 4e6  # as much as the writes of two equal drains may differ

# What ncu says, in part, and what that means.
EXPLANATIONS = {
    "ERR_NVGPUCTRPERM": f"ncu may not read the GPU's counters. {PERMIT}",
    "driver resource was unavailable": "ncu found the GPU's counters held by another program: DCGM, or another "
    "profiler. Stop it (DCGM: `dcgmi profile --pause`) and repeat.",
    "not supported on device": "this ncu cannot profile this GPU or this set-up (a virtual GPU, WSL). Install the "
    "newest Nsight Compute; use Linux itself and a whole GPU.",
    "driver is not compatible": "the driver is too old for this ncu. Update the driver, or name an older ncu in "
    "BYTESCOPE_NCU.",
    "nsight-compute-lock": "ncu may not open its lock file, which another user made. Set TMPDIR to a folder of your "
    "own and start Bytescope again.",
}
# Errors that say only that there was one.
EMPTY_ERRORS = ("An error was reported", "An error occurred", "For more information", "Failed to profile")
APPLICATION_FAILED = "The application returned an error code"


def measure_loads(specs: Sequence[Mapping[str, Any]], device: DeviceInfo) -> tuple[Reading, ...]:
    """One Reading for each Load, by its spec, from one start of ncu: the QUANTITIES of a pass, and UNITS by launch.

    ncu lets one kernel run at a time, each once, and leaves clocks and L2 as they are; what leaves L2 between two
    kernels it does not see. A Load that could not run has Measurements of None with the reason.
    Raises Unavailable with a sentence for all else that goes wrong.
    """
    try:
        ncu = find()
        metrics = metrics_of(ncu, _chip())
        torch.cuda.empty_cache()  # the other process wants the memory
        return tuple(summarise(ncu, marks, found) for marks, found in profile(ncu, metrics, specs, device))
    except NcuError as error:
        raise Unavailable(str(error)) from error


def _chip() -> str | None:
    """The chip as ncu spells it; None where no libcupti tells, and ncu then looks at the GPUs itself."""
    try:
        return current_chip(load_cupti()).lower()
    except CuptiError:
        return None


def profile(
    ncu: Ncu, metrics: TrafficMetrics, specs: Sequence[Mapping[str, Any]], device: DeviceInfo
) -> tuple[tuple[LoadMarks, MarkedKernels], ...]:
    """What profiler.ncu_target says of each Load, and what ncu counted for it. Raises NcuError."""
    try:
        with scratch() as folder:
            spec, log, answer = (folder / name for name in ("spec.json", "ncu.log", "answer.json"))
            words = {"loads": list(specs), "device": encode(device), "answer": str(answer), "asker": os.getpid()}
            words["own"] = permitted()
            spec.write_text(json.dumps(words), encoding="utf-8")
            code, console = run(command(ncu, metrics, log, spec), START_SECONDS + LOAD_SECONDS * len(specs), log)
            text = ""
            if log.exists():
                with log.open("rb") as file:
                    text = file.read(MAX_BYTES + 1).decode(errors="replace")
            if problem := explain(code, text, console):
                raise NcuError(problem)
            if not answer.exists():
                raise NcuError(f"the program that ncu started gave no answer: {last_line(console)}")
            told = _read(answer)
    except (OSError, ValueError) as error:
        raise NcuError(
            f"ncu's files cannot be used: {str(error).rstrip('.')}. Free the folder for temporary files."
        ) from error
    if len(told) != len(specs):
        raise NcuError(f"the program that ncu started answered for {len(told)} of {len(specs)} Loads; repeat.")
    marks = [section for one in told for section in one.sections]
    groups = iter(split(parse(text, metrics), marks) if marks else ())
    return tuple((one, tuple(islice(groups, len(one.sections)))) for one in told)


def _read(answer: Path) -> tuple[LoadMarks, ...]:
    """What profiler.ncu_target answered. Raises NcuError, OSError or ValueError."""
    if answer.stat().st_size > MAX_ANSWER_BYTES:
        raise NcuError(f"the program that ncu started answered more than {MAX_ANSWER_BYTES >> 20} MiB; repeat.")
    try:
        told: tuple[LoadMarks, ...] = decode(tuple[LoadMarks, ...], json.loads(answer.read_bytes()), "answer")
    except RecursionError as error:
        raise NcuError("the program that ncu started gave an answer that is nested too deeply; repeat.") from error
    return told


def explain(code: int, log: str, console: str) -> str | None:
    """A sentence for what went wrong, from the exit code, ncu's log and what was printed; None if nothing did."""
    errors = [error for text in (log, console) for error in islice(_errors(text), MOST_ERRORS)]
    for part, sentence in EXPLANATIONS.items():
        if any(part in error for error in errors):
            return sentence
    telling = [error for error in errors if error and not error.startswith((*EMPTY_ERRORS, APPLICATION_FAILED))]
    if telling:
        return f"ncu failed: {telling[0][:300]}"
    if any(error.startswith(APPLICATION_FAILED) for error in errors):
        return f"the program that ncu started failed: {last_line(console)}"
    if code < 0:
        return f"ncu was ended by signal {-code}, {signal.strsignal(-code)}. Name another version in BYTESCOPE_NCU."
    if code or errors:
        return f"ncu ended with code {code}: {last_line(console)}"
    return None


def _errors(text: str) -> Iterator[str]:
    """What follows ==ERROR== on the lines that begin with it, found without a look at the others."""
    text = f"\n{text}"
    begin = text.find(ERROR)
    while begin >= 0:
        begin += len(ERROR)
        end = text.find("\n", begin)
        yield text[begin : end if end >= 0 else None].strip()
        begin = text.find(ERROR, end) if end >= 0 else -1


def summarise(ncu: Ncu, marks: LoadMarks, found: MarkedKernels) -> Reading:
    """One Load's kernels as measurements."""
    parts: dict[str, list[ProfiledKernel]] = {PASS: []}
    idle: dict[str, list[ProfiledKernel]] = {}
    launches: dict[str, list[ProfiledKernel]] = {}
    for section, (mark, *kernels) in found:
        parts.setdefault(section.part, []).extend(kernels)
        idle.setdefault(section.part, []).append(mark)
        if section.launch is not None:
            launches.setdefault(section.launch, []).extend(kernels)
    empty = [name for name, kernels in (*parts.items(), *launches.items()) if not kernels]
    reason = marks.reason
    if empty and not reason:
        reason = f"{ncu} saw no kernel of {', '.join(empty)}; copies and fills that the driver does it does not count"
    if reason:
        words = printable(reason)
        return Reading(tuple(Measurement(name, None, unit, source, words) for name, unit, source in QUANTITIES))

    how = f"{ncu}, in a process of its own; one pass, kernels one at a time, L2 kept between them; {marks.l2} L2"
    # A mark writes nothing: what leaves L2 while one runs was written by what ran before.
    written = {part: _sum("hbm_write_bytes", parts[part] + idle[part]) for part in parts}
    writes: float | None = written[PASS]
    until, why_not = "the pass ends, without what it wrote and L2 still holds", ""
    if DRAINED in parts:
        until = "L2 holds no dirty line"
        writes, why_not = _without_drain(written[PASS] + written[DRAINED], written[DRAIN])
    until = why_not or f"dram write bytes until {until}; {how}"
    measurements = [
        Measurement("hbm_read_bytes", _sum("hbm_read_bytes", parts[PASS]), "B", "ncu", f"dram read bytes; {how}"),
        Measurement("hbm_write_bytes", writes, "B", "ncu", until),
        Measurement("l2_sm_bytes", _sum("l2_sm_bytes", parts[PASS]), "B", "ncu", f"L2 sectors × 32 B; {how}"),
    ]
    for name, what in L2_READS.items():
        if name in parts[PASS][0].traffic:
            measurements.append(Measurement(name, _sum(name, parts[PASS]), "B", "ncu", f"{what}; {how}"))
    note = f"{how} at its first launch; a write still in L2 when its launch ends counts for a later one"
    for launch, kernels in launches.items():
        measurements += [Measurement(q, _sum(q, kernels), UNITS[q], "ncu", note, launch=launch) for q in UNITS]
    named = (LaunchedKernel(s.launch or "", shortened(k.name)) for s, (_, *ran) in found if s.part == PASS for k in ran)
    return Reading(tuple(measurements), kernels=tuple(islice(named, MAX_LAUNCHES)))


def _without_drain(written: float, alone: float) -> tuple[float | None, str]:
    """Bytes written by a pass and its drain, without what a drain writes by itself; None with the reason."""
    if alone - written > NEAR_BYTES:
        return None, (
            f"a drain alone wrote more ({alone:,.0f} B) than the pass and its drain ({written:,.0f} B): something else "
            "wrote to HBM meanwhile; repeat"
        )
    return max(0.0, written - alone), ""


def _sum(quantity: str, kernels: Iterable[ProfiledKernel]) -> float:
    return sum(kernel.traffic[quantity] for kernel in kernels)
