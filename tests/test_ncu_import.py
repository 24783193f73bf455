"""Nsight Compute's raw page as a Run: units, digits and locales; kernels, passes and launches; what is refused."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.compare_sheet import compare_sheet
from app.peak_check import possible_hbm
from app.picture import Table
from app.style import LIGHT
from app.views import hbm_traffic, memory, overview, roofline, tile_schedule
from kernels.problem import AttentionProblem, Refused
from profiler.codec import NotARun
from profiler.compare import compare
from profiler.ncu_import import Asked, imported
from profiler.ncu_page import MAX_BYTES, read
from profiler.run import Run
from profiler.run_document import from_json, to_json
from profiler.store import list_runs
from tests.command_line import Answer, Command, answer_to
from tests.fake_runs import PROBLEM, flash_run

DATA = Path(__file__).parent / "data"
READ, WRITE, SECTORS, TIME = (
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_sectors_srcunit_tex.sum",
    "gpu__time_duration.sum",
)
METRICS = (READ, WRITE, SECTORS, TIME)
BASE = ("byte", "byte", "sector", "ns")
ASKED = Asked(PROBLEM)


def page(
    *kernels: tuple[str, Sequence[str]], metrics: Sequence[str] = METRICS, units: Sequence[str] = BASE, more: str = ""
) -> bytes:
    """What ncu writes of kernels, each a name and the values of `metrics`."""
    rows = [["ID", "Process ID", "Kernel Name", "Device", "CC", *metrics], ["", "", "", "", "", *units]]
    rows += [[str(i), "7", name, "0", "9.0", *values] for i, (name, values) in enumerate(kernels)]
    lines = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
    return f"{more}==PROF== Connected to process 7\n{chr(10).join(lines)}\n".encode()


ONE = ("flash_fwd", ("100,663,296", "33554432", "85312512", "1280000"))


def values(run: Run, launch: str | None = None) -> dict[str, float | None]:
    return {m.name: m.value for m in run.measurements if m.launch == launch and m.source == "ncu"}


def test_one_kernel_in_base_units() -> None:
    run = imported(read(page(ONE)), ASKED)
    assert run.workload.kernel == "ncu:flash_fwd" and run.workload.problem == PROBLEM
    # 85,312,512 sectors of 32 B, 1,280,000 ns.
    assert values(run) == {
        "hbm_read_bytes": 100_663_296.0,
        "hbm_write_bytes": 33_554_432.0,
        "l2_sm_bytes": 2_730_000_384.0,
        "gpu_time_seconds": pytest.approx(1.28e-3),
    }
    # 4 tensors of 16 · 8192 · 128 · 2 B.
    assert run.value("compulsory_bytes") == 134_217_728
    assert run.value("requested_read_bytes") is None
    assert [(one.launch, one.kernel) for one in run.kernels] == [("flash_fwd", "flash_fwd")]
    assert (run.device.device, run.device.compute_capability) == ("cuda:0", (9, 0))
    assert from_json(to_json([run])) == (run,)


def test_units_that_ncu_scales_are_told_with_their_digits() -> None:
    scaled = ("k", ("6.61", "104.33", "1,234.5", "6.23"))
    run = imported(read(page(scaled, units=("Gbyte", "Mbyte", "Ksector", "msecond"))), ASKED)
    assert values(run) == {
        "hbm_read_bytes": 6_610_000_000.0,
        "hbm_write_bytes": 104_330_000.0,
        "l2_sm_bytes": 39_504_000.0,  # 1,234,500 · 32
        "gpu_time_seconds": pytest.approx(6.23e-3),
    }
    found = run.find("hbm_read_bytes")
    assert found is not None and "printed in Gbyte, so to a few digits" in found.note


@pytest.mark.parametrize(
    ("unit", "seconds"), [("ns", 1e-9), ("us", 1e-6), ("usecond", 1e-6), ("ms", 1e-3), ("second", 1.0), ("s", 1.0)]
)
def test_every_spelling_of_time(unit: str, seconds: float) -> None:
    run = imported(read(page(("k", ("1", "1", "1", "12")), units=(*BASE[:3], unit))), ASKED)
    assert run.value("gpu_time_seconds") == pytest.approx(12 * seconds)


def test_the_names_of_newer_chips() -> None:
    metrics = ("dram__bytes_op_read.sum", "dram__bytes_op_write.sum", SECTORS, TIME)
    assert values(imported(read(page(ONE, metrics=metrics)), ASKED))["hbm_read_bytes"] == 100_663_296


def test_several_kernels_are_launches_and_add_up() -> None:
    file = page(
        ("void ns::gemm<float, 4>(T *)", ("10", "20", "1", "100")),
        ("softmax", ("1", "2", "1", "50")),
        ("void ns::gemm<float, 4>(T *)", ("30", "40", "1", "200")),
    )
    run = imported(read(file), ASKED)
    assert run.workload.kernel == "ncu:gemm"  # the longest
    assert [m.launch for m in run.launches("hbm_read_bytes")] == ["gemm 1", "softmax", "gemm 2"]
    assert run.value("hbm_read_bytes") == 41 and run.value("hbm_write_bytes") == 62
    assert run.value("gpu_time_seconds") == pytest.approx(350e-9)
    assert run.value("hbm_write_bytes", "gemm 2") == 40
    assert run.kernels[0].kernel == "void ns::gemm<float, 4>(T *)"


def test_passes_give_a_median_and_a_spread() -> None:
    file = page(*(("a", (read_bytes, "8", "1", "10")) for read_bytes in ("100", "110", "120", "130", "140")))
    run = imported(read(file), Asked(PROBLEM, passes=5))
    found = run.find("hbm_read_bytes")
    # The 20th and 80th percentile of five values are the second and the fourth.
    assert found is not None and (found.value, found.spread) == (120.0, (108.0, 132.0))
    assert run.workload.repeats == 5 and "median of 5 passes" in found.note


def test_only_some_kernels_are_taken() -> None:
    setup = ("at::native::distribution_elementwise", ("999", "999", "9", "999"))
    run = imported(read(page(setup, ONE)), Asked(PROBLEM, name="mine", only=("flash",)))
    assert run.workload.kernel == "ncu:mine" and run.value("hbm_read_bytes") == 100_663_296


def test_replays_and_the_gpu_are_told_where_the_page_does() -> None:
    more = ("profiler__replayer_passes", "device__attribute_display_name", "device__attribute_multiprocessor_count")
    kernel = ("k", (*ONE[1], "8", "NVIDIA H200", "132"))
    run = imported(read(page(kernel, metrics=(*METRICS, *more), units=(*BASE, "", "", ""))), ASKED)
    assert (run.device.name, run.device.sm_count) == ("NVIDIA H200", 132)
    found = run.find("hbm_read_bytes")
    assert found is not None and "each kernel replayed 8 times" in found.note
    assert imported(read(page(ONE)), ASKED).device.name == "GPU of compute capability 9.0"
    assert imported(read(page(ONE)), Asked(PROBLEM, device_name="H200")).device.name == "H200"


def on_gpu(name: str, *told: str) -> bytes:
    """A kernel on a GPU of that name, with its number of SMs where that is told."""
    more = ("device__attribute_display_name", "device__attribute_multiprocessor_count")[: 1 + len(told)]
    return page(("k", (*ONE[1], name, *told)), metrics=(*METRICS, *more), units=(*BASE, *("" for _ in more)))


def test_the_table_of_gpus_tells_what_the_page_does_not() -> None:
    device = imported(read(on_gpu("NVIDIA H100 80GB HBM3")), ASKED).device
    assert (device.peak_hbm_bytes_per_second, device.peak_hbm_source) == (3350e9, "datasheet")
    assert (device.peak_flops_per_second, device.peak_flops_source) == (989e12, "datasheet, dense FP16 / BF16")
    assert (device.sm_count, device.l2_bytes, device.warps_per_sm) == (132, 50 * 2**20, 64)
    assert device.shared_memory_per_sm == 228 * 1024 and device.memory_bytes is None


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (on_gpu("NVIDIA H100 PCIe"), "NVIDIA H100 PCIe is not in the table of GPUs"),
        (on_gpu("NVIDIA H200", "16"), "NVIDIA H200 has other SMs than H200 SXM in the table of GPUs"),
        (on_gpu("A100-SXM4-80GB"), "A100-SXM4-80GB has other SMs than A100 SXM 80 GB in the table of GPUs"),
    ],
)
def test_another_product_lends_no_peak(file: bytes, why: str) -> None:
    device = imported(read(file), ASKED).device
    assert device.peak_hbm_bytes_per_second is None and device.peak_flops_per_second is None
    assert (device.peak_hbm_source, device.peak_flops_source) == (why, why)
    assert from_json(to_json([imported(read(file), ASKED)]))[0].device == device


def test_more_bytes_than_the_peak_moves_are_flagged() -> None:
    run = imported(
        read(
            page(("k", ("1e16", "1", "1", "1300000"))),
        ),
        Asked(PROBLEM, device_name="NVIDIA H200"),
    )
    assert "above the peak of 4.80 TB/s" in possible_hbm(run).reason
    assert "above the peak of 4.80 TB/s" in hbm_traffic.sheet((run,), LIGHT).figures[-1].reason
    shown = compare_sheet(compare(flash_run(), run), LIGHT)
    assert shown.figures[0].value == "–" and "above the peak of 4.80 TB/s" in shown.figures[0].reason


def test_pages_ask_nobody_to_measure_an_import_again() -> None:
    run = imported(read(on_gpu("NVIDIA H100 80GB HBM3")), ASKED)
    for view in (hbm_traffic, memory, overview, roofline, tile_schedule):
        words = str(replace(view.sheet((run,), LIGHT), items=())) + "".join(
            str(item) for item in view.sheet((run,), LIGHT).items if isinstance(item, Table)
        )
        for told in ("it again", "them again", "--detail", "More settings", "names no schedule"):
            assert told not in words, (view.TITLE, told)
    assert "an ncu file holds no energy" in str(roofline.sheet((run,), LIGHT).items)


def test_what_is_not_in_the_file_has_a_reason() -> None:
    run = imported(read(page(("k", ("1", "2")), metrics=METRICS[:2], units=BASE[:2])), ASKED)
    for name in ("l2_sm_bytes", "gpu_time_seconds"):
        found = run.find(name, source="ncu")
        assert found is not None and found.value is None and "the ncu file has no column" in found.note


def test_the_program_may_print_around_the_table_and_lines_may_end_anyhow() -> None:
    file = page(ONE, more='loss 1,2\n"quoted"\n') + b"done\n==PROF== Disconnected\n"
    assert imported(read(file), ASKED).value("hbm_read_bytes") == 100_663_296
    assert imported(read(file.replace(b"\n", b"\r\n")), ASKED).value("hbm_read_bytes") == 100_663_296
    assert imported(read(b"\xef\xbb\xbf" + page(ONE).partition(b"\n")[2]), ASKED).value("hbm_read_bytes") == 100_663_296
    bare = page(("flash_fwd", ("1", "2", "3", "4"))).replace(b'"', b"")
    assert imported(read(bare), ASKED).value("hbm_read_bytes") == 1


def test_names_of_kernels_stay_text() -> None:
    run = imported(read(page(('k<img src=x onerror="alert(1)">', ONE[1]))), ASKED)
    assert run.workload.kernel == "ncu:k"
    assert run.kernels[0].kernel == 'k<img src=x onerror="alert(1)">'
    assert imported(read(page(("核", ONE[1]))), ASKED).workload.kernel == "ncu:kernel"
    for unnamed in ("void <unnamed>::softmax<c10::Half, 9>(T *)", "void (anonymous namespace)::softmax<9>(int)"):
        assert imported(read(page((unnamed, ONE[1]))), ASKED).workload.kernel == "ncu:softmax"
    assert imported(read(page(("256x128_kernel", ONE[1]))), ASKED).workload.kernel == "ncu:kernel_256x128_kernel"


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (b"", "holds no table"),
        (b"==PROF== Connected\n==WARNING== No kernels were profiled.\n", "ncu profiled no kernel"),
        (b"NVR\0\x01\x02", "ncu --import FILE --csv --page raw"),
        (b"\x7fELF\0\0\0", "This is no CSV"),
        (b'"ID","Kernel Name"\n"","\xff"\n', "not UTF-8"),
        (b'{"format_version": 1, "runs": []}', "holds no table"),
        (b"a,b\n1,2\n", "holds no table"),
        (page(), "holds no kernel"),
        (page(ONE).replace(b'"","","","","","byte"', b'"0","","","","","byte"'), "holds no kernel"),
        (page(("k", ("1", "2")), metrics=(SECTORS, TIME), units=BASE[2:]), "no bytes of HBM"),
        (page(("k", ("1",)), metrics=(READ,), units=("byte",)), "dram__bytes_write.sum is missing"),
        (page(("k", ("1", "2", "3")), metrics=(READ, READ, WRITE), units=BASE[:3]), "twice"),
        (page(("k", ("x", "1")), metrics=("Metric Name", "Metric Value"), units=("", "")), "details page"),
        (page(ONE)[:-20] + b"\n", "torn"),
        (page(ONE).replace(b'"1280000"', b'"1280000'), "torn"),
        (page(ONE, ONE) + page(ONE), "several tables"),
        (page(ONE).replace(b"Kernel Name", b"Function"), "no columns 'Kernel Name'"),
        (b" " * (MAX_BYTES + 1), "stays under 64 MiB"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_what_is_no_raw_page_is_refused(file: bytes, words: str) -> None:
    with pytest.raises(NotARun, match=words):
        read(file)


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (
            "100.663",
            "byte",
            "no number of the table tells which; write it anew with ncu --print-units base, or with LC_",
        ),
        ("6,610", "Gbyte", "is '6,610', which is 6.61 in one country and 6610 in another"),
        ("1,2,3", "byte", "no number"),
        ("1 234,5", "byte", "no number"),
        ("", "byte", "no number"),
        ("nan", "byte", "no number"),
        ("-1", "byte", "no number"),
        ("1e30", "byte", "no GPU gives it"),
        ("1", "Kibyte", "not known for it"),
        ("1", "%", "not known for it"),
        ("1", "", "not known for it"),
    ],
)
def test_numbers_that_could_be_read_in_two_ways_are_refused(value: str, unit: str, words: str) -> None:
    with pytest.raises(NotARun, match=words):
        imported(read(page(("k", (value, "1", "1", "1")), units=(unit, *BASE[1:]))), ASKED)


@pytest.mark.parametrize("value", ["1e400", "9" * 400])
def test_a_number_beyond_all_numbers_is_refused(value: str) -> None:
    with pytest.raises(NotARun, match="no GPU gives it"):
        imported(read(page(("k", (value, "1", "1", "1")))), ASKED)


@pytest.mark.parametrize("between", ["==PROF== Disconnected", "hello", ""])
def test_kernels_after_the_end_of_the_table_are_not_left_out(between: str) -> None:
    first, second = page(ONE).decode(), page(ONE).decode().splitlines()[-1]
    with pytest.raises(NotARun, match="torn: rows follow a line that is none of them"):
        read(f"{first}{between}\n{second}\n".encode())


@pytest.mark.parametrize(
    ("cells", "units", "read_bytes", "write_bytes", "time"),
    [
        # One number with groups and decimals, in a metric that is not asked for.
        (("14.200", "1.311", "1,310.500"), ("Mbyte", "Kbyte", "usecond"), 14_200_000, 1311, 1310.5e-6),
        (("14.200", "1.311", "1.310,500"), ("Kbyte", "Kbyte", "usecond"), 14_200_000, 1_311_000, 1310.5e-6),
        # Several groups.
        (("100,663,296", "1,311", "1.311"), ("byte", "byte", "usecond"), 100_663_296, 1311, 1.311e-6),
        (("100.663.296", "1.311", "1,311"), ("byte", "byte", "usecond"), 100_663_296, 1311, 1.311e-6),
        # One, two and more than three decimals; more than three digits, or 0, before them.
        (("14.200", "1.5", "3"), ("Mbyte", "byte", "ns"), 14_200_000, 2, 3e-9),
        (("14,200", "1.311", "6,61"), ("Mbyte", "byte", "us"), 14_200_000, 1311, 6.61e-6),
        (("14.200", "1", "6.2345"), ("Mbyte", "byte", "us"), 14_200_000, 1, 6.2345e-6),
        (("14.200", "1", "1310.500"), ("Mbyte", "byte", "us"), 14_200_000, 1, 1310.5e-6),
        (("14,200", "1", "0,311"), ("Mbyte", "byte", "us"), 14_200_000, 1, 0.311e-6),
        # Bytes are whole.
        (("100,352", "1", "3"), ("byte", "byte", "ns"), 100_352, 1, 3e-9),
    ],
)
def test_one_number_tells_the_locale_of_all(
    cells: tuple[str, ...], units: tuple[str, ...], read_bytes: float, write_bytes: float, time: float
) -> None:
    run = imported(read(page(("k", cells), metrics=(READ, WRITE, TIME), units=units)), ASKED)
    assert (run.value("hbm_read_bytes"), run.value("hbm_write_bytes")) == (read_bytes, write_bytes)
    assert run.value("gpu_time_seconds") == pytest.approx(time)


@pytest.mark.parametrize(("told", "gigabytes"), [("12.34", 6.61), ("12,34", 6610), ("7", None), ("n/a", None)])
def test_a_metric_that_is_not_asked_for_tells_the_locale_too(told: str, gigabytes: float | None) -> None:
    metrics, units = (READ, WRITE, "sm__throughput.avg.pct_of_peak_sustained_elapsed"), ("Gbyte", "byte", "%")
    file = read(page(("k", ("6.610", "1", "5")), ("k", ("1", "1", told)), metrics=metrics, units=units))
    if gigabytes is None:
        with pytest.raises(NotARun, match="no number of the table tells which"):
            imported(file, ASKED)
    else:
        assert imported(file, ASKED).value("hbm_read_bytes", "k 1") == gigabytes * 1e9


def test_numbers_of_two_countries_are_refused() -> None:
    with pytest.raises(NotARun, match="of two countries"):
        imported(read(page(("k", ("1.5", "1,5", "1", "1")))), ASKED)


def test_facts_of_the_gpu_are_read_in_the_locale_of_the_table() -> None:
    more = ("device__attribute_l2_cache_size", "device__attribute_multiprocessor_count")
    for size in ("52.428.800", "52,428,800"):
        kernel = ("k", (*ONE[1][1:2] * 4, size, "132"))
        device = imported(
            read(
                page(kernel, metrics=(*METRICS, *more), units=(*BASE, "byte", "")),
            ),
            ASKED,
        ).device
        assert (device.l2_bytes, device.sm_count) == (50 * 2**20, 132)


@pytest.mark.parametrize("cell", ["n/a", "N/A", "(!) n/a"])
def test_a_number_that_ncu_had_not_is_missing_with_its_reason(cell: str) -> None:
    run = imported(read(page(("a", ("10", "20", "1", "5")), ("b", ("30", "40", cell, "6")))), ASKED)
    whole, first, second = (run.find("l2_sm_bytes", launch, "ncu") for launch in (None, "a", "b"))
    assert first is not None and first.value == 32
    for part in (whole, second):
        assert part is not None and part.value is None
        assert part.note == f"ncu had no {SECTORS} of kernel 1: n/a in the file"
    assert run.value("hbm_read_bytes") == 40
    assert from_json(to_json([run])) == (run,)


def test_no_kernel_takes_no_time() -> None:
    with pytest.raises(NotARun, match="no GPU gives it"):
        imported(read(page(("k", ("1", "1", "1", "0")))), ASKED)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Asked(PROBLEM, only=("none",)), "No kernel's name holds none; the file has 'b', 'a'"),
        (Asked(PROBLEM, passes=2), "3 kernels are not 2 equal passes"),
        (Asked(PROBLEM, passes=3), "not the same in each of 3 passes"),
        (Asked(PROBLEM, l2="hot"), "choose cold or warm"),
    ],
)
def test_what_does_not_fit_the_file_is_refused(asked: Asked, words: str) -> None:
    kernel = ("1", "1", "1", "1")
    with pytest.raises(Refused, match=words):
        imported(read(page(("a", kernel), ("b", kernel), ("b", kernel))), asked)


@given(st.data())
def test_a_file_that_somebody_changed_is_read_or_refused(data: st.DataObject) -> None:
    file = page(ONE, ("softmax", ("1.5", "2", "3", "4")))
    begin = data.draw(st.integers(0, len(file)))
    changed = file[:begin] + data.draw(st.binary(max_size=12)) + file[begin + data.draw(st.integers(0, 12)) :]
    try:
        run = imported(read(changed), ASKED)
    except (NotARun, Refused):
        return
    assert from_json(to_json([run])) == (run,)


def test_more_kernels_than_a_run_holds_are_refused() -> None:
    with pytest.raises(Refused, match="A pass has 257 kernels, and a Run holds up to 256"):
        imported(read(page(*[("k", ("1", "1", "1", "1"))] * 257)), ASKED)
    run = imported(read(page(*[("k", ("1", "1", "1", "1"))] * 255)), ASKED)
    assert from_json(to_json([run])) == (run,)


def test_kernels_that_are_together_more_than_a_run_can_be_are_refused() -> None:
    """Found by fuzzing: it was imported, and then refused as a bug of ours when it was to be saved."""
    two_thirds_of_a_day = ("1", "1", "1", "57,600,000,000,000")
    assert imported(read(page(("a", two_thirds_of_a_day))), ASKED).value("gpu_time_seconds") == 57_600
    with pytest.raises(NotARun, match=r"^run\.gpu_time_seconds is 115200\.0 s, which no clock gives\.$"):
        imported(read(page(("a", two_thirds_of_a_day), ("b", two_thirds_of_a_day))), ASKED)


def test_several_gpus_are_refused() -> None:
    file = page(ONE, ONE).replace(b'"1","7","flash_fwd","0"', b'"1","7","flash_fwd","1"')
    with pytest.raises(Refused, match="several GPUs"):
        imported(read(file), ASKED)


def test_it_can_be_compared_with_ours() -> None:
    found = compare(flash_run(), imported(read(page(ONE)), ASKED))
    row = found.find("hbm_read_bytes")
    assert row is not None and row.ratio == pytest.approx(100_663_296 / 0.101e9)
    assert row.reason == "by cupti-range against ncu"
    assert any(one.what == "imported from" for one in found.differences)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`python -m profiler import words`."""
    return lambda *words: answer_to(["import", *words], monkeypatch, capsys)


