"""Nsight Compute as a source: its log read by hand-made samples, and the program itself played by a script."""

import ctypes
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import triton
from hypothesis import given, settings
from hypothesis import strategies as st
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from kernels.problem import Refused
from profiler import ncu, ncu_program, ncu_target
from profiler.codec import encode
from profiler.counter import Counter, Unavailable
from profiler.counters import ncu as counter_file
from profiler.cupti.host import TrafficMetrics
from profiler.ncu_csv import MARK, MAX_BYTES, LoadMarks, NcuError, ProfiledKernel, Section, parse, split
from profiler.ncu_program import Ncu
from profiler.run import LaunchedKernel
from profiler.workload import Workload
from tests.fake_runs import H200, PROBLEM, TILE

DATA = Path(__file__).parent / "data"
NAIVE, FLASH = (DATA.joinpath(name).read_text() for name in ("ncu_naive.csv", "ncu_flash.csv"))
METRICS = TrafficMetrics(
    "dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_sectors_srcunit_tex.sum", "gpu__time_duration.sum"
)
OP_METRICS = replace(METRICS, read="dram__bytes_op_read.sum", write="dram__bytes_op_write.sum")

NAIVE_MARKS = LoadMarks(
    "cold",
    (
        Section("drain"),
        Section("pass"),
        *(Section("pass", launch) for name in ("qk", "scale", "softmax", "pv") for launch in (name, None)),
        Section("drained"),
    ),
)
FLASH_MARKS = LoadMarks("warm", (Section("pass"), Section("pass", "flash"), Section("pass")))


# What ncu writes


def test_each_kernel_of_the_log_in_order():
    kernels = parse(NAIVE, METRICS)
    assert len(kernels) == 18
    assert [kernel.name for kernel in kernels].count("bytescope_mark") == 11
    # 70,000,000 sectors × 32 B, 650,000 ns.
    assert kernels[4] == ProfiledKernel(
        "nvjet_tst_256x128_64x4_2x1_v_bz_coopB_TNT",
        {
            "hbm_read_bytes": 105_000_000.0,
            "hbm_write_bytes": 2_118_000_000.0,
            "l2_sm_bytes": 2_240_000_000.0,
            "gpu_time_seconds": 0.00065,
        },
    )
    assert kernels[10].name.startswith("void <unnamed>::softmax_warp_forward<c10::BFloat16, c10::BFloat16,")


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_older_units_plain_numbers_and_other_names(ending):
    kernel = parse(FLASH.replace("\n", ending), OP_METRICS)[2]
    assert kernel.name == "flash_forward"
    assert kernel.traffic == {
        "hbm_read_bytes": 100_663_296.0,
        "hbm_write_bytes": 33_554_432.0,
        "l2_sm_bytes": 85_312_512 * 32.0,
        "gpu_time_seconds": pytest.approx(0.0012800005),
    }


