"""The command line through its real door: exit codes, one sentence on stderr, one JSON document on stdout."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernels.base import all_kernels
from kernels.problem import AttentionProblem, TileConfig
from profiler import __main__ as cli
from profiler import diagnosis, run_command
from profiler.counter import all_counters
from profiler.device import why_no_gpu
from profiler.run import Measurement
from profiler.run_document import from_json
from profiler.store import list_runs, load, save
from profiler.worker import Worker
from tests.command_line import Answer, Command, answer_to
from tests.fake_runs import cpu_run, flash_run, naive_run
from tests.faults import break_flash, mend_flash

ROOT = Path(__file__).parents[1]
SMALL = "--heads 2 --kv-heads 1 --seq-len 33 --seq-len-kv 40 --head-dim 16 --causal --block-m 16 --block-n 16"
RUN = f"run --device cpu {SMALL}"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cpu_worker: Worker) -> Command:
    """Runs `python -m profiler line words` in this process, where the CPU's worker is warm; only `line` is split."""

    def run(line: str, *words: str) -> Answer:
        return answer_to([*line.split(), *words], monkeypatch, capsys)

    return run


def document(answer: Answer) -> Any:
    return json.loads(answer.out.strip().splitlines()[-1])


def test_run_prints_one_document_that_reads_back(command: Command, runs: Path) -> None:
    answer = command(RUN, "--json")
    assert answer.code == 0
    assert len(answer.out.strip().splitlines()) == 1
    found = from_json(answer.out)
    assert [run.workload.kernel for run in found] == ["naive", "flash"]
    assert found[1].workload.problem == AttentionProblem(1, 2, 1, 33, 40, 16, causal=True)
    assert found[1].workload.tile == TileConfig(16, 16)
    assert {run.id for run in list_runs(runs).runs} == {run.id for run in found}
    assert "requested_read_bytes" in answer.err  # the table for the reader