SHAPE = "--heads 16 --seq-len 8192 --head-dim 128 --dtype bfloat16"


def test_import_saves_a_run_of_what_bytescope_itself_asks_ncu_for(command: Command, runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    answer: Answer = command(
        str(DATA / "ncu_flash.csv"), *SHAPE.split(), "--only", "flash_forward", "--out", str(out), "--causal"
    )
    assert answer.code == 0, answer.err
    (run,) = list_runs(runs).runs
    assert from_json(out.read_text()) == (run,)
    assert run.workload.problem == AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16", causal=True)
    assert run.value("l2_sm_bytes") == 85_312_512 * 32
    assert "100.7 MB" in answer.out and "1 kernel of a pass" in answer.out


def test_import_needs_the_problem(command: Command, runs: Path) -> None:
    answer = command(str(DATA / "ncu_flash.csv"), "--heads", "16")
    assert answer.code == 2 and "does not tell which problem was run" in answer.err
    assert list_runs(runs).runs == ()


def test_import_names_the_file_that_it_refuses(command: Command, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text(json.dumps({"a": 1}))
    answer = command(str(other), *SHAPE.split())
    assert answer.code == 2
    assert answer.err.startswith(f"{other}: This is not what ncu --csv --page raw writes")
    answer = command(str(tmp_path / "none.csv"), *SHAPE.split())
    assert (answer.code, answer.err) == (2, f"{tmp_path / 'none.csv'} is not a file.\n")