def test_names_may_hold_quotes_commas_and_html():
    name = 'k<img src=x onerror=""alert(1)"">, "", é\u2028==ERROR=='
    kernel = parse(FLASH.replace('"flash_forward","', f'"{name}","'), OP_METRICS)[2]
    assert kernel.name == 'k<img src=x onerror="alert(1)">, ", é\u2028==ERROR=='


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"100663296.00"', '"n/a"', "dram__bytes_op_read.sum of a kernel is 'n/a'"),
        ('"100663296.00"', '""', "is ''"),
        ('"100663296.00"', '"nan"', "is 'nan'"),
        ('"100663296.00"', '"inf"', "is 'inf'"),
        ('"100663296.00"', '"-1"', "is '-1'"),
        ('"100663296.00"', '" 1"', "is ' 1'"),
        ('"100663296.00"', '"1_000"', "is '1_000'"),
        ('"100663296.00"', '"٣"', "is '٣'"),
        ('"100663296.00"', '"1e99"', "is '1e99'"),
        ('"100663296.00"', f'"{"9" * 5000}"', "is '999"),
        ('"100663296.00"', '"1,00,000"', "is '1,00,000'"),
        ('"100663296.00"', '"100.663"', "is '100.663'"),
        ('"100663296.00"', '"100.663.296"', "is '100.663.296'"),
        ('"85312512"', '"85312512.5"', "is '85312512.5'"),
        # 1,280,000.5 ns, 1,280 ns and 100,663 B as they are written where points stand between thousands.
        ('"1280000.50"', '"1.280.000,5"', "gpu__time_duration.sum of a kernel is '1.280.000,5'"),
        ('"1280000.50"', '"1.280,5"', "is '1.280,5'"),
        ('"1280000.50"', '"1280000,50"', "is '1280000,50'"),
        ('"1280000.50"', '"1.280"', "is '1.280'"),
        ('"100663296.00"', '"100.000"', "is '100.000'"),
        # Whatever ran took time, marks too: theirs is 1056 ns here.
        ('"1280000.50"', '"0"', "gpu__time_duration.sum of a kernel is '0'"),
        ('"1280000.50"', '"0.00"', "gpu__time_duration.sum of a kernel is '0.00'"),
        ('"1056"', '"0"', "gpu__time_duration.sum of a kernel is '0'"),
        ('"byte","byte"', '"Mbyte","byte"', "dram__bytes_op_read.sum has the unit 'Mbyte', not byte"),
        ('"nsecond"', '"usecond"', "the unit 'usecond', not ns"),
        ('"sector"', '""', "the unit '', not sector"),
        ('"dram__bytes_op_read.sum"', '"dram__bytes_read.sum"', "no columns dram__bytes_op_read.sum"),
        ('"dram__bytes_op_write.sum"', '"dram__bytes_op_read.sum"', "2 columns dram__bytes_op_read.sum"),
        ('"Kernel Name"', '"Function Name"', "no columns Kernel Name"),
        ('"ID","Process ID"', '"Number","Process ID"', "it holds no table"),
        ('"profiler__replayer_passes"', '"launch__waves"', "no columns profiler__replayer_passes"),
        ('"dram__bytes_op_read.sum"', '"profiler__replayer_passes"', "2 columns profiler__replayer_passes"),
        ('"2","812"', '"0","812"', "not in the order in which they ran"),
        ('"2","812"', '"1","812"', "not in the order in which they ran"),
        ('"2","812"', '"x","812"', "a kernel has no number"),
        (',"85312512"', "", "a row has 15 of 16 cells"),
        ('"85312512"', '"85312512","1"', "a row has 17 of 16 cells"),
        ('"85312512","1"\n', '"853', "its table is torn"),
        ('"flash_forward"', '"flash"forward"', "its table is torn"),
        ('"3","812"', '==PROF==\n"3","812"', "torn or not the only one"),
        ('"2","812"', '2,"812"', "torn or not the only one"),
        ('"3","812"', '3,"812"', "torn or not the only one"),
        ("==PROF== Disconnected", '"ID",\n', "torn or not the only one"),
        ("==PROF== Disconnected", '"\n', "torn or not the only one"),
        ('"2","812"', '"17","812"', "not in the order in which they ran"),
        ('"3","812"', '"4","812"', "it holds 4 of the kernels 0 to 4"),
        ('"85312512","1"', '"85312512","46"', "ran a kernel '46' times"),
        ('"85312512","1"', '"85312512","0"', "ran a kernel '0' times"),
        ('"85312512","1"', '"85312512",""', "ran a kernel '' times"),
        ('"85312512","1"', '"85312512","1.0"', "ran a kernel '1.0' times"),
    ],
)
def test_a_log_that_is_not_as_it_should_be_is_refused_with_a_sentence(old, new, words):
    assert old in FLASH
    with pytest.raises(NcuError) as refused:
        parse(FLASH.replace(old, new), OP_METRICS)
    assert words in str(refused.value)
    assert "BYTESCOPE_NCU" in str(refused.value) and len(str(refused.value)) < 400


@pytest.mark.parametrize("lost", [1, 2, 8, 16])
def test_a_kernel_that_is_missing_is_noticed(lost):
    """All but the first and the last, whose absence the marks tell."""
    text = "".join(line for line in NAIVE.splitlines(keepends=True) if not line.startswith(f'"{lost}",'))
    with pytest.raises(NcuError, match="it holds 17 of the kernels 0 to 17"):
        parse(text, METRICS)


def test_many_lines_take_no_time():
    """At a microsecond a line, each would take a minute."""
    lines = "\n" * 60_000_000
    begun = time.process_time()
    with pytest.raises(NcuError, match="it holds no table"):
        parse(lines, OP_METRICS)
    assert len(parse(FLASH + lines, OP_METRICS)) == 4
    assert time.process_time() - begun < 10


def test_a_log_without_units_kernels_or_end_is_refused():
    lines = FLASH.splitlines(keepends=True)
    header = next(number for number, line in enumerate(lines) if line.startswith('"ID"'))
    for text, words in (
        ("", "it holds no table"),
        ("==WARNING== No kernels were profiled.\n", "it profiled no kernel"),
        ("".join(lines[: header + 1]), "no row of units"),
        ("".join(lines[: header + 1] + lines[header + 2 :]), "no row of units"),
        ("".join(lines[: header + 2]), "its table holds no kernel"),
        (" " * (MAX_BYTES + 1), "more than 64 MiB"),
    ):
        with pytest.raises(NcuError, match=words):
            parse(text, OP_METRICS)


WORDS = st.sampled_from(['"', ",", "\n", "\0", "n/a", "-", "=", "==PROF== ", '"ID",', '"1"\n', "é", "9" * 400])


@settings(max_examples=200)
@given(st.integers(0, len(FLASH)), st.integers(0, 60), st.lists(st.one_of(WORDS, st.text(max_size=5)), max_size=4))
def test_a_damaged_log_gives_values_that_can_be_or_a_sentence(begin, length, pieces):
    text = FLASH[:begin] + "".join(pieces) + FLASH[begin + length :]
    try:
        kernels = parse(text, OP_METRICS)
    except NcuError as error:
        assert "\n" not in str(error) and str(error).endswith(".")
    else:
        assert len(kernels) == 4
        assert all(0 <= value < 2**69 for kernel in kernels for value in kernel.traffic.values())