def test_a_process_of_its_own_does_the_same(tmp_path: Path) -> None:
    out = tmp_path / "runs.json"
    words = [sys.executable, "-m", "profiler", *RUN.split(), "--json", "--out", str(out)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = from_json(done.stdout.strip().splitlines()[-1])
    assert len(found) == 2 and load(out) == found


def test_run_without_json_shows_a_table_and_dashes_with_reasons(command: Command) -> None:
    answer = command(RUN)
    assert answer.code == 0 and answer.err == ""
    lines = [line.split("│") for line in answer.out.splitlines()]
    (flops,) = [[cell.strip() for cell in line] for line in lines if len(line) > 2 and line[1].strip() == "flops"]
    # Query i of 33 sees i + 8 of 40 keys: 792 scores, × 4 × 2 heads × 16 = 101,376.
    assert flops[2:] == ["model", "101.4 kFLOP", "101.4 kFLOP", "1×", ""]
    assert "hbm_read_bytes, hbm_write_bytes, l2_sm_bytes by cupti-range: no GPU here" in " ".join(answer.out.split())
    assert answer.out.count("Saved as ") == 2


def test_every_option_reaches_the_workload(command: Command) -> None:
    answer = command(
        f"{RUN} --kernel flash --batch 2 --dtype float32 --window 9 --num-warps 8 --num-stages 2 --seed 7 --l2 warm "
        "--repeats 3 --trace-head 1 --trace-row 5 --counters cupti_sampling --no-drain --detail --json"
    )
    (run,) = from_json(answer.out)
    workload = run.workload
    assert workload.problem == AttentionProblem(2, 2, 1, 33, 40, 16, "float32", True, 9)
    assert workload.tile == TileConfig(16, 16, 8, 2)
    assert (workload.seed, workload.l2, workload.repeats) == (7, "warm", 3)
    assert (workload.counters, workload.drain, workload.detail) == ("cupti-sampling", False, True)
    assert workload.trace is not None and (workload.trace.head, workload.trace.row) == (1, 5)
    (bare,) = from_json(command(RUN, "--kernel", "flash", "--no-trace", "--json").out)
    assert bare.workload.trace is None and bare.softmax is None


@pytest.mark.skipif(why_no_gpu() is None, reason="There is a GPU here.")
def test_a_source_that_was_asked_for_and_told_nothing_is_exit_code_1(command: Command) -> None:
    answer = command(f"{RUN} --counters ncu")
    assert answer.code == 1
    assert answer.out.count("Saved as ") == 2, "what else was measured is shown and kept"
    assert answer.err == f"ncu counted nothing of naive: {why_missing('ncu')}.\n"


def why_missing(source: str) -> str:
    """What the saved Runs say of it, without the full stop."""
    (reason,) = {m.note for run in list_runs().runs for m in run.measurements if m.source == source}
    assert reason
    return reason.rstrip(".")


def test_one_value_of_the_source_that_was_asked_for_is_enough() -> None:
    workload = replace(flash_run().workload, counters="cupti-range")
    run = replace(flash_run(), workload=workload)
    assert run_command.uncounted((run,)) == ""
    other = replace(naive_run(), workload=replace(workload, counters="ncu"))
    assert run_command.uncounted((run, other)) == "ncu counted nothing of flash: it was not asked."
    lost = tuple(replace(m, value=None, note="no") if m.source == "cupti-range" else m for m in run.measurements)
    assert run_command.uncounted((replace(run, measurements=lost),)) == "cupti-range counted nothing of flash: no."
    assert run_command.uncounted((replace(flash_run(), measurements=lost),)) == "", "auto asks for none of them"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--batch 0", "batch is 0; it must be at least 1."),
        ("--seq-len -1", "seq_len_q is -1; it must be at least 1."),
        ("--seq-len-kv 0", "seq_len_kv is 0; it must be at least 1."),
        ("--head-dim 300", "head_dim 300 is above 256; choose 1 to 256."),
        ("--heads 8 --kv-heads 3", "kv_heads 3 does not divide heads 8; choose one of 1, 2, 4, 8."),
        ("--dtype int8", "dtype 'int8' is not supported; choose float16, bfloat16, float32."),
        ("--window 0", "window is 0; it must be at least 1."),
        ("--block-m 24", "BLOCK_M is 24; it must be a power of two up to 1024, such as 16."),
        ("--block-n 4096", "BLOCK_N is 4096; it must be a power of two up to 1024, such as 1024."),
        ("--num-warps 5", "num_warps is 5; it must be a power of two up to 32, such as 4."),
        ("--num-stages 9", "num_stages is 9; choose 1 to 8."),
        ("--kernel slow", f"Kernel 'slow' is not known; choose {', '.join(all_kernels())}."),
        ("--device tpu", "Device 'tpu' is not known; choose cpu or cuda:0."),
        ("--l2 hot", "l2 is 'hot'; choose cold or warm."),
        ("--counters nsys", "counters is 'nsys'; choose auto, cupti-range, ncu, cupti-sampling, nvml-gpm."),
        ("--seed -1", "seed is -1; choose 0 to 2^63 - 1."),
        ("--passes 0", "passes is 0; choose 1 to 10000."),
        ("--trace-head 2", "The traced head is 2; this problem has 0 to 1."),
        (
            "--seq-len 9000 --seq-len-kv 9000",
            "Without a GPU the kernel is interpreted, about 6 ms a tile step;",
        ),
        ("--kernel naive --seq-len 40000 --seq-len-kv 40000 --heads 64", "Naive needs"),
    ],
    ids=lambda value: value if value.startswith("--") else "",
)
def test_run_refuses_in_one_sentence_and_saves_nothing(command: Command, runs: Path, words: str, sentence: str) -> None:
    answer = command(f"{RUN} {words} --json")
    assert answer.code == 2
    assert answer.out == ""
    lines = answer.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith(sentence) and lines[0].endswith(".")
    assert not runs.exists()


@pytest.mark.skipif(why_no_gpu() is None, reason="There is a GPU here.")
def test_a_gpu_that_is_not_there(command: Command, runs: Path) -> None:
    answer = command(f"run {SMALL} --device cuda:0")
    assert answer.code == 2 and not runs.exists()
    assert answer.err == "There is no GPU cuda:0 here (0 found); choose device cpu, or open a recorded Run.\n"


def test_a_failed_run_keeps_what_was_finished(command: Command, cpu_worker: Worker, runs: Path) -> None:
    cpu_worker.schedule(break_flash, "raise").result(60)
    try:
        answer = command(RUN, "--json")
    finally:
        cpu_worker.schedule(mend_flash).result(60)
    assert answer.code == 1
    assert answer.err.splitlines()[-1].startswith("flash (phase: interpret) failed: ValueError:")
    (run,) = from_json(answer.out.strip().splitlines()[-1])
    assert run.workload.kernel == "naive" and list_runs(runs).runs == (run,)


