"""Folders of Runs as a table: the numbers of the files, whatever else lies there, and nothing for a filter to reach."""

import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiler import catalogue as catalogue_module
from profiler import run_index, run_rows
from profiler.catalogue import UnusableFilter, catalogue, count
from profiler.codec import NotARun
from profiler.run import HALVES, MEASURED, Measurement, Run
from profiler.run_document import MAX_FILE_BYTES, to_document, to_json
from profiler.run_files import RunFile
from profiler.run_index import index_path
from profiler.store import list_runs, load, save
from tests.fake_runs import cpu_run, flash_run, naive_run

ROOT = Path(__file__).parents[1]
WRITE = """
import sys
from profiler.store import save
from tests.fake_runs import cpu_run
for number in range(200):
    save(cpu_run(run_id=f"{sys.argv[1]}-{number}"))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of indexes, empty and only this test's; every file counts as worth keeping and as settled."""
    monkeypatch.setenv("BYTESCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(catalogue_module, "WORTH_KEEPING_BYTES", -1)
    monkeypatch.setattr(run_index, "SETTLED_NANOSECONDS", -(10**18))
    return tmp_path / "cache"


def rows(*folders: Path) -> list[dict[str, Any]]:
    """Every Run of some folders by the names of the columns, oldest id first."""
    with catalogue(folders) as saved:
        found = saved.runs.order("id").fetchall()
        return [dict(zip(saved.runs.columns, row, strict=True)) for row in found]


def faults(*folders: Path) -> list[str]:
    with catalogue(folders) as saved:
        return sorted(saved.faults)


def ids(folder: Path) -> list[str]:
    return [row["id"] for row in rows(folder)]


def with_measurement(run: Run, **changes: Any) -> str:
    """The file of a Run whose first measurement, of flops, is changed beyond what a Measurement allows."""
    document = to_document([run])
    document["runs"][0]["measurements"][0] |= changes
    return json.dumps(document)


def test_a_row_holds_the_facts_and_numbers_of_its_run(runs: Path) -> None:
    save(flash_run())
    save(naive_run())
    flash, naive = rows(runs)
    facts = ("id", "request", "created", "kernel", "batch", "heads", "seq_len_q", "head_dim", "dtype", "causal")
    assert [flash[name] for name in facts] == [
        *("fake-flash", "fake-request", "2026-11-29T12:00:01Z", "flash"),
        *(1, 16, 8192, 128, "bfloat16", False),
    ]
    assert [flash[name] for name in ("BLOCK_M", "BLOCK_N", "num_warps", "num_stages", "order")] == [
        128,
        64,
        8,
        3,
        "linear",
    ]
    assert [flash[name] for name in ("device", "device_name", "driver", "torch", "triton", "l2", "window")] == [
        *("cuda:0", "NVIDIA H200", "580.159.04", "2.11.0+cu130", "3.6.0", "cold", None)
    ]
    assert flash["path"] == f"{runs}/fake-flash.json"
    assert (flash["gpu_time_seconds"], flash["gpu_time_seconds_source"]) == (1.28e-3, "cuda-event")
    assert naive["BLOCK_M"] is None and naive["seed"] == 0
    # Read and written by the counter, although the estimate of the whole is there too; launches are no whole Run.
    assert (naive["hbm_bytes"], naive["hbm_bytes_source"]) == (13.09e9, "cupti-range")
    assert (naive["hbm_read_bytes"], naive["l2_sm_bytes"]) == (6.610e9, 15.5e9)


@pytest.mark.parametrize("name", ["library_8k", "decode_64k"])
def test_every_number_is_the_one_that_the_run_itself_would_give(name: str) -> None:
    found = {row["id"]: row for row in rows(ROOT / "examples")}
    for run in load(ROOT / f"examples/{name}.json"):
        for quantity in {m.name for m in run.measurements if m.launch is None} - HALVES.keys():
            best = run.find(quantity)
            assert best is not None
            told = (found[run.id][quantity], found[run.id][f"{quantity}_source"])
            assert told == ((None, None) if best.value is None else (best.value, best.source)), quantity


def saved_with(folder: Path, *measurements: Measurement) -> dict[str, Any]:
    save(replace(cpu_run(run_id="asked"), measurements=measurements), folder)
    (row,) = rows(folder)
    return row


def test_a_value_goes_before_a_reason_and_then_the_most_trusted_source(runs: Path) -> None:
    row = saved_with(
        runs,
        Measurement("l2_sm_bytes", 3.0, "B", "cupti-sampling"),
        Measurement("l2_sm_bytes", 2.0, "B", "ncu"),
        Measurement("l2_sm_bytes", None, "B", "cupti-range", "not permitted"),
        Measurement("l2_sm_bytes", 1.0, "B", "cupti-range", launch="qk"),
    )
    assert (row["l2_sm_bytes"], row["l2_sm_bytes_source"]) == (2.0, "ncu")


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (
            {"hbm_read_bytes": (3.0, "ncu"), "hbm_write_bytes": (4.0, "ncu"), "hbm_bytes": (9.0, "nvml-gpm")},
            (7.0, "ncu"),
        ),
        ({"hbm_read_bytes": (3.0, "ncu"), "hbm_bytes": (9.0, "nvml-gpm")}, (9.0, "nvml-gpm")),
        ({"hbm_read_bytes": (3.0, "ncu"), "hbm_write_bytes": (4.0, "schedule")}, (7.0, "schedule")),
        ({"hbm_read_bytes": (3.0, "model"), "hbm_write_bytes": (4.0, "schedule")}, (7.0, "model")),
        ({"hbm_read_bytes": (3.0, "ncu")}, (None, None)),
    ],
)
def test_two_halves_are_summed_and_the_sum_is_as_good_as_the_weaker(
    runs: Path, told: dict[str, tuple[float, str]], expected: tuple[float | None, str | None]
) -> None:
    row = saved_with(runs, *(Measurement(name, value, "B", source) for name, (value, source) in told.items()))
    assert (row["hbm_bytes"], row["hbm_bytes_source"]) == expected
    assert expected[1] is None or (expected[1] in MEASURED) == (expected[1] in ("ncu", "nvml-gpm"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"value": -5.0}, "runs[0].flops is -5.0; it cannot be negative."),
        ({"value": 1e30}, "runs[0].flops is 1e+30, which cannot be measured."),
        ({"value": math.nan}, "The file holds NaN; a measured value is finite or absent."),
        ({"value": "12"}, "runs[0].measurements[0].value should be float, not str."),
        ({"value": True}, "runs[0].measurements[0].value should be float, not bool."),
        ({"unit": "s"}, "runs[0].flops"),
        ({"unit": "parrots"}, "runs[0].measurements[0] is not valid: flops: unit 'parrots' is not known."),
        ({"source": "a guess"}, "runs[0]"),
    ],
    ids=str,
)
def test_a_file_whose_value_cannot_have_been_measured_is_refused_as_where_it_is_opened(
    runs: Path, changes: dict[str, Any], reason: str
) -> None:
    save(cpu_run(run_id="good"))
    (runs / "odd.json").write_text(with_measurement(cpu_run(run_id="odd"), **changes))
    assert ids(runs) == ["good"]
    (said,) = faults(runs)
    with pytest.raises(NotARun) as refused:
        load(runs / "odd.json")
    assert said == f"odd.json: {refused.value}" and str(refused.value).startswith(reason)