@settings(max_examples=100)
@given(st.integers(0, 2**53), st.text(st.characters(blacklist_characters="\n\r", blacklist_categories=("Cs",))))
def test_what_is_written_is_read(count, name):
    quoted = name.replace('"', '""')
    for number in (f"{count}", f"{count:,}"):
        text = FLASH.replace('"flash_forward","', f'"{quoted}","').replace("100663296.00", number)
        kernel = parse(text, OP_METRICS)[2]
        assert (kernel.name, kernel.traffic["hbm_read_bytes"]) == (name, count)


def test_marks_tell_whose_a_kernel_is():
    found = split(parse(NAIVE, METRICS), NAIVE_MARKS.sections)
    assert [len(kernels) - 1 for _, kernels in found] == [1, 0, 1, 0, 1, 0, 1, 0, 2, 0, 1]
    assert found[8][0] == Section("pass", "pv")
    assert [kernel.name.split("<")[0] for kernel in found[8][1]] == [
        "bytescope_mark",
        "nvjet_tst_128x128_64x6_2x1_v_bz_splitK_NNN",
        "void cublasLt::splitKreduce_kernel",
    ]


def test_marks_that_do_not_fit_are_refused():
    kernels = parse(NAIVE, METRICS)
    with pytest.raises(NcuError, match="it profiled 11 of 12 marks"):
        split(kernels, (*NAIVE_MARKS.sections, Section("drained")))
    with pytest.raises(NcuError, match="a kernel before the first mark"):
        split(kernels[1:], NAIVE_MARKS.sections)


# What becomes of it


def reading(text=NAIVE, metrics=METRICS, marks=NAIVE_MARKS):
    return ncu.summarise(Ncu("ncu", (2025, 4, 0)), marks, split(parse(text, metrics), marks.sections))


def value(found, name, launch=None):
    (one,) = (m for m in found.measurements if (m.name, m.launch) == (name, launch))
    assert (one.source, one.unit) == ("ncu", ncu.UNITS[name])
    return one.value


def test_a_pass_is_the_sum_of_its_kernels_and_writes_are_drained():
    found = reading()
    # 105 + 2148 + 2147 + 2200 + 9 MB; what the marks read is theirs.
    assert value(found, "hbm_read_bytes") == 6_609_000_000
    # 2118 + 2121 + 2127 + 20 + 8 MB, 3 MB that left L2 while a mark ran, and the drain's 60,004,096 B less 4,096 B.
    assert value(found, "hbm_write_bytes") == 6_457_000_000
    # (70 + 134 + 134 + 100 + 1) million sectors.
    assert value(found, "l2_sm_bytes") == 439_000_000 * 32
    note = found.measurements[1].note
    assert "until L2 holds no dirty line; ncu 2025.4.0" in note and "cold L2" in note


def test_a_launch_is_the_sum_of_its_kernels_and_names_them():
    found = reading()
    numbers = [value(found, name, "pv") for name in ncu.UNITS]
    assert numbers == [2_209_000_000, 28_000_000, 101_000_000 * 32, pytest.approx(0.00068)]
    assert {m.launch for m in found.measurements} == {None, "qk", "scale", "softmax", "pv"}
    assert [kernel.launch for kernel in found.kernels] == ["qk", "scale", "softmax", "pv", "pv"]
    assert found.kernels[0].kernel == "nvjet_tst_256x128_64x4_2x1_v_bz_coopB_TNT"


def test_without_the_drain_writes_end_with_the_pass():
    found = reading(FLASH, OP_METRICS, FLASH_MARKS)
    assert value(found, "hbm_write_bytes") == value(found, "hbm_write_bytes", "flash") == 33_554_432
    assert "without what it wrote and L2 still holds" in found.measurements[1].note
    assert "warm L2" in found.measurements[0].note


ALONE = '"125829120","4096"'  # what the lone drain's kernel read and wrote


@pytest.mark.parametrize(
    ("alone", "expected"),
    [
        (6_457_004_096, 0.0),
        (6_457_004_097, 0.0),
        (6_461_004_096, 0.0),  # 4 MB more
        (6_457_003_096, 1_000.0),
    ],
)
def test_what_a_drain_writes_by_itself_is_not_the_pass_s(alone, expected):
    """The pass and its drain wrote 6,457,000,000 + 4,096 B."""
    assert NAIVE.count(ALONE) == 1
    assert value(reading(NAIVE.replace(ALONE, f'"125829120","{alone}"')), "hbm_write_bytes") == expected


def test_a_drain_that_wrote_more_than_the_pass_leaves_the_writes_unknown():
    found = reading(NAIVE.replace(ALONE, '"125829120","6461004097"'))
    assert value(found, "hbm_write_bytes") is None
    assert found.measurements[1].note == (
        "a drain alone wrote more (6,461,004,097 B) than the pass and its drain (6,457,004,096 B): something else "
        "wrote to HBM meanwhile; repeat"
    )
    assert value(found, "hbm_read_bytes") == 6_609_000_000


