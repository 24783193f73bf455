"""The sidebar's form: what to run, what it will cost, and Run; it redraws alone while values change."""

from collections.abc import Mapping
from dataclasses import replace
from html import escape

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import asked, own_kernels, page, progress, queue_place, session
from app.cost import Cost, cost, refusal
from app.devices import devices, free_bytes
from app.form_values import begin, key_of, options, preset_options, values
from app.form_words import CAUSAL, COUNTERS, DETAIL, DRAIN, EMPTY, HELP, L2, LABELS
from app.presets import CUSTOM, FOR_CPU, FOR_GPU, PRESETS, fill, preset_of
from app.style import capacity, roughly, traffic
from app.unsent import unsent_html
from kernels.own import is_own
from kernels.problem import ELEMENT_BYTES, ORDERS, AttentionProblem, Refused, TileConfig
from profiler import auto
from profiler.device import limits
from profiler.project import project
from profiler.run import Run
from profiler.worker import DEFAULT_TIMEOUT, worker_for
from profiler.workload import AUTO, CPU, LADDER, TraceRequest, Workload

BLOCKS = (4, 8, 16, 32, 64, 128, 256)
WARPS, STAGES = (1, 2, 4, 8, 16), (1, 2, 3, 4, 5)
OTHERS: dict[str, object] = {
    "timeout": DEFAULT_TIMEOUT,
    "counters": AUTO,
    "drain": True,
    "detail": False,
    "repeats": 20,
    "seed": 0,
    "trace_head": 0,
    "trace_row": None,
}


def prepare() -> None:
    """Fill the form of a fresh session; before everything else that asks for its values."""
    default = next(iter(devices()))
    usual = fill(FOR_CPU if default == CPU else FOR_GPU, default) | OTHERS
    held = session.come_back()
    begin(usual | {name: value for name, value in held.items() if name in usual})


@st.fragment
def draw() -> None:
    """Draw the form; a click on Run starts a Job and redraws the page."""
    # Drawn alone, it may come after a late request of a page that was left, for which the server forgets all widgets.
    prepare()
    _fields(next(iter(devices())))
    wanted, reason = check(values())
    if wanted:
        _tell_pages(wanted)
    with st.container(key="bs-dock"):
        if wanted:
            st.html(cost_html(cost(wanted), wanted[0].device))
            if auto.KERNEL in _names(values()):
                problem = wanted[0].problem
                choice = auto.choose(problem, devices()[wanted[0].device])
                told = auto.sentence(choice, auto.tile_for(choice, problem))
                st.html(f'<p class="bs-others">{escape(told)}</p>')
        if others := shows_others(wanted, session.current()):
            st.html(f'<p class="bs-others">{escape(others)}</p>')
        if reason:
            page.message("error", reason)
        if session.job() is not None:
            progress.draw()
            return
        if not reason:
            worker = worker_for(wanted[0].device)
            worker.start()
            if worker.why_not is not None:
                page.message("error", worker.why_not)
        st.html(unsent_html(LABELS.values()))
        if wanted:
            queue_place.draw(wanted[0].device)
        if st.button("Run", type="primary", width="stretch", disabled=bool(reason), key="run"):
            session.start(wanted, _seconds(values()["timeout"]))
            st.rerun()


def _tell_pages(wanted: tuple[Workload, ...]) -> None:
    """What pages show of problems and tiles before anything has run; a page that follows the form is drawn anew."""
    state = st.session_state
    told = wanted[0].problem, next((workload.tile for workload in wanted if workload.tile), TileConfig())
    is_news = (state.get("problem"), state.get("tile")) != told
    is_first = "problem" not in state
    state["problem"], state["tile"] = told
    if is_news and not is_first and state.get("page-follows-form"):
        st.rerun()


def shows_others(wanted: tuple[Workload, ...], shown: tuple[Run, ...]) -> str:
    """A sentence where the pages show Runs of other settings than the form's; else empty."""
    # What an own kernel says of itself, that it has a schedule or takes no tile, is no setting of the form's.
    asked_for = {*wanted, *(replace(one, tile=None) for one in wanted if is_own(one.kernel))}
    return (
        ""
        if all(replace(run.workload, like="") in asked_for for run in shown)
        else "The Runs shown have other settings."
    )


