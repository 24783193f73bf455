"""The walk-through's argument: the numbers of its sentences and figures by hand, both languages alike."""

from pathlib import Path
from string import Formatter

from app import lesson_source
from app.lesson_numbers import SMALL_TILES, as_known, kv_bytes, rescales, slots, small_schedule
from app.lesson_steps import Step, steps
from app.lesson_subject import shown
from app.lesson_text_en import ENGLISH
from app.lesson_text_zh import CHINESE
from app.picture import Picture, Table
from app.style import LIGHT
from kernels.problem import AttentionProblem
from profiler.run import Run
from tests.fake_runs import cpu_run, flash_run, naive_run

ROOT = Path(__file__).parents[1]
BOTH = (naive_run(), flash_run())


def made(runs: tuple[Run, ...]) -> tuple[Step, ...]:
    return steps(runs, ENGLISH, LIGHT)


def table(step: Step) -> dict[str, tuple[str, ...]]:
    assert isinstance(step.item, Table)
    return {row[0]: row[1:] for row in step.item.rows}


def slots_of(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def test_both_languages_have_the_same_steps_words_and_numbers() -> None:
    assert len(ENGLISH.steps) == len(CHINESE.steps) == 11
    for one, other in zip(ENGLISH.steps, CHINESE.steps, strict=True):
        # The ratio of S and O is a multiple in one language and a fraction in the other.
        assert {name.removesuffix("_plain") for name in slots_of(other.text)} == slots_of(one.text), one.title
        assert other.text and other.link
    for name in ("notes", "labels"):
        one, other = getattr(ENGLISH, name), getattr(CHINESE, name)
        assert list(one) == list(other)
        assert all(slots_of(one[key]) == slots_of(other[key]) for key in one)


def test_the_articles_matrix_in_numbers() -> None:
    """8192² scores, four bytes each; 32 heads; O is 8192 × 128 × 4 bytes."""
    found = table(made(())[0])
    assert found["scores"] == ("67.1 M",)
    assert found["S in float32"] == ("256 MiB",)
    assert found["S in 16 bits"] == ("128 MiB",)
    assert found["S in float32, all heads"] == ("8.00 GiB",)
    assert found["O in float32"] == ("4.00 MiB",)
    assert found["S / O"] == ("64×",)


def test_the_shown_problem_stands_beside_the_articles() -> None:
    """64 × 64 scores of two heads: 16 KiB each; O is 64 × 16 × 4 B = 4 KiB."""
    found = table(made((cpu_run(),))[0])
    assert found["scores"] == ("4,096", "67.1 M")
    assert found["S in float32"] == ("16.0 KiB", "256 MiB")
    assert found["S in float32, all heads"] == ("32.0 KiB", "8.00 GiB")
    assert found["O in float32"] == ("4.00 KiB", "4.00 MiB")


def test_small_tiles_ask_for_the_same_keys_and_values() -> None:
    """Four Q tiles read 16 rows of 64 B of K and of V: 4 · 2 · 1024 B. 4 × 4 goes on three times in each."""
    wide, square = SMALL_TILES
    assert kv_bytes(small_schedule(wide)) == kv_bytes(small_schedule(square)) == 8192
    assert (rescales(wide), rescales(square)) == (0, 12)
    item = made(())[4].item
    assert isinstance(item, Picture)
    titles = [str(note.text) for note in item.chart.layout.annotations]
    assert titles == [
        "<b>4 × 16</b>  K and V 8.19 kB<br>4 steps, 0 may rescale",
        "<b>4 × 4</b>  K and V 8.19 kB<br>16 steps, 12 may rescale",
    ]
    assert item.chart.data[0].z.shape == (4, 1)
    assert item.chart.data[1].z.tolist() == [[0, 1, 2, 3]] * 4


def test_what_the_sentences_take() -> None:
    found = slots(shown(BOTH))
    # S written by QKᵀ, read and written by scale, read by softmax; P written, and read by PV.
    assert found["trips"] == "6"
    assert (found["row_times"], found["tile_times"], found["kv_tiles"]) == ("8,192", "64", "128")
    assert found["row_block"] == "2.00 MiB"  # 64 · 8192 · 4 B
    assert found["fill_keys"] == "1,024"  # 256 KiB / (64 · 4 B)
    assert (found["a100_sm"], found["a100_block"]) == ("164 KiB", "163 KiB")
    assert found["glued_sum"] == "2"
    assert found["flops"] == "550 GFLOP"  # 4 · 16 · 8192² · 128


def test_a_mask_and_shared_heads_change_the_passes() -> None:
    """Causal, 64 queries and keys in tiles of 16: 16 queries each ask for 16, 32, 48 and 64 keys, 40 times all.

    Each of the four Q tiles takes all keys at once, hidden ones included.
    """
    found = slots(shown((cpu_run(),)))
    assert (found["row_times"], found["tile_times"]) == ("40", "4")
    assert found["trips"] == "8"  # the mask reads and writes S once more
    grouped = AttentionProblem(1, 4, 2, 64, 64, 16, "float32")
    assert slots(shown((cpu_run(grouped),)))["tile_times"] == "4"


def test_the_correction_of_the_articles_figure() -> None:
    step = made(())[5]
    assert "A100 SM has 164 KiB" in step.text and "228 KB; that is the H100's figure" in step.text
    assert "Hopper tuning guide" in step.note
    assert isinstance(step.item, Picture)
    ends = [text.strip() for text in step.item.chart.data[-1].text]
    assert ends == ["2.00 MiB", "16.0 KiB", "256 KiB", "164 KiB", "228 KiB"]


def test_the_broken_softmax_and_its_repair() -> None:
    broken, repaired = made(())[6:8]
    assert table(broken)["whole row"] == ("1/6", "1/6", "1/3", "1/3", "1")
    assert table(broken)["by block, glued"] == ("1/2", "1/2", "1/2", "1/2", "2")
    found = table(repaired)
    assert found["1"] == ("0, 0", "0", "–", "2")
    assert found["2"] == ("ln 2, ln 2", "ln 2", "1/2", "3")
    assert found["exp(s − m) / l"][0] == "1/6, 1/6, 1/3, 1/3"


def test_numbers_are_spelled_as_people_know_them() -> None:
    assert [as_known(number) for number in (0.0, 3.0, 2 / 3, 0.123456)] == ["0", "3", "2/3", "0.123"]


def test_the_moves_point_at_lines_that_are_there() -> None:
    found = lesson_source.places()
    assert set(found) == set(lesson_source.LINES)
    for name, place in found.items():
        assert place is not None, name
        lines = (ROOT / place.path).read_text().splitlines()
        assert place.code in lines[place.line - 1]
        assert any(f"def {place.function}(" in line for line in lines[: place.line])
        assert "gradient" not in place.path, "the walk-through is of a forward pass"