def test_a_kernel_outside_any_launch_counts_for_the_pass_and_long_names_are_cut():
    marks = LoadMarks("cold", (Section("pass"), Section("pass"), Section("pass")))
    found = reading(FLASH.replace('"flash_forward"', f'"{"k" * 301}"'), OP_METRICS, marks)
    assert value(found, "hbm_read_bytes") == 100_663_296
    assert found.kernels == (LaunchedKernel("", "k" * 299 + "…"),)


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        (LoadMarks("cold", (Section("pass"), Section("pass", "flash"), Section("pass", "blind_rows"))), "blind_rows;"),
        (LoadMarks("cold", (Section("drain"), Section("pass", "flash"), Section("drained"))), "drain, drained;"),
        (replace(FLASH_MARKS, reason="cuDNN does not take it."), "cuDNN does not take it."),
    ],
)
def test_what_shows_no_kernel_or_did_not_run_is_none_with_the_reason(marks, words):
    found = reading(FLASH, OP_METRICS, marks)
    assert [m.name for m in found.measurements] == ["hbm_read_bytes", "hbm_write_bytes", "l2_sm_bytes"]
    assert all(m.value is None and words in m.note for m in found.measurements)


@pytest.mark.parametrize(
    ("code", "log", "console", "words"),
    [
        (1, "ERR_NVGPUCTRPERM - The user …\n==ERROR== The application returned an error code (9).", "", "--cap-add"),
        (1, "An error was reported by the driver:\n\n==ERROR== … a driver resource was unavailable.", "", "DCGM"),
        (0, "Profiling is not supported on device 0. To find …", "", "cannot profile this GPU"),
        (1, "Cuda driver is not compatible with Nsight Compute.", "", "driver is too old"),
        (1, "Failed to open /tmp/nsight-compute-lock.", "", "TMPDIR"),
        (1, "Failed to find metric regex:^dram", "", "ncu failed: Failed to find metric regex:^dram"),
        (1, "The application returned an error code (1).", "Traceback\nValueError: so\n", "failed: ValueError: so"),
        (0, "An error occurred while trying to profile.", "", "ended with code 0"),
    ],
)
def test_what_ncu_says_of_its_failure_is_explained(code, log, console, words):
    assert words in ncu.explain(code, f"==PROF== Connected\n==ERROR== {log}", console)
    assert words in ncu.explain(code, "", f"==ERROR== {log}\n{console}")


@pytest.mark.parametrize(
    ("code", "words"), [(-11, "signal 11, Segmentation fault"), (3, "ended with code 3: it said nothing")]
)
def test_an_end_without_a_word_is_told(code, words):
    assert words in ncu.explain(code, "==PROF== Connected", "")