def test_a_time_out_is_exit_code_1(command: Command, cpu_worker: Worker) -> None:
    cpu_worker.schedule(break_flash, "sleep").result(60)
    answer = command(RUN, "--kernel", "flash", "--timeout", "1")
    assert answer.code == 1
    assert answer.err == (
        "flash (phase: interpret) was stopped after 1 s. Choose a smaller problem or a longer time-out.\n"
    )


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_a_time_out_must_be_positive(command: Command, runs: Path, seconds: str) -> None:
    answer = command(RUN, "--timeout", seconds)
    assert answer.code == 2 and len(answer.err.splitlines()) == 1 and "timeout" in answer.err
    assert not runs.exists()


def test_out_that_cannot_be_written_is_refused_before_anything_runs(
    command: Command, runs: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    answer = command(RUN, "--kernel", "naive", "--out", str(tmp_path / "file" / "runs.json"))
    assert answer.code == 2
    assert answer.err == f"Nothing could be written to {tmp_path / 'file'}: File exists.\n"
    assert not list_runs(runs).runs


@pytest.mark.parametrize("kernel", all_kernels())
@pytest.mark.parametrize("mask", ["", "--causal", "--window 5"])
def test_schedule_totals_are_sums_over_the_whole_problem(command: Command, kernel: str, mask: str) -> None:
    line = f"schedule --kernel {kernel} --batch 2 --heads 4 --kv-heads 2 --seq-len 33 --seq-len-kv 20 --head-dim 24 "
    line += f"--block-m 16 --block-n 8 {mask} --json"
    answer = command(line)
    if kernel == "flash_ws" and "window" in mask:
        assert (answer.code, answer.out) == (2, "") and answer.err.startswith("Flash, warp-specialised has no window;")
        return
    assert answer.code == 0
    found = document(answer)
    for direction, name in (("reads", "read"), ("writes", "write")):
        by_tensor: dict[str, int] = {}
        for step in found["steps"]:
            for tensor, size in step[direction].items():
                by_tensor[tensor] = by_tensor.get(tensor, 0) + size
        assert by_tensor == {tensor: sizes[name] for tensor, sizes in found["by_tensor"].items() if sizes[name]}
        assert sum(by_tensor.values()) == found[f"requested_{name}_bytes"]
    if kernel == "flash":
        assert found["grid"] == [2 * 4 * 3] and len(found["steps"]) == 24 * 3
        assert found["by_tensor"]["o"] == {"read": 0, "write": 2 * 4 * 33 * 24 * 2}
    short = command(line, "--summary")
    assert document(short) == {name: value for name, value in found.items() if name != "steps"}


def test_schedule_of_the_article(command: Command) -> None:
    """16 × 16 with 4 × 4 tiles: 4 programs, each reads 4 rows of Q and all of K and V, 128 B a row."""
    answer = command("schedule --seq-len 16 --head-dim 64 --block-m 4 --block-n 4 --json --summary")
    found = document(answer)
    assert found["grid"] == [4]
    assert found["requested_read_bytes"] == 16 * 128 + 4 * 2 * 16 * 128
    assert found["requested_write_bytes"] == 16 * 128 + 16 * 4


def test_schedule_says_where_rows_are_query_heads(command: Command) -> None:
    """One query of 6 heads over 2: 2 K/V heads of 2 KV tiles, a program each, with 3 rows of Q; of flash 6 programs."""
    line = "schedule --kernel {} --heads 6 --kv-heads 2 --seq-len 1 --seq-len-kv 32 --block-m 16 --block-n 16 --json"
    packed, plain = (document(command(line.format(kernel))) for kernel in ("split_kv", "flash"))
    assert (packed["grid"], packed["query_heads_packed"], plain["grid"]) == ([4], 3, [6])
    assert [step["q_range"] for step in packed["steps"] if step["launch"] == "split"] == [[0, 3]] * 4
    assert "query_heads_packed" not in plain


def test_schedule_refuses_in_one_sentence(command: Command) -> None:
    answer = command("schedule", "--block-m", "5", "--json")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "BLOCK_M is 5; it must be a power of two up to 1024, such as 4.\n"


def test_list_shows_kernels_runs_and_faults(command: Command, runs: Path) -> None:
    for run in (naive_run(), flash_run(), cpu_run()):
        save(run)
    (runs / "broken.json").write_text("{")
    answer = command("list", "--json")
    assert answer.code == 0
    found = document(answer)
    assert found["kernels"] == list(all_kernels())
    assert {run["id"] for run in found["runs"]} == {"fake-naive", "fake-flash", "fake-cpu"}
    assert answer.err.startswith("broken.json: This is not a Run file") and len(answer.err.splitlines()) == 1
    table = command("list").out
    assert all(name in table for name in (*all_kernels(), "fake-naive"))


def test_list_of_nothing(command: Command) -> None:
    assert document(command("list", "--json"))["runs"] == []


@pytest.mark.skipif(why_no_gpu() is None, reason="There is a GPU here.")
def test_doctor_without_a_gpu_says_why_and_what_still_works(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    answer = command("doctor", "--json")
    assert answer.code == 0 and len(answer.out.strip().splitlines()) == 1
    found = document(answer)
    assert found["devices"] == [] and found["why_no_gpu"] == why_no_gpu()
    assert {fact["name"] for fact in found["facts"]} == {"torch", "triton", "libcupti"}
    sources = {(source["device"], source["name"]): source for source in found["sources"]}
    assert sources["any", "schedule"]["available"] and sources["any", "interpreter"]["available"]
    assert sources["cpu", "cupti_range"] == {
        "device": "cpu",
        "name": "cupti_range",
        "title": "Hardware counters (CUPTI)",
        "available": False,
        "reason": "no GPU here, so there is no hardware counter to read",
        "found": None,
    }
    assert {name for device, name in sources if device == "cpu"} == {counter.name for counter in all_counters()}
    assert not any(source["available"] for (device, _), source in sources.items() if device == "cpu")
    words = " ".join(answer.err.split())
    assert "What can be measured here" in words and "Hardware counters (CUPTI)" in words
    assert words.endswith("Kernels are interpreted; recorded Runs show a GPU.")


def test_doctor_without_json_prints_its_tables(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    warned = diagnosis.Fact("", "torch", "2.10.0", "torch [2.10] is not known here.")
    sources = (
        diagnosis.Answer("cuda:0", "ncu", "Nsight Compute (ncu)", False, "no [/bold] permission"),
        diagnosis.Answer(
            "cuda:0", "a", "Title", True, "", diagnosis.Found("copy", (Measurement("hbm_bytes", 2.5e9, "B", "ncu"),))
        ),
    )
    monkeypatch.setattr(cli, "diagnose", lambda tell: diagnosis.Diagnosis((), "No [b]driver.", (warned,), sources))
    answer = command("doctor")
    assert (answer.code, answer.err) == (0, "")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in answer.out.splitlines() if "│" in line]
    assert ["", "torch", "2.10.0"] in rows and ["", "", "torch [2.10] is not known here."] in rows
    assert ["cuda:0", "Nsight Compute (ncu)", "ncu", "no", "no [/bold] permission"] in rows
    assert ["cuda:0", "Title", "", "yes", "HBM 2.5 GB."] in rows
    assert "Tried on a copy." in answer.out


def test_usage_errors_are_exit_code_2(command: Command) -> None:
    for line in ("run --batch many", "fly", "run --colour"):
        answer = command(line)
        assert answer.code == 2 and answer.out == "" and "Traceback" not in answer.err


def test_help_names_every_command(command: Command) -> None:
    answer = command("--help")
    assert answer.code == 0
    assert all(name in answer.out for name in ("doctor", "run", "audit", "report", "schedule", "list"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("run --kernel naive --order sawtooth", "No chosen kernel has the order sawtooth; choose linear, or a kernel "),
        (
            "run --kernel flash --order spiral",
            "order 'spiral' is not known; choose linear, sawtooth, longest_first, per",
        ),
        (
            "run --kernel flash --order persistent",
            "No chosen kernel has the order persistent; choose linear, or a kernel ",
        ),
        ("run --kernel flash --order longest_first", "longest_first launches the programs with most KV tiles first, "),
        (
            "schedule --kernel flash --seq-len 1048576 --block-m 16 --block-n 16 --json",
            "The schedule has 4,294,967,296",
        ),
        (
            "schedule --kernel flash --seq-len 16777216 --block-m 1 --block-n 1 --json",
            "16,777,216 rows in tiles of 1 make 16,777,216 tiles of flash, above 1,048,576; choose larger tiles",
        ),
    ],
)
def test_what_would_not_be_as_asked_is_refused(command: Command, words: str, sentence: str) -> None:
    answer = command(words)
    assert answer.code == 2 and answer.err.startswith(sentence) and answer.err.count("\n") == 1