def test_what_was_not_measured_is_no_number(runs: Path) -> None:
    save(cpu_run(run_id="good"))
    (runs / "odd.json").write_text(with_measurement(cpu_run(run_id="odd"), value=None))
    good, odd = rows(runs)
    assert good["flops"] == cpu_run().workload.problem.flops
    assert (odd["flops"], odd["flops_source"]) == (None, None)


def test_names_of_quantities_take_no_place_of_a_fact(runs: Path) -> None:
    names = ("seed", "Kernel", "block_m", "flops_source", 'x"; DROP TABLE rows', "folder", "flops")
    row = saved_with(runs, *(Measurement(name, 7.0, "FLOP" if name == "flops" else "1", "torch") for name in names))
    assert (row["seed"], row["kernel"], row["BLOCK_M"], row["folder"]) == (0, "flash", 16, 0)
    assert (row["flops"], row["flops_source"]) == (7.0, "torch")
    assert not any("DROP" in name for name in row)


def test_a_file_of_several_runs_is_several_rows(runs: Path) -> None:
    runs.mkdir()
    (runs / "both.json").write_text(to_json([naive_run(), flash_run()]))
    assert [(row["id"], row["position"], row["name"]) for row in rows(runs)] == [
        ("fake-flash", 2, "both.json"),
        ("fake-naive", 1, "both.json"),
    ]


