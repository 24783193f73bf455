"""Live GPU: what NVML says now and over the last minute, and what can be measured here; it refreshes itself."""

from collections.abc import Sequence

import plotly.graph_objects as go
import streamlit as st

from app import doctor_table, page
from app.devices import feed
from app.picture import Figure, Headline, Picture
from app.style import DIRECTION, KERNEL, Theme, capacity, template
from profiler.gpu_sample import GpuSample
from profiler.run import DeviceInfo, Run

TITLE = "Live GPU"
ICON = ":material/monitor_heart:"
ORDER = 100
REFRESH_SECONDS = 1.0
SHOWN_SECONDS = 60.0
MOST_POINTS = 300

# title, caption, unit, factor, and the fields drawn with their colours
CHARTS: tuple[tuple[str, str, str, float, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "Memory used",
        "Of all processes, as nvidia-smi shows it.",
        "GiB",
        2.0**30,
        (("", "memory_used_bytes", KERNEL["flash"]),),
    ),
    (
        "Busy",
        "Share of time in which a kernel ran, and in which memory was read or written: no bandwidth.",
        "% of time",
        1.0,
        (("kernel", "gpu_busy_percent", KERNEL["flash"]), ("memory", "memory_busy_percent", DIRECTION["read"])),
    ),
    ("Power", "The driver's mean over about a second.", "W", 1.0, (("", "power_watts", DIRECTION["write"]),)),
    (
        "Clocks",
        "SM and memory clock.",
        "MHz",
        1e6,
        (("SM", "sm_clock_hertz", KERNEL["flash"]), ("memory", "memory_clock_hertz", DIRECTION["read"])),
    ),
    ("Temperature", "Of the GPU's core.", "°C", 1.0, (("", "temperature_celsius", DIRECTION["write"]),)),
)


def render(runs: tuple[Run, ...]) -> None:
    """Draw the page; `runs` do not matter here."""
    st.fragment(_live, run_every=REFRESH_SECONDS)()
    doctor_table.draw()


def _live() -> None:
    source = feed()
    found = {info.device: info for info in source.devices()}
    if source.why_no_gpu is not None or not found:
        page.headline(Headline("No live readings of a GPU.", source.why_no_gpu or "NVML names no GPU."))
        page.empty("Everything but these readings works without a GPU; the page looks again by itself.")
        return
    names = list(found)
    device = names[0]
    if len(names) > 1:
        device = st.selectbox("GPU", names, format_func=lambda name: f"{name} · {found[name].name}", key="live-device")
    now = source.latest(device)
    if now is None:
        page.headline(Headline(f"{found[device].name} has not answered yet.", "Waiting for NVML's first reading."))
        return
    page.headline(headline(found[device], now))
    for fault in source.faults():
        page.message("error", fault)
    page.figures(figures(now))
    pictures = charts(source.history(device, SHOWN_SECONDS), now, page.theme())
    for row in (pictures[:3], pictures[3:]):
        for column, picture in zip(st.columns(3), row, strict=False):
            with column:
                page.picture(picture, f"live-{picture.title}")


def headline(info: DeviceInfo, now: GpuSample) -> Headline:
    """What the GPU does now, in words."""
    if now.why_silent:
        return Headline(f"{info.name} does not answer.", f"{now.why_silent}. The page looks again by itself.")
    busy = now.gpu_busy_percent
    doing = (
        "its load is not known"
        if busy is None
        else "it is idle"
        if busy < 1
        else f"a kernel runs {busy:.0f}% of the time"
    )
    processes = now.compute_processes
    users = "" if processes is None else f", {processes} compute process{'' if processes == 1 else 'es'}"
    facts = (
        f"driver {info.driver}" if info.driver else "",
        f"{info.sm_count} SMs" if info.sm_count else "",
        info.device,
    )
    return Headline(f"{info.name}: {doing}.", f"{', '.join(filter(None, facts))}{users}. NVML, 20 readings a second.")


def figures(now: GpuSample) -> tuple[Figure, ...]:
    """Five readings; NVML's reason where one is missing."""
    of_total = f"of {capacity(now.memory_total_bytes)}" if now.memory_total_bytes is not None else ""
    clock = f"memory {now.memory_clock_hertz / 1e6:,.0f} MHz" if now.memory_clock_hertz is not None else ""
    heat = f"{now.temperature_celsius:.0f} °C" if now.temperature_celsius is not None else ""
    sm_clock = None if now.sm_clock_hertz is None else now.sm_clock_hertz / 1e6
    used = None if now.memory_used_bytes is None else capacity(now.memory_used_bytes)
    return (
        _figure(now, "memory used", "memory_used_bytes", used, of_total),
        _figure(now, "kernel running", "gpu_busy_percent", _spelled(now.gpu_busy_percent, "%"), "of time"),
        _figure(
            now, "memory busy", "memory_busy_percent", _spelled(now.memory_busy_percent, "%"), "of time, no bandwidth"
        ),
        _figure(now, "power", "power_watts", _spelled(now.power_watts, " W"), heat),
        _figure(now, "SM clock", "sm_clock_hertz", _spelled(sm_clock, " MHz"), clock),
    )


def _spelled(value: float | None, unit: str) -> str | None:
    return None if value is None else f"{value:,.0f}{unit}"


def _figure(now: GpuSample, label: str, field: str, value: str | None, detail: str) -> Figure:
    if value is None:
        return Figure(label, "–", "nvml", reason=now.missing.get(field, "NVML gives no answer."))
    return Figure(label, value, "nvml", detail)


def charts(samples: Sequence[GpuSample], now: GpuSample, theme: Theme) -> tuple[Picture, ...]:
    """One small chart for each quantity that has been read, over the last minute."""
    thinned = samples[:: max(1, len(samples) // MOST_POINTS)]
    pictures = []
    for title, caption, unit, factor, lines in CHARTS:
        figure = go.Figure()
        for name, field, colour in lines:
            points = [(s.time - now.time, getattr(s, field)) for s in thinned if getattr(s, field) is not None]
            if not points:
                reason = now.missing.get(field, "NVML gives no answer.")
                caption = f"{caption} {name or title}: – ({reason})"
                continue
            x, y = zip(*points, strict=True)
            figure.add_scatter(
                x=x, y=[v / factor for v in y], mode="lines", line={"color": colour, "width": 2}, name=name
            )
            if name:
                figure.add_annotation(
                    x=x[-1],
                    y=y[-1] / factor,
                    text=name,
                    font={"color": colour},
                    xanchor="right",
                    yanchor="bottom",
                    showarrow=False,
                )
        top = 105.0 if unit.startswith("%") else None
        figure.update_layout(template=template(theme), height=190, showlegend=False, uirevision=title)
        figure.update_xaxes(title="seconds before now", range=[-SHOWN_SECONDS, 0], fixedrange=True)
        figure.update_yaxes(title=unit, range=[0, top], fixedrange=True, rangemode="tozero")
        pictures.append(Picture(title, caption, figure))
    return tuple(pictures)
