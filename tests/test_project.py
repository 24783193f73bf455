"""What a stranger relies on before reading any code: commands, pins, image, documents, and no trace of one machine."""

import json
import os
import re
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from app.form_words import HELP
from app.style import SOURCE_BADGE, STATE, TENSOR
from kernels.problem import AttentionProblem, TileConfig
from profiler.counter import all_counters

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
GLOSSARY = (ROOT / "docs/GLOSSARY.md").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PACKAGES = ("app", "kernels", "profiler")
TEXTS = {".py", ".md", ".toml", ".txt", ".css", ".js", ".sh", ""}


def texts() -> list[Path]:
    """Every file of the project that a person wrote."""
    folders = (*PACKAGES, "tests", "docs", "benchmarks", ".ci", ".streamlit")
    inside = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    return [path for path in (*ROOT.iterdir(), *inside) if path.is_file() and path.suffix in TEXTS]


def test_readme_starts_with_the_two_commands() -> None:
    first_screen = "\n".join(README.splitlines()[:25])
    assert re.search(r"^make run\b", first_screen, re.M)
    assert re.search(r"^make test\b", first_screen, re.M)
    assert "docs/overview.png" in first_screen


@pytest.mark.parametrize("command", ["doctor", "run", "audit", "report", "schedule", "list"])
def test_readme_shows_every_command(command: str) -> None:
    assert f"python -m profiler {command}" in README


def test_readme_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_ci_does_what_the_readme_says() -> None:
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
    assert "make test" in script.read_text()


def test_make_offers_what_the_documents_name() -> None:
    for target in ("run", "test", "test-gpu"):
        words = ["make", "-n", target, "PORT=8611"]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert target != "run" or "--server.address 127.0.0.1 --server.port 8611" in done.stdout


def test_requirements_pin_torch_with_its_triton_and_name_no_host() -> None:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    assert "torch==2.13.0" in lines
    assert any(line.startswith("triton==3.7.1; sys_platform") for line in lines)
    for name in ("requirements.txt", "requirements-dev.txt"):
        wanted = [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")]
        assert not any("://" in line or line.startswith("--") for line in wanted)
        assert all(line.startswith("-r ") or re.search(r"[=~<]=?\d", line) for line in wanted), "a bound for each"


def instructions(word: str) -> list[str]:
    whole_lines = re.sub(r"\\\n\s*", "", DOCKERFILE)
    return [line.removeprefix(word).strip() for line in whole_lines.splitlines() if line.startswith(f"{word} ")]


def test_image_runs_as_a_plain_user_with_a_compiler_a_health_check_and_a_volume() -> None:
    assert instructions("USER") == ["1000"]
    assert "useradd --create-home --uid 1000" in DOCKERFILE
    assert re.search(r"apt-get install .* gcc libc6-dev", " ".join(instructions("RUN")))
    assert "/_stcore/health" in instructions("HEALTHCHECK")[0]
    assert instructions("EXPOSE") == ["8501"]
    assert instructions("VOLUME") == ["/data/runs"]
    assert "BYTESCOPE_RUNS=/data/runs" in instructions("ENV")[0]
    command = json.loads(instructions("CMD")[0])
    assert command[command.index("--server.address") + 1] == "0.0.0.0"
    # The plain run has no rights and lets nobody else in; what the capability is for is said beside it.
    assert "docker run --gpus all -p 127.0.0.1:8501:8501 -v bytescope:/data/runs bytescope" in README
    assert not re.search("docker run[^`\n]*SYS_ADMIN", README + DOCKERFILE) and "--cap-add SYS_ADMIN" in README


def test_image_holds_every_package_and_what_is_copied_reaches_the_build() -> None:
    sources = [line.split()[0] for line in instructions("COPY")]
    assert set(PACKAGES) < set(sources)
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert let_in == set(sources)


def test_glossary_has_every_word_of_the_code_and_the_form() -> None:
    bold, code = re.findall(r"\*\*([^*]+)\*\*", GLOSSARY), re.findall(r"`([^`]+)`", GLOSSARY)
    terms = {*bold, *code, *(word for term in bold for word in term.split(", "))}
    wanted = {field.name for kind in (AttentionProblem, TileConfig) for field in fields(kind)}
    wanted |= set(HELP) | set(SOURCE_BADGE) | set(SOURCE_BADGE.values())
    wanted |= {name for counter in all_counters() for name, _, _ in counter.quantities}
    wanted |= {"flops", "compulsory_bytes", "requested_read_bytes", "requested_write_bytes", "predicted_peak_bytes"}
    wanted |= {"relative_error", "max_abs_error"}
    wanted |= {name.upper() for name in TENSOR if len(name) == 1} | {name for name in TENSOR if len(name) > 1}
    wanted |= {"exact prefix" if name == "exact" else name for name in STATE}
    assert wanted - terms == set()


def test_nothing_names_one_machine_or_a_package_registry() -> None:
    host = re.compile(r"\b(files\.)?py" + r"thonhosted\.org|\bpy" + r"pi\.org|deb\.deb" + r"ian\.org")
    for path in texts():
        text = path.read_text(encoding="utf-8")
        assert str(ROOT) not in text, path
        assert not re.search(r"/(root|home/\w+|Users/\w+)/", text), path
        assert not host.search(text), path
