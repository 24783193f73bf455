"""Numbers in words, by hand."""

import pytest

from app import style


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (13.09, "13.1"),
        (0.1347, "0.135"),
        (6480, "6,480"),
        (999.6, "1,000"),
        (-2.5, "-2.50"),
        (1e-7, "0.000000100"),
    ],
)
def test_three_significant_digits(value: float, text: str) -> None:
    assert style.significant(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (512, "512 B"),
        (32, "32 B"),
        (2.5, "2.50 B"),
        (1000, "1.00 kB"),
        (999_600_000, "1.00 GB"),
        (999_400_000, "999 MB"),
        (13_090_000_000, "13.1 GB"),
        (4_814_000_000_000, "4.81 TB"),
    ],
)
def test_traffic_in_powers_of_1000(value: float | None, text: str) -> None:
    assert style.traffic(value) == text


def test_bandwidth_is_traffic_per_second() -> None:
    assert style.bandwidth(4.814e12) == "4.81 TB/s"


def test_capacity_in_powers_of_1024() -> None:
    assert style.capacity(4 * 2**30) == "4.00 GiB"
    assert style.capacity(150_000_000_000) == "140 GiB"
    assert style.capacity(None) == "–"


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.28e-3, "1.28 ms"), (0.9996e-3, "1.00 ms"), (32e-9, "32 ns"), (2.5e-9, "2.50 ns"), (2.0, "2.00 s"), (None, "–")],
)
def test_seconds(value: float | None, text: str) -> None:
    assert style.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.05, "1 s"), (5.3, "5 s"), (28.2, "30 s"), (100, "2 min"), (4190, "70 min"), (9000, "2 h")]
)
def test_estimates_have_one_digit(value: float, text: str) -> None:
    assert style.roughly(value) == text


def test_flop_rate() -> None:
    assert style.flop_rate(4.304e14) == "430 TFLOP/s"
    assert style.flop_rate(989e12) == "989 TFLOP/s"


@pytest.mark.parametrize(
    ("value", "text"), [(96.96, "97×"), (9.96, "10×"), (5.0, "5.0×"), (0.5, "0.5×"), (1234, "1,234×")]
)
def test_ratio(value: float, text: str) -> None:
    assert style.ratio(value) == text


def test_error_in_scientific_spelling() -> None:
    assert style.error(2.3e-3) == "2.3e-3"
    assert style.error(0) == "0"
    assert style.error(None) == "–"


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [style.LIGHT, style.DARK], ids=lambda theme: theme.name)
@pytest.mark.parametrize("ink", ["ink", "muted"])
@pytest.mark.parametrize("ground", ["paper", "card"])
def test_text_has_contrast(theme: style.Theme, ink: str, ground: str) -> None:
    bright, dark = sorted((luminance(getattr(theme, ink)), luminance(getattr(theme, ground))), reverse=True)
    assert (bright + 0.05) / (dark + 0.05) >= 4.5


def contrast(one: str, other: str) -> float:
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colour", [*style.TENSOR.values(), *style.STATE.values(), *style.KERNEL.values()])
def test_graphics_have_contrast_in_the_dark(colour: str) -> None:
    assert contrast(style.shade(colour, style.DARK), style.DARK.card) >= 3
    assert style.shade(colour, style.LIGHT) == colour


@pytest.mark.parametrize("colour", style.DIRECTION.values())
def test_words_on_a_bar_can_be_read(colour: str) -> None:
    assert contrast(style.ink_on(colour), colour) >= 4.5


def test_kernels_have_one_colour_each_and_libraries_share_one() -> None:
    assert style.kernel_colour("naive") == "#C4622D"
    assert style.kernel_colour("flash") == "#0B7A75"
    assert style.kernel_colour("library") == style.kernel_colour("cudnn") == "#829AB1"