@pytest.mark.parametrize("line", ["", "==ERROR==", "==ERROR== An error occurred.", "==PROF== Connected"])
def test_many_lines_are_explained_at_once(line):
    lines = f"{line}\n" * (60 * 2**20 // (len(line) + 1))
    begun = time.process_time()
    assert ncu.explain(1, lines, "no room").startswith("ncu ended with code 1: no room")
    assert ncu.explain(1, "", f"{lines}no room").startswith("ncu ended with code 1: no room")
    assert time.process_time() - begun < 1.5


def test_a_warning_is_no_failure():
    assert ncu.explain(0, NAIVE, "torch says ==ERROR==\n==WARNING== Found outstanding GPU clock reset") is None


# The program, played by a script

QUESTIONS = {
    "--version": "NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.4.0.0 (build 1) (public-release)",
    "--list-chips": "ad102, ad103, ga100, ga102, gb100, gh100, tu102",
    "--help": "  --config-file arg (=on)\n  --pipeline-boost-state arg (=stable)\n",
    "--query-metrics": '"dram__bytes_read","Counter"\n"dram__bytes_write"\n'
    "lts__t_sectors_srcunit_tex  Counter  sector\ngpu__time_duration  Counter  ns\n",
}


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Makes BYTESCOPE_NCU a script that answers QUESTIONS, runs `body` when it is to profile, and keeps its calls."""

    def play(body: str = "", **answers: str) -> Callable[[], list[list[str]]]:
        folder = tmp_path / "nsight"
        folder.mkdir(exist_ok=True)
        told = QUESTIONS | {f"--{name.replace('_', '-')}": text for name, text in answers.items()}
        (folder / "script.py").write_text(f"""
import json, os, signal, subprocess, sys, time
from pathlib import Path
words = sys.argv[1:]
with open({str(folder / "calls")!r}, "a") as calls:
    print(json.dumps(words), file=calls)
told = {told!r}
if words[0] in told:
    sys.exit(print(told[words[0]]))
log = Path(words[words.index("--log-file") + 1])
spec = json.loads(Path(words[-1]).read_text())
def answer(marks):
    Path(spec["answer"]).write_text(json.dumps(marks))
{body}
""")
        program = folder / "ncu"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{folder}/script.py" "$@"\n')
        program.chmod(0o755)
        monkeypatch.setenv("BYTESCOPE_NCU", str(program))
        return lambda: [json.loads(line) for line in (folder / "calls").read_text().splitlines()]

    ncu_program.ask.cache_clear()
    monkeypatch.setattr(ncu, "current_chip", lambda cupti: "GH100")
    yield play
    ncu_program.ask.cache_clear()


def writes(log: str, *marks: LoadMarks, end: str = "") -> str:
    return f"log.write_text({log!r})\nanswer({encode(list(marks))!r})\n{end}"


def measure(*specs):
    return ncu.measure_loads(specs or ({"workload": {}},), H200)


def test_one_start_measures_several_loads(play):
    first = LoadMarks("cold", (Section("pass"), Section("pass"), Section("pass", "qk"), Section("pass")))
    refused = LoadMarks("cold", (), "cuDNN does not take it.")
    names = ("scale", None, "softmax", None, "pv", None, "sum")
    calls = play(writes(NAIVE, first, refused, LoadMarks("warm", tuple(Section("pass", name) for name in names))))
    qk, none, rest = measure({"a": 1}, {"b": 2}, {"c": 3})
    # The reduction before it was launched outside of a launch: 125,829,120 + 105,000,000 B.
    assert value(qk, "hbm_read_bytes") == 230_829_120
    assert value(qk, "hbm_read_bytes", "qk") == 105_000_000
    assert [m.note for m in none.measurements] == ["cuDNN does not take it."] * 3
    # 2148 + 2147 + 2209 MB, and the last reduction's.
    assert value(rest, "hbm_read_bytes") == 6_629_829_120
    assert [kernel.launch for kernel in rest.kernels] == ["scale", "softmax", "pv", "pv", "sum"]
    assert sum("--log-file" in call for call in calls()) == 1


def test_the_command_line(play, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    calls = play(writes(FLASH.replace("_op_", "_"), FLASH_MARKS, end="""
kept = ("TRITON_INTERPRET", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LC_ALL")
Path(__file__).with_name("seen").write_text(json.dumps([spec, {n: os.environ.get(n) for n in kept}, os.getcwd()]))
"""))  # fmt: skip
    measure({"workload": {"kernel": "flash"}})
    *questions, words = calls()
    assert questions == [["--version"], ["--query-metrics", "--chips", "gh100"], ["--help"]]
    folder = Path(words[-1]).parent
    assert words == [
        *("--config-file", "off", "--pipeline-boost-state", "dynamic"),
        *("--profile-from-start", "off", "--replay-mode", "kernel", "--cache-control", "none"),
        *("--clock-control", "none", "--metrics"),
        "dram__bytes_read.sum,dram__bytes_write.sum,lts__t_sectors_srcunit_tex.sum,gpu__time_duration.sum,"
        "profiler__replayer_passes",
        *("--page", "raw", "--csv", "--print-units", "base", "--log-file", str(folder / "ncu.log")),
        *(sys.executable, "-m", "profiler.ncu_target", str(folder / "spec.json")),
    ]
    assert not folder.exists()
    seen = Path(os.environ["BYTESCOPE_NCU"]).with_name("seen")
    spec, environment, where = json.loads(seen.read_text())
    assert (spec["loads"], spec["device"]) == ([{"workload": {"kernel": "flash"}}], encode(H200))
    assert spec["asker"] == os.getpid()
    assert list(environment.values()) == [None, "3", "PCI_BUS_ID", "C"]
    assert Path(where) == Path(ncu_program.__file__).parents[1]


def test_options_that_this_ncu_lacks_are_left_out(play):
    calls = play(writes(FLASH.replace("_op_", "_"), FLASH_MARKS), help="  --profile-from-start arg\n")
    measure()
    assert calls()[-1][0] == "--profile-from-start"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "log.write_text('==ERROR== ERR_NVGPUCTRPERM - The user …'); sys.exit(1)",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ("log.write_text('==WARNING== No kernels were profiled.'); answer([['cold']])", "ncu's files cannot be used"),
        (writes("==WARNING== No kernels were profiled.", FLASH_MARKS), "it profiled no kernel"),
        (writes("\0\1garbage", FLASH_MARKS), "it holds no table"),
        (writes(FLASH.replace("_op_", "_").replace('"1"\n', '"2"\n'), FLASH_MARKS), "ran a kernel '2' times"),
        (writes(FLASH.replace("_op_", "_"), NAIVE_MARKS), "it profiled 3 of 11 marks"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "signal 11, Segmentation fault"),
        ("print('no room'); sys.exit(7)", "ended with code 7: no room"),
        ("log.write_text('')", "gave no answer: it said nothing"),
        ("Path(spec['answer']).write_text('[' * 9)", "ncu's files cannot be used"),
        ("Path(spec['answer']).write_text('[' * 200000)", "gave an answer that is nested too deeply"),
        ("Path(spec['answer']).write_text(' ' * (2**20 + 1))", "answered more than 1 MiB"),
        ("answer([])", "answered for 0 of 1 Loads"),
        (writes(FLASH.replace("_op_", "_"), FLASH_MARKS, FLASH_MARKS), "answered for 2 of 1 Loads"),
    ],
)
def test_what_goes_wrong_is_the_reason(play, body, words):
    play(body)
    with pytest.raises(Unavailable) as reason:
        measure()
    assert words in str(reason.value)


def test_an_ncu_that_hangs_is_stopped_with_all_that_it_started(play, monkeypatch):
    """As ncu does, the script gives what it starts a group of its own, and here even a session."""
    monkeypatch.setattr(ncu, "START_SECONDS", 2.0)
    monkeypatch.setattr(ncu, "LOAD_SECONDS", 0.0)
    play("""
sleep = [sys.executable, "-c", "import time; time.sleep(120)"]
started = [subprocess.Popen(sleep, process_group=0), subprocess.Popen(sleep, start_new_session=True)]
Path(__file__).with_name("pids").write_text(json.dumps([os.getpid(), *(one.pid for one in started)]))
time.sleep(120)
""")
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="had not finished after 2 s and was stopped"):
        measure()
    assert time.monotonic() - begun < 20
    pids = json.loads(Path(os.environ["BYTESCOPE_NCU"]).with_name("pids").read_text())
    assert len(pids) == 3
    end = time.monotonic() + 5  # the system ends a killed process when it comes to it
    while any(map(is_running, pids)) and time.monotonic() < end:
        time.sleep(0.01)
    assert [pid for pid in pids if is_running(pid)] == []


DAEMON = """
if not os.fork():
    os.setsid()
    if not os.fork():
        Path(__file__).with_name("pid.part").write_text(str(os.getpid()))
        os.rename(Path(__file__).with_name("pid.part"), Path(__file__).with_name("pid"))
        time.sleep(120)
    os._exit(0)
while not Path(__file__).with_name("pid").exists():
    time.sleep(0.01)
os.wait()
"""


@pytest.mark.parametrize("hangs", [True, False])
def test_a_daemon_of_ncus_does_not_outlive_it(play, monkeypatch, hangs):
    """In a session of its own, its parent gone: only who adopts it finds it."""
    monkeypatch.setattr(ncu, "START_SECONDS", 3.0)
    monkeypatch.setattr(ncu, "LOAD_SECONDS", 0.0)
    play(DAEMON + ("time.sleep(120)" if hangs else writes(FLASH.replace("_op_", "_"), FLASH_MARKS)))
    if hangs:
        with pytest.raises(Unavailable, match="had not finished after 3 s"):
            measure()
    else:
        assert value(measure()[0], "hbm_read_bytes") == 100_663_296
    assert not is_running(int(Path(os.environ["BYTESCOPE_NCU"]).with_name("pid").read_text()))


def test_what_others_started_is_left_alone(play):
    """Before ncu, and in a session of its own as well."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        play(writes(FLASH.replace("_op_", "_"), FLASH_MARKS))
        measure()
        assert other.poll() is None
        other.kill()


def test_orphans_are_adopted_only_meanwhile(play):
    play(writes(FLASH.replace("_op_", "_"), FLASH_MARKS))
    measure()
    adopts = ctypes.c_int(7)
    assert ctypes.CDLL(None).prctl(37, ctypes.byref(adopts), 0, 0, 0) == 0  # PR_GET_CHILD_SUBREAPER
    assert adopts.value == 0


@pytest.mark.parametrize("target", ["log.open('wb')", "open(1, 'wb')"])
def test_an_ncu_that_writes_without_end_is_stopped(play, target):
    play(f"file = {target}\nfor _ in range(70):\n    file.write(bytes(2**20))\nfile.flush()\ntime.sleep(120)")
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="ncu wrote more than 64 MiB and was stopped"):
        measure()
    assert time.monotonic() - begun < 20


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def test_the_newest_ncu_is_taken_and_a_broken_one_passed_over(tmp_path, monkeypatch):
    monkeypatch.delenv("BYTESCOPE_NCU", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    monkeypatch.setattr(
        ncu_program, "FOLDERS", ((str(tmp_path / "local"), "cuda*/bin/ncu"), (str(tmp_path / "opt"), "*/ncu"))
    )
    with pytest.raises(NcuError, match="ncu is not on PATH"):
        ncu_program.find()
    script = "#!/bin/sh\necho 'Version {}'\n"
    for place, text in (
        ("path", "#!/bin/sh\nexit 3\n"),
        ("local/cuda-12.6/bin", script.format("2024.3.2.0 (build 35005019)")),
        ("local/cuda-13.1/bin", script.format("2025.4.0.0 (build 1)")),
        ("opt/2025.10.1", script.format("2025.10.1.0 (build 2)")),
    ):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "ncu").write_text(text)
        (tmp_path / place / "ncu").chmod(0o755)
    found = ncu_program.find()
    assert found == Ncu(str(tmp_path / "opt/2025.10.1/ncu"), (2025, 10, 1))
    assert str(found) == "ncu 2025.10.1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#!/bin/sh\necho Version 2021.3.1.0\n", "ncu 2021.3.1 is too old; Bytescope needs 2022.1 or newer"),
        ("#!/bin/sh\necho hello\n", "tells no version (hello)"),
        ("#!/bin/sh\necho broken >&2; exit 127\n", "--version ended with code 127: broken"),
        ("#!/nowhere\n", "cannot be started: No such file or directory"),
        (None, "cannot be started: No such file or directory"),
    ],
)
def test_an_ncu_that_does_not_work_is_told(tmp_path, monkeypatch, text, words):
    program = tmp_path / "ncu"
    if text is not None:
        program.write_text(text)
        program.chmod(0o755)
    monkeypatch.setenv("BYTESCOPE_NCU", str(program))
    with pytest.raises(NcuError) as refused:
        ncu_program.find()
    assert words in str(refused.value)