def check(form: Mapping[str, object]) -> tuple[tuple[Workload, ...], str]:
    """The Workloads asked for, none if they cannot be built, and why they may not run, empty if they may."""
    try:
        wanted = request(form)
    except Refused as refused:
        return (), str(refused)
    device = wanted[0].device
    return wanted, refusal(wanted, devices()[device], free_bytes(device))


def request(form: Mapping[str, object]) -> tuple[Workload, ...]:
    """The Workloads that a form asks for. Raises Refused with a sentence that names the field."""

    def whole(name: str) -> int:
        value = form[name]
        if value is None or value == "":
            raise Refused(f"{name} is empty; give a whole number.")
        text = str(value).strip()
        if not text.removeprefix("-").isdecimal():
            raise Refused(f"{name} is {text[:20]!r}; it must be a whole number.")
        return int(text)

    def whole_or_none(name: str) -> int | None:
        return None if form[name] is None else whole(name)

    queries, keys = whole("seq_len_q"), whole_or_none("seq_len_kv")
    problem = AttentionProblem(
        whole("batch"),
        whole("heads"),
        whole("kv_heads"),
        queries,
        queries if keys is None else keys,
        whole("head_dim"),
        str(form["dtype"]),
        bool(form["causal"]),
        whole_or_none("window"),
        bool(form["backward"]),
    )
    tile = TileConfig(whole("BLOCK_M"), whole("BLOCK_N"), whole("num_warps"), whole("num_stages"))
    trace = TraceRequest(head=whole("trace_head"), row=whole_or_none("trace_row"))
    names = _names(form)
    # Rung by rung, so that the pictures show what is to be improved on above what improves it.
    ordered = tuple(name for name in (*own_kernels.offered(), auto.KERNEL) if name in names)
    _seconds(form["timeout"])
    counted = (str(form["counters"]), bool(form["drain"]), bool(form["detail"]))
    how = (whole("seed"), str(form["l2"]), whole("repeats"), trace, *counted)
    orders = form["order"]
    if not isinstance(orders, list | tuple) or not orders:
        raise Refused(f"No order is chosen; choose at least one of {', '.join(ORDERS)}.")
    in_order = tuple(sorted(map(str, orders), key=ORDERS.index))
    return auto.asked(ordered, problem, tile, str(form["device"]), how, in_order, devices().__getitem__)[0]


def _names(form: Mapping[str, object]) -> tuple[str, ...]:
    """The kernels chosen, as they are named."""
    chosen = form["kernels"]
    return tuple(map(str, chosen)) if isinstance(chosen, list | tuple) else ()


def _seconds(value: object) -> float:
    if not isinstance(value, int | float) or not 1 <= value <= 86_400:
        raise Refused("The time-out must be 1 to 86,400 seconds.")
    return float(value)


def cost_html(found: Cost, device: str) -> str:
    """The cost: a row for each kernel, then what the problem alone decides, each with the badge of its source."""
    rows = "".join(
        f'<tr><th title="{escape(title)}">{escape(title)}</th><td>{traffic(size)}</td>'
        f"<td>{capacity(found.memory_bytes[title])}</td></tr>"
        for title, size in found.requested_bytes.items()
    )
    time = found.interpreted_seconds
    facts = [
        f"compulsory {traffic(found.compulsory_bytes)}",
        f"score matrix {traffic(found.score_bytes)} {page.badge('model')}",
        f"{capacity(free_bytes(device))} free {page.badge('' if device == CPU else 'nvml')}".rstrip(),
    ]
    if time is not None:
        facts.append(f"roughly {roughly(time)}, interpreted")
    return (
        f'<div class="bs-cost"><table><tr><th></th><td>requested {page.badge("schedule")}</td>'
        f"<td>memory {page.badge('model')}</td></tr>{rows}</table>"
        f"<p>{''.join(f'<span>{fact}</span>' for fact in facts)}</p></div>"
    )


