"""What L1 and the way to L2 saved, and which kernels ran: tables of Runs with detail counters."""

from dataclasses import replace

from app.kernel_table import kernels_that_ran
from app.savings import savings
from app.selection import compare
from profiler.run import LaunchedKernel, Measurement, Run
from tests.fake_runs import flash_run, naive_run


def with_detail(run: Run, **values: float | None) -> Run:
    found = [Measurement(n, v, "B", "cupti-range", "" if v is not None else "not on GX") for n, v in values.items()]
    others = tuple(m for m in run.measurements if m.name not in values)
    return replace(run, measurements=(*others, *found))


def test_nothing_without_detail_counters() -> None:
    assert savings(compare((naive_run(), flash_run()))) is None
    assert kernels_that_ran(compare((naive_run(), flash_run()))) is None


def test_bytes_and_shares_of_what_was_saved() -> None:
    """4 GB asked, 3 GB arrive: L1 answered 1 GB, a quarter; 2.4 GB leave L2: 0.6 GB, a fifth of 3, were merged."""
    run = with_detail(flash_run(), requested_read_bytes=4e9, l2_to_sm_bytes=3e9, l2_sm_read_bytes=2.4e9)
    table = savings(compare((run,)))
    assert table is not None
    assert table.rows == (("flash", "4.00 GB", "1.00 GB", "3.00 GB", "600 MB", "2.40 GB"),)
    assert table.reasons == (("", "", "25% of what is on the left", "", "20% of what is on the left", ""),)
    assert table.sources == (("", "cupti-range", "", "cupti-range", "", "cupti-range"),)


def test_a_library_that_asks_for_more_and_a_chip_that_cannot_count() -> None:
    run = with_detail(naive_run(), requested_read_bytes=4e9, l2_to_sm_bytes=5e9, l2_sm_read_bytes=None)
    table = savings(compare((run,)))
    assert table is not None
    assert table.rows == (("naive", "4.00 GB", "1.00 GB more", "5.00 GB", "–", "–"),)
    assert table.reasons[0][2] == "More came than is on the left: a library's kernels read operands again."
    assert table.reasons[0][4:] == ("One of the two counts beside this is missing.", "not on GX")


def test_kernels_by_launch_with_what_was_counted_of_each() -> None:
    """Two kernels of one launch that were not counted one by one share its bytes, so neither has any."""
    kernels = (LaunchedKernel("qk", "nvjet_hsh_128x128"), LaunchedKernel("", "fill"))
    kernels += (LaunchedKernel("pv", "split_k"), LaunchedKernel("pv", "reduce"))
    counted = {("qk", "hbm_read_bytes"): 1e9, ("qk", "hbm_write_bytes"): 2e9, ("pv", "hbm_read_bytes"): 3e9}
    told = tuple(
        Measurement(name, value, "B", "cupti-range", launch=launch) for (launch, name), value in counted.items()
    )
    table = kernels_that_ran(compare((replace(naive_run(), kernels=kernels, measurements=told),)))
    assert table is not None
    assert table.rows == (
        ("naive", "QKᵀ", "1.00 GB", "2.00 GB", "–", "nvjet_hsh_128x128"),
        ("naive", "outside", "–", "–", "–", "fill"),
        ("naive", "PV", "–", "–", "–", "split_k"),
        ("naive", "PV", "–", "–", "–", "reduce"),
    )
    assert table.reasons[0] == ("", "", "", "", "This kernel was not counted by itself.", "")
    assert table.sources[0] == ("", "", "cupti-range", "cupti-range", "", "")


def caption(*runs: Run) -> str:
    table = kernels_that_ran(compare([replace(run, kernels=(LaunchedKernel("", "k"),)) for run in runs]))
    assert table is not None
    return table.caption.removeprefix("In the order in which they ran; a library chooses its own. As listed by ")


def counted(run: Run, name: str, value: float, unit: str, source: str) -> Run:
    return replace(run, measurements=(*run.measurements, Measurement(name, value, unit, source)))


def test_who_named_the_kernels_is_told() -> None:
    """Callbacks come before ncu."""
    called = counted(naive_run(), "kernels_launched", 4.0, "1", "cupti-callback")
    by_ncu = counted(flash_run(), "hbm_read_bytes", 1e9, "B", "ncu")
    assert caption(called) == "CUPTI's callbacks."
    assert caption(by_ncu) == "ncu."
    assert caption(counted(called, "hbm_read_bytes", 1e9, "B", "ncu")) == "CUPTI's callbacks."
    assert caption(naive_run()) == "a profiler that the Run does not name."
    assert caption(called, by_ncu) == "CUPTI's callbacks (naive); by ncu (flash)."