def test_metrics_are_named_as_this_ncu_names_them(play):
    play(query_metrics=QUESTIONS["--query-metrics"].replace("bytes_", "bytes_op_"))
    assert ncu_program.metrics_of(ncu_program.find(), None) == OP_METRICS


@pytest.mark.parametrize(
    ("text", "words"), [("gpu__time_duration  Counter", "of gh100 1 metrics, but not those"), ("what?", "(what?)")]
)
def test_an_ncu_without_the_metrics_is_told(play, text, words):
    play(query_metrics=text)
    with pytest.raises(Unavailable) as refused:
        measure()
    assert words in str(refused.value)


# The source


@pytest.fixture
def counter(monkeypatch, tmp_path) -> Counter:
    monkeypatch.setattr(counter_file, "DRIVER_PARAMS", tmp_path / "absent")
    for name in list(os.environ):
        if name.startswith(("NSYS_", "NV_NSIGHT", "CUDA_INJECTION")):
            monkeypatch.delenv(name)
    return counter_file.COUNTER


def test_the_counter_says_what_it_is(counter):
    assert counter.quantities == tuple((n, "B", "ncu") for n in ("hbm_read_bytes", "hbm_write_bytes", "l2_sm_bytes"))
    assert (counter.name, counter.order, counter.is_slow) == ("ncu", 50, True)