def _fields(default: str) -> None:
    name = preset_of(values(), default)
    names = [*PRESETS] if name in PRESETS else [*PRESETS, CUSTOM]
    st.selectbox("Preset", names, names.index(name), **preset_options(name, default))
    found = devices()
    if values()["device"] not in found:
        st.session_state[key_of("device")] = default
    st.selectbox("Device", list(found), **options("device"), format_func=lambda name: f"{name} · {found[name].name}")
    _numbers("batch", "heads", "kv_heads")
    _numbers("seq_len_q", "seq_len_kv", "window")
    left, middle, right = st.columns([0.8, 1.15, 1.15], vertical_alignment="bottom")
    _number(left, "head_dim")
    middle.selectbox("dtype", list(ELEMENT_BYTES), **options("dtype"))
    right.checkbox("causal", **options("causal"), help=CAUSAL)
    right.checkbox("backward", **options("backward"))  # a help sign beside it would cost letters of the word
    _choices(("BLOCK_M", BLOCKS), ("BLOCK_N", BLOCKS))
    _choices(("num_warps", WARPS), ("num_stages", STAGES))
    st.pills("order", _orders(), selection_mode="multi", **options("order"), help=HELP["order"])
    titles = own_kernels.titles()
    shown, absent = _kernels()
    titles |= {auto.KERNEL: "Auto"}
    st.pills(
        "kernels", shown, selection_mode="multi", format_func=titles.__getitem__, **options("kernels"),
        help=" ".join(("Not offered here:", *absent)) if absent else None,
    )  # fmt: skip
    if project().fault:
        page.message("error", project().fault)
    on_cpu = values()["device"] == CPU
    st.segmented_control(asked.L2, ["cold", "warm"], **options("l2"), required=True, disabled=on_cpu, help=L2)
    with st.expander("More settings"):
        st.selectbox(asked.COUNTERS, [AUTO, *LADDER], **options("counters"), disabled=on_cpu, help=COUNTERS)
        st.checkbox(asked.DRAIN, **options("drain"), disabled=on_cpu, help=DRAIN)
        st.checkbox(asked.DETAIL, **options("detail"), disabled=on_cpu, help=DETAIL)
        st.number_input(LABELS["timeout"], **options("timeout"), step=10.0)
        _numbers("repeats", "seed")
        _numbers("trace_head", "trace_row")


def _orders() -> list[str]:
    """Orders of the kernels that run on the form's device, and those that are chosen all the same."""
    running, kept = own_kernels.run_on(devices()[str(values()["device"])]), values()["order"]
    having = {order for kernel in running.values() for order in kernel.orders}
    having |= set(kept) if isinstance(kept, list | tuple) else set()
    return [order for order in ORDERS if order in having]


def _kernels() -> tuple[list[str], list[str]]:
    """Kernels that run the form's passes on its device, and those that are chosen all the same; of the others why not.

    Of what is chosen and does not run a sentence of the form's says so.
    """
    device, is_backward = devices()[str(values()["device"])], bool(values()["backward"])
    running, kept = own_kernels.run_on(device), _names(values())
    fitting = {name for name, kernel in running.items() if kernel.has_backward or not is_backward}
    shown = [name for name in own_kernels.offered() if name in fitting or name in kept]
    others = {name: kernel for name, kernel in own_kernels.offered().items() if name not in shown}
    if auto.has_table(device.name) or auto.KERNEL in kept:
        shown.append(auto.KERNEL)
    gpu = limits(device)
    absent = [kernel.why_not_on(gpu) for name, kernel in others.items() if name not in running]
    if reason := auto.fault():
        absent.append(reason)
    forward_only = [kernel.title for name, kernel in others.items() if name in running]
    return shown, absent + ([f"Without a backward pass: {', '.join(forward_only)}."] if forward_only else [])


def _numbers(*names: str) -> None:
    for column, name in zip(st.columns(len(names)), names, strict=True):
        _number(column, name)


def _number(column: DeltaGenerator, name: str) -> None:
    """A whole number without limits of the form's own: what cannot be is refused with a sentence, not clamped."""
    label, told = LABELS[name], options(name)
    if name in EMPTY:
        column.number_input(label, step=1, value=None, placeholder=EMPTY[name], **told, help=HELP.get(name))
    else:
        column.number_input(label, step=1, **told, help=HELP.get(name))


def _choices(*fields: tuple[str, tuple[int, ...]]) -> None:
    for column, (name, offered) in zip(st.columns(len(fields)), fields, strict=True):
        column.selectbox(name, offered, **options(name), accept_new_options=True, help=HELP.get(name))
