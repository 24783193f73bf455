"""Compiled resources: what is read from the code, what is kept of it, and what becomes of whatever goes wrong."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kernels.problem import PERSISTENT, SAWTOOTH, AttentionProblem, Refused, TileConfig
from profiler import __main__ as cli
from profiler import compile_pool
from profiler.compile_pool import compile_all
from profiler.compiled_code import NoCode, code_of
from profiler.occupancy import Waves
from profiler.resource_cache import ResourceCache, resources_folder, triton_version
from profiler.resources import Code, Configuration, LaunchResources, Resources, configurations, on_gpu, why_not
from profiler.target import gpu_target
from tests.compiled_apart import caches_in

ROOT = Path(__file__).parents[1]
SMALL = AttentionProblem(1, 2, 2, 64, 64, 16, "float16")
TILE = TileConfig(16, 16, 1, 1)
FLASH = Configuration("flash", SMALL, TILE, (8, 0))
CHOSEN = (
    FLASH,
    replace(FLASH, compute_capability=(12, 0)),
    Configuration("flash", AttentionProblem(1, 1, 1, 64, 64, 64, "float16"), TileConfig(64, 64, 1, 1), (9, 0)),
    Configuration("split_kv", SMALL, TILE, (10, 0)),
)
KEPT = Resources(FLASH, "3.7.1", (LaunchResources("flash", 40, 0, 2048, 0, 1, 8, Code("a" * 64, "b" * 64, "c" * 64)),))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of each test's own."""
    monkeypatch.setenv("BYTESCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "resources"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[Configuration, Resources]]]:
    """CHOSEN, compiled once into a cache of the module's own; its folder comes first."""
    folder = tmp_path_factory.mktemp("compiled")
    with caches_in(folder):
        yield folder, {one.configuration: one for one in compile_all(CHOSEN)}


@pytest.fixture
def warm(compiled: tuple[Path, dict[Configuration, Resources]], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module's cache, for this test."""
    monkeypatch.setenv("BYTESCOPE_CACHE", str(compiled[0]))
    return compiled[0] / "resources"


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever would be compiled fails the test."""

    def start(*arguments: object, **options: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(compile_pool, "ProcessPool", start)


Compiled = tuple[Path, dict[Configuration, Resources]]


def test_every_configuration_has_its_launches(compiled: Compiled) -> None:
    found = compiled[1]
    assert set(found) == set(CHOSEN) and all(one.reason == "" for one in found.values())
    assert [launch.launch for launch in found[CHOSEN[3]].launches] == ["split", "merge"]
    assert {one.triton for one in found.values()} == {triton_version()}
    # 2 heads × 4 Q tiles of 16; split_kv shares each of those among its 4 KV tiles.
    assert [launch.programs for launch in found[FLASH].launches] == [8]
    assert [launch.programs for launch in found[CHOSEN[3]].launches] == [32, 8]
    assert [launch.num_warps for launch in found[CHOSEN[2]].launches] == [1]


@pytest.mark.usefixtures("warm", "no_processes")
@pytest.mark.parametrize("configuration", CHOSEN, ids=lambda one: f"{one.kernel}-{one.compute_capability}")
def test_registers_and_spills_are_those_of_the_machine_code(compiled: Compiled, configuration: Configuration) -> None:
    """SASS names no register beyond those counted, and touches local memory only where something spills."""
    found = compiled[1][configuration]
    for launch in found.launches:
        sass = code_of(found, launch, "sass")
        highest = max(int(number) for number in re.findall(r"\bR(\d+)\b", sass))
        assert highest < launch.registers <= highest + 10
        assert bool(re.search(r"\b(STL|LDL)\b", sass)) == (launch.spill_bytes > 0)
    assert (found.launches[0].spill_bytes > 0) == (configuration == CHOSEN[2])


@pytest.mark.usefixtures("warm", "no_processes")
@pytest.mark.parametrize("configuration", CHOSEN, ids=lambda one: f"{one.kernel}-{one.compute_capability}")
def test_the_code_is_for_that_gpu(compiled: Compiled, configuration: Configuration) -> None:
    found = compiled[1][configuration]
    arch = "{}{}".format(*configuration.compute_capability)
    for launch in found.launches:
        ptx, ttgir = code_of(found, launch, "ptx"), code_of(found, launch, "ttgir")
        assert f".target sm_{arch}" in ptx and f".reqntid {32 * launch.num_warps}" in ptx
        assert f'"cuda:{arch}"' in ttgir and f'"ttg.num-warps" = {launch.num_warps}' in ttgir


@pytest.mark.usefixtures("warm", "no_processes")
def test_what_is_cached_starts_no_process(compiled: Compiled) -> None:
    assert {one.configuration: one for one in compile_all((*CHOSEN, FLASH))} == compiled[1]


def test_a_cached_answer_loads_neither_torch_nor_triton(warm: Path) -> None:
    code = (
        "import sys\nfrom profiler.compile_pool import compile_all\nfrom profiler.resources import *\n"
        "from kernels.problem import *\n"
        f"found = list(compile_all([Configuration('flash', {SMALL!r}, {TILE!r}, (8, 0))]))\n"
        "print(len(found[0].launches), sorted({'torch', 'triton'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1 []"


def test_resources_on_a_gpu() -> None:
    """40 registers of 32 threads are 1,280: 12 warps a sub-core; 3,072 bytes 54 times in 164 KB; slots end at 32."""
    (launch,) = on_gpu(KEPT, gpu_target("a100"))
    assert (launch.occupancy.ctas_per_sm, launch.occupancy.limited_by) == (32, ("CTA slots",))
    assert launch.waves is not None and launch.waves.count == 8 / (32 * 108)
    assert why_not(KEPT, gpu_target("a100")) == ""
    large = replace(KEPT, launches=(replace(KEPT.launches[0], shared_memory=2**20),))
    assert why_not(large, gpu_target("a100")).startswith("A program needs 1024 KB of shared memory;")
    with pytest.raises(Refused, match=r"compute capability 8\.0; H100 SXM has 9\.0: compile again\."):
        on_gpu(KEPT, gpu_target("h100"))


@pytest.mark.parametrize(
    ("kernel", "tile", "capability", "sentence"),
    [
        ("naive", TILE, (8, 0), "Naive is no Triton kernel of Bytescope's"),
        ("cudnn", TILE, (8, 0), "cuDNN is no Triton kernel of Bytescope's"),
        ("flsh", TILE, (8, 0), "Kernel 'flsh' is not known; choose row_streaming"),
        ("flash", TILE, (9, 9), "Compute capability 9.9 is not known; choose 7.0"),
        ("split_kv", replace(TILE, order=SAWTOOTH), (8, 0), "Kernel split_kv does not use"),
    ],
)
def test_what_is_no_configuration(kernel: str, tile: TileConfig, capability: tuple[int, int], sentence: str) -> None:
    with pytest.raises(Refused) as refusal:
        Configuration(kernel, SMALL, tile, capability)
    assert str(refusal.value).startswith(sentence)


def test_a_persistent_grid_is_one_wave_at_most() -> None:
    """168 registers of 12 warps, of which three are on each sub-core: one program on an SM. Backward as it is."""
    problem = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16", backward=True)
    chosen = Configuration("flash_ws", problem, TileConfig(128, 128, 8, 2, PERSISTENT), (9, 0))
    code = Code("a" * 64, "b" * 64, "c" * 64)
    main = LaunchResources("flash_ws", 168, 0, 164_200, 0, 12, 1024, code)
    other = LaunchResources("gradients", 255, 0, 200_000, 0, 8, 1024, code)
    found = Resources(chosen, "3.7.1", (main, other))
    first, second = on_gpu(found, gpu_target("h200"))
    assert first.waves == Waves(132, 1.0, 1.0) and first.resources.programs == 132
    assert second.resources == other and second.waves is not None and second.waves.count == 1024 / 132
    few = on_gpu(replace(found, launches=(replace(main, programs=33),)), gpu_target("h200"))[0]
    assert few.resources.programs == 33 and few.waves == Waves(132, 0.25, 0.25)
    linear = replace(found, configuration=replace(chosen, tile=TileConfig(128, 128, 8, 2)))
    assert on_gpu(linear, gpu_target("h200"))[0].resources.programs == 1024


def test_configurations_are_cut_as_the_kernel_uses_them_and_each_stands_once() -> None:
    tiles = [TileConfig(16, block_n, 4, stages) for block_n in (16, 32) for stages in (1, 2)]
    (one,) = configurations("query_tiled", SMALL, tiles, [(8, 0)])
    assert one.tile == TileConfig(16, 64, 4, 1)
    assert len(configurations("flash", SMALL, tiles, [(8, 0), (9, 0)])) == 8


@pytest.mark.usefixtures("no_processes")
@pytest.mark.parametrize(
    ("configuration", "sentence"),
    [
        (replace(FLASH, compute_capability=(7, 0)), "Compute capability 7.0 is older than what Triton supports, 8.0"),
        (replace(FLASH, tile=TileConfig(8, 16)), "BLOCK_M is 8, but a GPU's matrix units want at least 16"),
        (
            Configuration("flash", replace(SMALL, head_dim=256), TileConfig(256, 256), (8, 6)),
            "BLOCK_M 256, BLOCK_N 256, num_stages 3 needs at least 640 KB of shared memory; Compute",
        ),
    ],
)
def test_what_is_refused_is_not_compiled(configuration: Configuration, sentence: str) -> None:
    (found,) = compile_all([configuration])
    assert found.is_refused and found.launches == () and found.reason.startswith(sentence)


@pytest.mark.usefixtures("no_processes")
def test_without_triton_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_pool, "triton_version", lambda: None)
    (found,) = compile_all([FLASH])
    assert found.reason == "Triton is not installed here; install the versions of requirements.txt."


def test_the_cache_gives_back_what_it_was_given(cache: Path) -> None:
    kept = ResourceCache(cache, "3.7.1")
    assert kept.find(FLASH) is None
    kept.keep(KEPT)
    assert kept.find(FLASH) == KEPT
    assert kept.find(replace(FLASH, compute_capability=(9, 0))) is None
    assert ResourceCache(cache, "3.6.0").find(FLASH) is None
    code = b"PTX " * 1000
    assert kept.find_code(kept.keep_code(code)) == code
    assert sum(file.stat().st_size for file in (cache / "code").iterdir()) < 200


@pytest.mark.parametrize("text", ["", "{", "[]", '{"launches": 3}', "\x00" * 100, "[" * 10_000, "9" * 2**21])
def test_a_broken_file_is_not_there(cache: Path, text: str) -> None:
    kept = ResourceCache(cache, "3.7.1")
    kept.keep(KEPT)
    (file,) = cache.glob("*.json")
    file.write_text(text)
    assert kept.find(FLASH) is None
    kept.keep(KEPT)
    assert kept.find(FLASH) == KEPT


def test_a_file_of_another_configuration_is_not_believed(cache: Path) -> None:
    kept = ResourceCache(cache, "3.7.1")
    kept.keep(KEPT)
    (file,) = cache.glob("*.json")
    document = json.loads(file.read_text())
    document["configuration"]["tile"]["BLOCK_M"] = 32
    file.write_text(json.dumps(document))
    assert kept.find(FLASH) is None


def test_broken_code_is_not_there(cache: Path) -> None:
    kept = ResourceCache(cache, "3.7.1")
    digest = kept.keep_code(b"PTX")
    (file,) = (cache / "code").iterdir()
    file.write_bytes(b"x" * 20)
    assert kept.find_code(digest) is None
    assert kept.find_code("../../../etc/passwd") is None


def test_the_key_follows_the_compilers_variables_but_not_where_it_keeps_things(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ResourceCache(cache, "3.7.1").keep(KEPT)
    monkeypatch.setenv("TRITON_CACHE_DIR", "/elsewhere")
    assert ResourceCache(cache, "3.7.1").find(FLASH) == KEPT
    monkeypatch.setenv("DISABLE_PTXAS_OPT", "1")
    assert ResourceCache(cache, "3.7.1").find(FLASH) is None


def test_the_folder_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BYTESCOPE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert resources_folder() == Path("/x/bytescope/resources")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/y")
    assert resources_folder() == Path("/y/.cache/bytescope/resources")


def test_a_cache_that_cannot_be_written_costs_only_speed(
    compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is a file, and so is Triton's; the code is compiled once more when it is asked for."""
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("BYTESCOPE_CACHE", str(file))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(file / "triton"))
    (found,) = compile_all([FLASH])
    assert found == compiled[1][FLASH]
    assert ".target sm_80" in code_of(found, found.launches[0], "ptx")


@pytest.mark.usefixtures("no_processes")
def test_code_of_another_triton_that_is_lost_has_a_reason() -> None:
    with pytest.raises(NoCode, match=r"Triton 2\.0, which made it, is not installed \(3\.\d\.\d is\); compile again\."):
        code_of(replace(KEPT, triton="2.0"), KEPT.launches[0], "ptx")


def running() -> list[int]:
    """The processes that compile, of this process: they lead a group, which workers that have loaded Triton do not."""
    pids = [child.pid for child in multiprocessing.active_children() if child.pid]
    return [pid for pid in pids if b"libtriton" in maps(pid) and os.getpgid(pid) == pid]


def maps(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return b""


def all_gone(pids: Sequence[int]) -> bool:
    return all(not Path(f"/proc/{pid}/maps").exists() or not maps(pid) for pid in pids)


def wait_for_a_compiler() -> int:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if found := running():
            return found[0]
        time.sleep(0.02)
    raise AssertionError("no process has loaded Triton")


def test_a_killed_process_costs_only_its_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    pids: list[int] = []

    def kill() -> None:
        pids.append(wait_for_a_compiler())
        os.kill(pids[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    # It takes seconds, so that the process is at it when it is killed.
    long = Configuration("flash", AttentionProblem(1, 1, 1, 512, 512, 128), TileConfig(128, 128, 4, 3), (8, 0))
    first, second = compile_all([long, FLASH], processes=1)
    killer.join()
    assert "was killed by SIGKILL (the system may be out of memory)" in first.reason and not first.is_refused
    assert second.reason == "" and second.launches
    assert all_gone(pids)
    # It says nothing about the configuration, so it is not kept.
    assert ResourceCache(resources_folder(), triton_version() or "").find(first.configuration) is None


def test_a_time_out_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    (found,) = compile_all([FLASH], timeout=0.2)
    assert found.reason.startswith("flash (phase: compile) was stopped after 0 s.") and not found.is_refused


def test_closing_ends_the_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    results = compile_all(CHOSEN[:2], processes=1)
    assert next(results).launches
    pids = running()
    results.close()
    assert pids and all_gone(pids)


def test_gluon_is_compiled_for_hopper_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve warps for the nine that there are, and nothing spilled at 168 registers; for others one sentence."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    problem = AttentionProblem(1, 2, 2, 300, 300, 64, "float16")
    (tile,) = (one.tile for one in configurations("flash_ws", problem, [TILE], [(9, 0)]))
    chosen = [Configuration("flash_ws", problem, tile, capability) for capability in ((9, 0), (8, 0), (10, 0))]
    found = {one.configuration.compute_capability: one for one in compile_all(chosen)}
    (launch,) = found[9, 0].launches
    assert (launch.num_warps, launch.registers, launch.spill_bytes, launch.programs) == (12, 168, 0, 6)
    # Q, and two tiles of 256 keys each of K and of V, in rows of 128 B; P of 128 × 256; the barriers on top.
    assert 0 < launch.shared_memory - 128 * (128 + 2 * 2 * 256) - 2 * 128 * 256 < 1024
    for other in ((8, 0), (10, 0)):
        assert (
            found[other].is_refused and "written for the warp groups of compute capability 9.0" in found[other].reason
        )


def test_what_is_compiled_ahead_is_what_a_launch_looks_for() -> None:
    """By the JIT's own binder, with the tensors of a real forward; see tests/seen_launches.py."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    words = [sys.executable, "-m", "tests.seen_launches"]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    assert len(seen["same"]) == 36
    assert {name: same for name, same in seen["same"].items() if not all(same)} == {}
    assert (seen["waves"], seen["kinds"]) == (1, 4)


COMMAND = "resources --heads 2 --seq-len 64 --head-dim 16 --block-m 16 --block-n 16 --num-warps 1 --num-stages 1"


def answer(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["profiler", *line.split()])
    with pytest.raises(SystemExit) as end:
        cli.main()
    shown = capsys.readouterr()
    return int(end.value.code or 0), shown.out, shown.err


@pytest.mark.usefixtures("warm", "no_processes")
def test_the_command_prints_a_table_and_one_document(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "code"
    line = f"{COMMAND} --gpu a100 --gpu rtx5090 --gpu a100-40 --json --save-code {folder}"
    code, out, err = answer(line, monkeypatch, capsys)
    assert code == 0
    document = json.loads(out)
    results = document["results"]
    assert [one["gpu"] for one in results] == ["a100", "a100-40", "rtx5090"]
    assert (document["triton"], results[0]["fits"], results[0]["tile"]["BLOCK_M"]) == (triton_version(), True, 16)
    flash, launch = compiled[1][FLASH].launches[0], results[0]["launches"][0]
    assert (launch["registers"], launch["shared_memory"]) == (flash.registers, flash.shared_memory)
    assert launch["ctas_per_sm"] == 32 and "CTA slots" in launch["limited_by"]
    assert f"Triton {triton_version()}" in err and "flash on A100 SXM 80 GB, compute capability 8.0" in err
    assert all(len(row) <= 80 for row in err.splitlines() if "16×16" in row)
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(
        f"flash-flash-16x16-w1-s1-linear-sm{arch}.{kind}" for arch in (80, 120) for kind in ("ptx", "sass", "ttgir")
    )


@pytest.mark.usefixtures("no_processes")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--gpu h101", "GPU 'h101' is not known; choose v100"),
        ("--gpu a100 --kernel naive", "Naive is no Triton kernel"),
        ("--gpu a100 --block-m ,", "--block-m is ','; give values with commas between them"),
        ("--gpu a100 --block-m 48", "BLOCK_M is 48; it must be a power of two"),
        ("--gpu v100 --dtype bfloat16", "Compute capability 7.0 is older than what Triton supports"),
        ("--gpu a100 --timeout 0", "The timeout is 0 s; choose more than 0."),
        ("--gpu a100 --order up", "order 'up' is not known"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(
    options: str, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = answer(f"{COMMAND} {options}", monkeypatch, capsys)
    assert (code, out) == (2, "")
    assert err.startswith(sentence) and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("registers", -7), ("shared_memory", -5000), ("num_warps", 0), ("programs", 0), ("programs", 10**30)],
)
def test_a_cache_that_says_what_cannot_be_is_none(cache: Path, field: str, value: int) -> None:
    kept = ResourceCache(cache, "3.7.1")
    kept.keep(KEPT)
    (path,) = cache.glob("*.json")
    document = json.loads(path.read_text())
    document["launches"][0][field] = value
    path.write_text(json.dumps(document))
    assert kept.find(FLASH) is None
