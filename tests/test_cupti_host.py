"""CUPTI's host half with the real library that Triton brings; no GPU and no driver needed."""

import ctypes
import pickle
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from profiler.cupti import chip, structs
from profiler.cupti.driver import current_context
from profiler.cupti.host import SECTOR_BYTES, MetricsHost, TrafficMetrics, supported_chips, traffic_metrics
from profiler.cupti.library import EXPLANATIONS, Cupti, CuptiError, explain, find, load
from profiler.cupti.permission import restricted, under_profiler
from profiler.cupti.ranges import RangeProfiler

ROOT = Path(__file__).parents[1]
TRITON = Path(find_spec("triton").submodule_search_locations[0]) / "backends/nvidia"
HEADERS = {"triton": TRITON / "include", "toolkit": Path("/usr/local/cuda/include")}

# GA100 A100, GA102 RTX 30, AD102 L40 and RTX 40, GH100 H100 and H200, GB100 B200, GB202 RTX 5090.
CHIPS = ("GA100", "GA102", "AD102", "GH100", "GB100", "GB202")
KNOWN = TrafficMetrics(
    read="dram__bytes_read.sum",
    write="dram__bytes_write.sum",
    sectors="lts__t_sectors_srcunit_tex.sum",
    time="gpu__time_duration.sum",
    to_sm="l1tex__m_xbar2l1tex_read_bytes.sum",
    sm_reads="lts__t_sectors_srcunit_tex_op_read.sum",
)


@pytest.fixture(scope="module")
def cupti() -> Cupti:
    try:
        return load(next(path for path in find() if TRITON in path.parents))
    except CuptiError:
        # An earlier test of this process has loaded another one; test_every_library has Triton's all the same.
        return load()


def names(cupti: Cupti, chip: str) -> frozenset[str]:
    with MetricsHost(cupti, chip) as host:
        return host.base_metrics


def passes(cupti: Cupti, chip: str, metrics: tuple[str, ...]) -> int:
    with MetricsHost(cupti, chip, metrics) as host:
        return host.passes


def test_the_library_says_where_it_lies_and_its_version(cupti):
    assert cupti.path.is_file()
    assert cupti.version >= 26
    assert load() is cupti


def test_a_process_keeps_its_first_library(cupti, tmp_path):
    with pytest.raises(CuptiError, match=r"is in use; load .* in a fresh process"):
        load(tmp_path / "libcupti.so.13")


def test_find_prefers_torch_then_toolkits_then_triton():
    found = find()
    assert any(TRITON in path.parents for path in found)
    assert len({path.resolve() for path in found}) == len(found)
    rank = [("site-packages/nvidia/" in str(path), str(path).startswith("/usr/local/cuda")) for path in found]
    assert rank == sorted(rank, reverse=True)