def test_why_not(counter, play, monkeypatch, tmp_path):
    play()
    assert counter.unavailable(H200) is None
    assert "no GPU" in counter.unavailable(replace(H200, compute_capability=None))
    rtx = replace(H200, name="RTX 5090", compute_capability=(12, 0))
    assert "ncu 2025.4.0 does not know the chip of RTX 5090" in counter.unavailable(rtx)
    assert counter.unavailable(replace(H200, compute_capability=(99, 0))) is None
    monkeypatch.setenv("NV_NSIGHT_INJECTION_PORT_BASE", "1")
    assert "another profiler" in counter.unavailable(H200)
    monkeypatch.delenv("NV_NSIGHT_INJECTION_PORT_BASE")
    (tmp_path / "params").write_text("RmProfilingAdminOnly: 1\n")
    monkeypatch.setattr(counter_file, "DRIVER_PARAMS", tmp_path / "params")
    monkeypatch.setattr(counter_file, "PROCESS_STATUS", tmp_path / "absent")
    assert "--cap-add SYS_ADMIN" in counter.unavailable(H200)
    monkeypatch.setattr(counter_file, "DRIVER_PARAMS", tmp_path / "absent")
    monkeypatch.setenv("BYTESCOPE_NCU", str(tmp_path / "nowhere"))
    assert "Install Nsight Compute" in counter.unavailable(H200)


def test_the_source_measures_the_load_it_is_given(counter, play):
    play(writes(NAIVE, NAIVE_MARKS, end="assert spec['loads'] == [{'workload': 7}]"))
    load = type("Load", (), {"spec": {"workload": 7}, "device": H200})()
    assert value(counter.measure(load), "hbm_read_bytes") == 6_609_000_000


# The program that ncu starts


class FakeLoad:
    """Notes what is done, in order; one launch that makes `kernels`."""

    def __init__(self, events: list[str], l2: str = "cold", drain: bool = True, error: Exception | None = None) -> None:
        self.events, self.l2, self.drain, self.error = events, l2, drain, error

    def launch(self, hook=nullcontext):
        if self.error is not None:
            raise self.error
        with hook("flash"):
            self.events.append("launch")

    def synchronize(self):
        self.events.append("wait")

    def prepare_l2(self):
        self.events.append("prepare")

    def evict_l2(self):
        self.events.append("evict")


@pytest.fixture
def events(monkeypatch) -> list[str]:
    noted: list[str] = []
    marker = {(1,): lambda: noted.append("mark")}
    monkeypatch.setattr(ncu_target, "bytescope_mark", marker)
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: noted.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: noted.append("stop"))
    return noted