def test_files_that_are_no_runs_are_named_and_cost_nothing_else(runs: Path) -> None:
    whole = save(cpu_run()).read_bytes()
    (runs / "cut.json").write_bytes(whole[: len(whole) // 2])
    (runs / "latin.json").write_bytes(b'{"caf\xe9": 1}')
    (runs / "foreign.json").write_text("[1, 2]")
    (runs / "newer.json").write_bytes(whole.replace(b'"format_version": 1', b'"format_version": 9'))
    (runs / "id.json").write_bytes(whole.replace(b'"id": "fake-cpu"', b'"id": "../up"'))
    (runs / "folder.json").mkdir()
    os.mkfifo(runs / "pipe.json")
    (runs / "gone.json").symlink_to(runs / "nowhere")
    (runs / "large.json").touch()
    os.truncate(runs / "large.json", MAX_FILE_BYTES + 2**20)
    (runs / "notes.txt").write_text("not looked at")
    assert ids(runs) == ["fake-cpu"]
    found = dict(fault.split(": ", 1) for fault in faults(runs))
    assert sorted(found) == [
        *("cut.json", "folder.json", "foreign.json", "gone.json", "id.json"),
        *("large.json", "latin.json", "newer.json", "pipe.json"),
    ]
    assert "it is not JSON" in found["cut.json"] and "it is not JSON" in found["latin.json"]
    assert "reads up to 1" in found["newer.json"] and "65 MiB" in found["large.json"]
    assert all("please report" not in reason for reason in found.values())


def test_a_truncated_file_is_named_wherever_it_was_cut(runs: Path) -> None:
    whole = save(cpu_run()).read_bytes()
    for end in range(0, len(whole) - 1, len(whole) // 12):
        (runs / f"cut-{end}.json").write_bytes(whole[:end])
    assert ids(runs) == ["fake-cpu"]
    assert len(faults(runs)) == len(list(runs.glob("cut-*.json"))) >= 12


def test_a_folder_that_does_not_exist_holds_no_runs(tmp_path: Path) -> None:
    assert rows(tmp_path / "none") == [] and faults(tmp_path / "none") == []


HOSTILE = ["it's", 'a "quote"', "100%", "[ab]*?", "a;b--c", "$1 ${x}", "{1..3}", "прогон €", "back\\slash", " "]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_mean_nothing_to_duckdb(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / f"{name}.json").write_text(to_json([cpu_run()]))
    (folder / "a.json").write_text(to_json([flash_run()]))
    for _ in range(2):  # from the files, then from the index
        assert [row["path"] for row in rows(folder)] == [f"{folder}/{name}.json", f"{folder}/a.json"]
    with catalogue(files=[folder / f"{name}.json"]) as saved:
        assert saved.runs.project("id").fetchall() == [("fake-cpu",)]


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/runs\xe9"))
    save(cpu_run(), folder)
    (folder / os.fsdecode(b"caf\xe9.json")).write_text(to_json([flash_run()]))
    (row,) = rows(folder)
    assert row["path"] == f"{tmp_path}/runs\ufffd/fake-cpu.json"
    assert faults(folder) == ["caf\ufffd.json: It cannot be read: its name is not UTF-8; rename it."]


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("kernel = 'flash' and seq_len_q >= 4096", ["fake-flash"]),
        ("hbm_bytes > 1e9 or \"order\" = 'sawtooth'", ["fake-naive"]),
        ("gpu_time_seconds < (select avg(gpu_time_seconds) from runs)", ["fake-flash"]),
        ("driver is null -- the CPU", ["fake-cpu"]),
        ("false", []),
    ],
)
def test_a_filter_is_an_expression_over_the_columns(runs: Path, expression: str, found: list[str]) -> None:
    for run in (naive_run(), flash_run(), cpu_run()):
        save(run)
    with catalogue([runs]) as saved:
        assert saved.where(expression).order("id").project("id").fetchall() == [(name,) for name in found]


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "nope = 1",
        "kernel =",
        "kernel",
        "kernel::int = 1",
        "true; drop table rows",
        "true) union select * from runs where (true",
        "true, true",
        "*",
        "sum(batch) > 1",
        "batch = ?",
        "kernel = '\udcff'",
        "\x00",
        "exists(select 1 from read_text('{secret}'))",
        "exists(select 1 from read_csv('{secret}'))",
        "exists(select 1 from read_blob('{folder}/*'))",
        "exists(select 1 from glob('{folder}/*'))",
        "exists(from '{secret}')",
        "exists(from secret_of_python)",
        "exists(select 1 from read_json('http://127.0.0.1:9/x.json'))",
    ],
)
def test_a_filter_that_is_something_else_is_refused_in_one_sentence(
    runs: Path, tmp_path: Path, expression: str
) -> None:
    save(cpu_run())
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    secret_of_python = [1]
    with catalogue([runs]) as saved:
        with pytest.raises(UnusableFilter) as refusal:
            saved.where(expression.replace("{secret}", str(secret)).replace("{folder}", str(tmp_path)))
        assert count(saved.runs) == 1
    text = str(refusal.value)
    assert text.startswith("The filter cannot be used: ") and text.endswith(".") and "\n" not in text
    assert "kernel, batch, heads" in text and '"window"' in text and "relative_error" in text
    assert secret_of_python == [1]