def test_finding_and_loading_imports_neither_torch_nor_triton():
    code = (
        "import sys; from profiler.cupti import permission, ranges; permission.why_not(); "
        "sys.exit(bool({'torch', 'triton', 'pynvml', 'numpy'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=True)


@pytest.mark.parametrize("path", find(), ids=str)
def test_every_library_counts_the_traffic_of_every_chip_in_one_pass(path):
    # A process of its own for each, since one process takes one library.
    code = f"""
from pathlib import Path
from profiler.cupti.host import MetricsHost, supported_chips, traffic_metrics
from profiler.cupti.library import load
cupti = load(Path({str(path)!r}))
for chip in {CHIPS}:
    with MetricsHost(cupti, chip) as host:
        traffic = traffic_metrics(host.base_metrics)
    with MetricsHost(cupti, chip, traffic.names) as host:
        print(chip, traffic.read, host.passes)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, timeout=120, capture_output=True, text=True, check=True
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [chip for chip, _, _ in rows] == list(CHIPS)
    assert {count for _, _, count in rows} == {"1"}


@pytest.mark.parametrize("chip", CHIPS)
def test_traffic_metrics_are_the_chips_own(cupti, chip):
    known = names(cupti, chip)
    picked = traffic_metrics(known)
    assert {name.removesuffix(".sum") for name in picked.names} <= known
    if chip in ("GA100", "GH100", "GB100"):
        assert picked == KNOWN


def test_traffic_metrics_take_the_newer_name_where_the_older_is_gone():
    newer = {
        "dram__bytes_op_read",
        "dram__bytes_op_write",
        "lts__t_sectors_srcunit_tex",
        "gpu__time_duration",
    }
    assert traffic_metrics(newer).read == "dram__bytes_op_read.sum"
    assert traffic_metrics(newer).write == "dram__bytes_op_write.sum"


def test_a_chip_without_hbm_counters_is_refused_by_name(cupti):
    # GB10B is the integrated GPU of DGX Spark and Jetson Thor: its memory is the processor's.
    with pytest.raises(CuptiError, match="no metric dram__bytes_read or dram__bytes_op_read"):
        traffic_metrics(names(cupti, "GB10B"))


@pytest.mark.parametrize("chip", CHIPS)
def test_the_traffic_metrics_fit_in_one_pass(cupti, chip):
    found = traffic_metrics(names(cupti, chip))
    assert None not in (found.to_sm, found.sm_reads)
    assert passes(cupti, chip, found.names) == 1


def test_volta_leaves_out_what_does_not_fit(cupti, monkeypatch):
    found = traffic_metrics(names(cupti, "GV100"))
    assert passes(cupti, "GV100", found.names) > 1
    monkeypatch.setattr(chip, "load", lambda: cupti)
    monkeypatch.setattr(chip, "chip_metrics", lambda: ("GV100", names(cupti, "GV100")))
    chip.chip_traffic.cache_clear()
    try:
        fewer = chip.chip_traffic()
    finally:
        chip.chip_traffic.cache_clear()
    assert fewer == replace(found, to_sm=None, sm_reads=None)
    assert passes(cupti, "GV100", fewer.names) == 1


@pytest.mark.parametrize("chip", ["GA100", "GH100", "GB100"])
def test_the_hit_rate_of_l2_costs_a_second_pass(cupti, chip):
    assert passes(cupti, chip, (*KNOWN.names, "lts__t_sector_hit_rate.pct")) >= 2


def test_each_set_of_metrics_starts_afresh(cupti):
    two = (*KNOWN.names, "lts__t_sector_hit_rate.pct")
    assert [passes(cupti, "GH100", metrics) for metrics in (two, KNOWN.names, two)] == [2, 1, 2]


def test_unknown_chips_and_metrics_are_refused_with_a_sentence(cupti):
    assert "GH100" in supported_chips(cupti)
    with pytest.raises(CuptiError, match=r"does not know the chip GX999\. Install a newer"):
        MetricsHost(cupti, "GX999")
    with pytest.raises(CuptiError, match=r"GH100 has no metric dram__bytes_lost\.sum"):
        MetricsHost(cupti, "GH100", ("dram__bytes_read.sum", "dram__bytes_lost.sum"))


def test_values_become_bytes_and_seconds():
    values = {KNOWN.read: 1e9, KNOWN.write: 2e9, KNOWN.sectors: 10.0, KNOWN.time: 1_500_000.0}
    values |= {KNOWN.to_sm: 256.0, KNOWN.sm_reads: 7.0}
    assert SECTOR_BYTES == 32
    assert KNOWN.traffic(values) == {
        "hbm_read_bytes": 1e9,
        "hbm_write_bytes": 2e9,
        "l2_sm_bytes": 320.0,
        "gpu_time_seconds": 0.0015,
        "l2_to_sm_bytes": 256.0,
        "l2_sm_read_bytes": 224.0,
    }
    fewer = replace(KNOWN, to_sm=None, sm_reads=None)
    assert fewer.names == KNOWN.names[:4] and set(fewer.traffic(values)) == set(KNOWN.traffic(values)) - {
        "l2_to_sm_bytes",
        "l2_sm_read_bytes",
    }


def test_a_failed_call_becomes_a_sentence_with_the_librarys_name_for_it(cupti):
    with pytest.raises(CuptiError) as caught:
        cupti.call(structs.HostDeinitialize())
    assert caught.value.code == 1
    assert str(caught.value).startswith("No GPU counters: CUPTI refused an argument")
    assert "cuptiProfilerHostDeinitialize answered CUPTI_ERROR_INVALID_PARAMETER, 1." in str(caught.value)


@pytest.mark.parametrize(
    ("code", "name", "words"),
    [
        (26, "CUPTI_ERROR_HARDWARE_BUSY", "DCGM"),
        (27, "CUPTI_ERROR_NOT_SUPPORTED", "Turing"),
        (35, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", "--cap-add SYS_ADMIN"),
        (39, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", "torch.profiler"),
        (40, "CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES", "hypervisor"),
        (41, "CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED", "confidential-computing"),
        (43, "CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED", "MIG"),
        (45, "CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED", "WSL"),
        (999, "CUPTI_ERROR_UNKNOWN", "Make a tensor on the GPU first"),
    ],
)
def test_the_usual_refusals_are_explained(cupti, code, name, words):
    assert cupti.result_name(code) == name
    assert words in explain(code, "cuptiRangeProfilerEnable", name)


def test_every_explanation_is_of_a_code_that_cupti_has(cupti):
    # The headers have 36, and from CUDA 13 on 46; the library of CUDA 12.8 has no name for either.
    nameless = {code for code in EXPLANATIONS if not cupti.result_name(code).startswith("CUPTI_ERROR_")}
    assert nameless <= {36, 46}
    assert "answered CUPTI_ERROR_NOT_READY, 13." in explain(13, "f", cupti.result_name(13))


def test_an_error_crosses_a_process_border():
    error = pickle.loads(pickle.dumps(CuptiError("No GPU counters: why.", 35)))
    assert (str(error), error.code) == ("No GPU counters: why.", 35)


def test_without_a_cuda_context_nothing_is_enabled(cupti):
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        expected = "no NVIDIA driver"
    else:
        expected = "no CUDA context"
    with pytest.raises(CuptiError, match=expected):
        current_context()
    with pytest.raises(CuptiError, match=expected), RangeProfiler(KNOWN.names, cupti=cupti):
        pass


@pytest.mark.parametrize(
    ("admin_only", "capabilities", "refused"),
    [
        ("1", "00000000a80425fb", True),  # Docker's root
        ("1", "00000000a82425fb", False),  # Docker's root with --cap-add SYS_ADMIN
        ("1", "0000000000000000", True),
        ("0", "0000000000000000", False),
    ],
)
def test_permission_is_read_from_the_driver_and_the_kernel(tmp_path, admin_only, capabilities, refused):
    params, status = tmp_path / "params", tmp_path / "status"
    params.write_text(f'ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {admin_only}\nRmMsg: ""\n')
    status.write_text(f"Name:\tpython\nCapPrm:\tffffffffffffffff\nCapEff:\t{capabilities}\n")
    reason = restricted(params, status)
    assert (reason is not None) is refused
    if reason:
        assert "--cap-add SYS_ADMIN" in reason
        assert "NVreg_RestrictProfilingToAdminUsers=0" in reason


def test_a_driver_that_tells_nothing_gives_no_reason(tmp_path):
    assert restricted(tmp_path / "absent", tmp_path / "absent") is None


@pytest.mark.parametrize("name", ["NV_NSIGHT_INJECTION_PORT_BASE", "NSYS_PROFILING_SESSION_ID"])
def test_ncu_and_nsys_are_seen_in_the_environment(name):
    assert name in under_profiler({"HOME": "/root", name: "1"})
    assert under_profiler({"HOME": "/root"}) is None


@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS.keys())
def test_structs_lie_as_in_the_c_headers(headers, tmp_path):
    if not (headers / "cupti_range_profiler.h").is_file():
        pytest.skip(f"no cupti_range_profiler.h in {headers}")
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    lines = []
    for params in structs.Params.__subclasses__():
        struct = params.__name__
        lines.append(f'printf("{struct} structSize %zu\\n", {struct}_STRUCT_SIZE);')
        lines += [
            f'printf("{struct} {field} %zu\\n", offsetof({struct}, {field}));'
            for field, *_ in structs.Params._fields_ + own_fields(params)
        ]
    # One header asks for C++'s <string> and uses nothing of it.
    (tmp_path / "string").touch()
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    includes = (
        "stdio",
        "cupti_target",
        "cupti_profiler_target",
        "cupti_profiler_host",
        "cupti_range_profiler",
        "cupti_pmsampling",
    )
    source.write_text(
        "".join(f"#include <{name}.h>\n" for name in includes) + f"int main(void) {{ {' '.join(lines)} }}"
    )
    subprocess.run([compiler, f"-I{headers}", f"-I{tmp_path}", source, "-o", program], check=True)
    in_c = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()

    in_python = []
    for params in structs.Params.__subclasses__():
        in_python.append(f"{params.__name__} structSize {params().structSize}")
        in_python += [
            f"{params.__name__} {field} {getattr(params, field).offset}"
            for field, *_ in structs.Params._fields_ + own_fields(params)
        ]
    assert in_python == in_c


def own_fields(params: type[structs.Params]) -> list[tuple[str, type]]:
    return vars(params).get("_fields_", [])


def test_every_call_is_in_the_library(cupti):
    for params in structs.Params.__subclasses__():
        assert re.fullmatch(r"cupti[A-Z]\w+", params.function)
        assert hasattr(cupti.library, params.function)