def test_ncu_sees_a_drain_then_the_pass_and_its_drain_and_nothing_else(events, monkeypatch):
    monkeypatch.setattr(ncu_target, "build", lambda spec, device: FakeLoad(events))
    marks = ncu_target.profile({}, H200)
    assert marks == LoadMarks(
        "cold",
        (Section("drain"), Section("pass"), Section("pass", "flash"), Section("pass"), Section("drained")),
    )
    assert " ".join(events) == (
        "launch launch mark evict prepare wait start mark evict wait stop "
        "prepare wait start mark mark launch mark mark evict wait stop"
    )


def test_without_the_drain_there_is_only_the_pass(events, monkeypatch):
    monkeypatch.setattr(ncu_target, "build", lambda spec, device: FakeLoad(events, l2="warm", drain=False))
    marks = ncu_target.profile({}, H200)
    assert marks == LoadMarks("warm", (Section("pass"), Section("pass", "flash"), Section("pass")))
    assert " ".join(events) == "launch launch mark prepare wait start mark mark launch mark wait stop"


@pytest.mark.parametrize(
    ("error", "words"),
    [(Refused("cuDNN does not take it."), "cuDNN does not take it."), (torch.OutOfMemoryError("x"), "too little free")],
)
def test_a_load_that_cannot_run_says_why(events, monkeypatch, error, words):
    monkeypatch.setattr(ncu_target, "build", lambda spec, device: FakeLoad(events, error=error))
    marks = ncu_target.profile({}, H200)
    assert words in marks.reason and marks.sections == ()


def test_it_answers_for_each_load_of_the_spec(events, monkeypatch, tmp_path):
    spec = tmp_path / "spec.json"
    words = {
        "loads": [1, 2],
        "device": encode(H200),
        "answer": str(tmp_path / "answer"),
        "asker": os.getpid(),
        "own": [[], ""],
    }
    spec.write_text(json.dumps(words))
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: events.append(device))
    monkeypatch.setattr(ncu_target, "profile", lambda load, device: LoadMarks("cold", (), f"{load} on {device.name}."))
    ncu_target.main(str(spec))
    assert events == ["cuda:0"]
    told = json.loads((tmp_path / "answer").read_text())
    assert [one["reason"] for one in told] == ["1 on NVIDIA H200.", "2 on NVIDIA H200."]


def test_it_ends_when_the_worker_that_asked_is_gone():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    code = f"from profiler.ncu_target import _end_with; _end_with({ended.pid})"
    root = Path(ncu_program.__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, timeout=60, check=False).returncode == 1


def test_the_mark_is_a_kernel_of_the_name_that_is_looked_for():
    function = ncu_target.bytescope_mark.fn
    made = triton.compile(ASTSource(JITFunction(function), {}, {}), target=GPUTarget("cuda", 90, 32))
    assert (made.metadata.name, made.metadata.shared) == (MARK, 0)


def test_the_real_program_starts_and_what_ends_it_is_the_reason(play):
    """Without a GPU torch refuses; with one, the spec is no Load's."""
    play("""
done = subprocess.run(words[words.index(sys.executable):])
log.write_text(f"==PROF== Connected\\n==ERROR== The application returned an error code ({done.returncode}).\\n")
sys.exit(done.returncode)
""")
    with pytest.raises(Unavailable) as reason:
        measure({"nothing": 1})
    assert re.match(r"the program that ncu started failed: \S+(Error|NotARun): ", str(reason.value))


@pytest.mark.gpu
@pytest.mark.parametrize(("kernel", "drain"), [("flash", True), ("flash", False), ("naive", True)])
def test_ncu_agrees_with_the_range_profiler(kernel, drain):
    """How many SMs' reads L2 merges changes from pass to pass: L2↔SM of flash by a tenth.

    Without the drain the writes may be as far apart as L2 can hold.
    """
    from profiler import child
    from profiler.bench import Bench
    from profiler.counters import cupti_range

    device = child.describe("cuda:0")
    for source in (cupti_range.COUNTER, counter_file.COUNTER):
        if reason := source.unavailable(device):
            pytest.skip(reason)
    workload = Workload(kernel, PROBLEM, TILE if kernel == "flash" else None, "cuda:0", l2="cold", drain=drain)
    with torch.inference_mode():
        bench = Bench(workload, device)
        bench.launch()
        ranges = {(m.name, m.launch): m.value for m in cupti_range.measure(bench).measurements}
        found = counter_file.measure(bench)
    assert value(found, "hbm_read_bytes") == pytest.approx(ranges["hbm_read_bytes", None], rel=0.01)
    merged = 0.2 if kernel == "flash" else 0.01
    assert value(found, "l2_sm_bytes") == pytest.approx(ranges["l2_sm_bytes", None], rel=merged)
    if drain:
        assert value(found, "hbm_write_bytes") == pytest.approx(ranges["hbm_write_bytes", None], rel=0.02, abs=4e6)
    named = [kernel.launch for kernel in found.kernels]
    assert tuple(dict.fromkeys(named)) == bench.launch_names
    if kernel == "flash":
        assert found.kernels == (LaunchedKernel("flash", "flash_forward"),)