def test_what_has_been_closed_cannot_be_opened(runs: Path, tmp_path: Path) -> None:
    save(cpu_run())
    with catalogue([runs]) as saved:
        for statement in (
            "SET enable_external_access = true",
            "SET allowed_directories = ['/']",
            f"COPY runs TO '{tmp_path}/out.csv'",
            f"ATTACH '{tmp_path}/x.db'",
            "INSTALL httpfs",
            "LOAD httpfs",
        ):
            with pytest.raises(Exception, match=r"(?i)configuration|permission|disabled|lock"):
                saved.connection.execute(statement)
    assert not (tmp_path / "out.csv").exists() and not (tmp_path / "x.db").exists()


def refuse_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_rows, "contents", lambda *_: pytest.fail("a file was read again"))


def test_unchanged_files_are_read_once(runs: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in (naive_run(), flash_run()):
        save(run)
    first = rows(runs)
    assert index_path(runs).parent == cache and index_path(runs).is_file()
    refuse_to_read(monkeypatch)
    assert rows(runs) == first
    (runs / "fake-naive.json").unlink()
    assert rows(runs) == first[:1]


def test_only_what_is_new_is_read(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(naive_run())
    rows(runs)
    read: list[str] = []
    contents = run_rows.contents

    def noted(folder: Path, files: list[RunFile]) -> Any:
        read.extend(file.name for file in files)
        return contents(folder, files)

    monkeypatch.setattr(run_rows, "contents", noted)
    save(flash_run())
    assert ids(runs) == ["fake-flash", "fake-naive"] and read == ["fake-flash.json"]


@pytest.mark.parametrize("how", ["renamed into its place", "written in place"])
def test_a_file_of_the_same_size_and_time_is_read_again(runs: Path, how: str) -> None:
    path = save(cpu_run(run_id="aaaa"))
    facts = path.stat()
    assert ids(runs) == ["aaaa"]
    other = path.read_bytes().replace(b"aaaa", b"bbbb")
    target = path if how == "written in place" else path.with_suffix(".part")
    target.write_bytes(other)
    os.utime(target, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    target.rename(path)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (facts.st_size, facts.st_mtime_ns)
    assert ids(runs) == ["bbbb"]


def test_a_file_that_may_change_within_a_tick_is_not_kept(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_index, "SETTLED_NANOSECONDS", 2 * 10**9)
    save(cpu_run())
    assert ids(runs) == ["fake-cpu"] and index_path(runs).is_file()
    with monkeypatch.context() as patch:
        refuse_to_read(patch)
        with pytest.raises(pytest.fail.Exception, match="read again"):
            rows(runs)


@pytest.mark.parametrize("content", [b"", b"PAR1 and nonsense PAR1", b'{"a": 1}', "cut"], ids=str)
def test_a_broken_index_costs_only_time(runs: Path, content: bytes | str) -> None:
    save(naive_run())
    first = rows(runs)
    index = index_path(runs)
    index.write_bytes(index.read_bytes()[:-20] if isinstance(content, str) else content)
    assert rows(runs) == first and faults(runs) == []
    index.unlink()
    index.mkdir()
    assert rows(runs) == first and faults(runs) == []


def test_an_index_of_other_columns_is_none(runs: Path, tmp_path: Path) -> None:
    save(naive_run())
    first = rows(runs)
    with catalogue([runs]) as saved:
        saved.runs.project("name, 'x' AS stamp, 5 AS id").write_parquet(str(saved.scratch / "other.parquet"))
        index_path(runs).write_bytes((saved.scratch / "other.parquet").read_bytes())
    assert rows(runs) == first


def test_no_place_for_an_index_costs_only_time(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYTESCOPE_CACHE", "/dev/null/nowhere")
    save(naive_run())
    assert ids(runs) == ids(runs) == ["fake-naive"] and faults(runs) == []


def test_two_processes_write_at_once_while_a_third_lists(runs: Path) -> None:
    runs.mkdir()
    writers = [subprocess.Popen([sys.executable, "-c", WRITE, name], cwd=ROOT) for name in ("a", "b")]
    seen = 0
    while any(writer.poll() is None for writer in writers):
        with catalogue([runs]) as saved:
            assert saved.faults == ()
            assert count(saved.runs) >= seen, "what was there once stays"
            seen = count(saved.runs)
        time.sleep(0.05)
    assert [writer.returncode for writer in writers] == [0, 0]
    expected = sorted(f"{name}-{number}" for name in ("a", "b") for number in range(200))
    assert ids(runs) == expected == sorted(run.id for run in list_runs().runs)


def test_the_catalogue_needs_no_torch() -> None:
    code = "import sys, profiler.catalogue, profiler.export; print({'torch', 'triton', 'streamlit'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_an_index_whose_bytes_have_changed_is_none(runs: Path) -> None:
    for run in (naive_run(), flash_run()):
        save(run)
    first = rows(runs)
    path = index_path(runs)
    good = path.read_bytes()
    for place in range(0, len(good), max(1, len(good) // 40)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x55]) + good[place + 1 :])
        assert rows(runs) == first


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"batch": 1,', '"batch": 1.7,'),
        ('"batch": 1,', '"batch": "1",'),
        ('"batch": 1,', '"batch": true,'),
        ('"BLOCK_M": 128', '"BLOCK_M": 63'),
        ('"BLOCK_M": 128', '"BLOCK_M": -1'),
        ('"order": "linear"', '"order": "evil"'),
        ('"window": null', '"window": -5'),
        ('"seq_len_q": 8192', '"seq_len_q": 77, "seq_len_q": 8192'),
        ('"device": "cuda:0", "seed"', '"device": "cuda:1", "seed"'),
    ],
)
def test_a_workload_that_cannot_be_is_not_listed(runs: Path, before: str, after: str) -> None:
    path = save(flash_run())
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    assert rows(runs) == [] and len(faults(runs)) == 1
    with pytest.raises(NotARun):
        load(path)


@pytest.mark.parametrize("seconds", [0.0, 1e-18, 1e-10, 1e6])
def test_a_time_that_no_clock_gives_is_not_shown(runs: Path, seconds: float) -> None:
    run = replace(flash_run(), measurements=(Measurement("gpu_time_seconds", seconds, "s", "cuda-event"),), samples={})
    runs.mkdir()
    (runs / "x.json").write_text(to_json([run]))
    assert [row.get("gpu_time_seconds") for row in rows(runs)] in ([None], [])
    with pytest.raises(NotARun):
        load(runs / "x.json")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
def test_another_encoding_is_named_as_that(runs: Path, encoding: str) -> None:
    runs.mkdir()
    (runs / "x.json").write_bytes(to_json([flash_run()]).encode(encoding))
    (fault,) = faults(runs)
    assert fault.startswith("x.json: This is not a Run file: it is not JSON") and "report this line" not in fault
