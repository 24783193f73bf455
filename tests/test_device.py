"""GPU facts from an NVML that answers what the test says, and "Uninitialized" to everything else."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from profiler.device import GPUS, cpu_device, detect, find_spec, limits, why_no_gpu
from profiler.nvml import chosen_uuids

ROOT = Path(__file__).parents[1]
GiB = 2**30
UUIDS = ["GPU-aaaa", "GPU-aabb", "GPU-cccc"]
H200 = {
    "nvmlInit": lambda: None,
    "nvmlShutdown": lambda: None,
    "nvmlDeviceGetCount": lambda: 2,
    "nvmlDeviceGetHandleByIndex": lambda index: index,
    "nvmlDeviceGetUUID": lambda gpu: UUIDS[gpu],
    "nvmlDeviceGetName": lambda gpu: "NVIDIA H200",
    "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(total=140 * GiB),
    "nvmlDeviceGetCudaComputeCapability": lambda gpu: (9, 0),
    "nvmlDeviceGetMaxClockInfo": lambda gpu, clock: {pynvml.NVML_CLOCK_MEM: 3201}[clock],
    "nvmlDeviceGetMemoryBusWidth": lambda gpu: 6016,
    "nvmlDeviceGetNumGpuCores": lambda gpu: 16896,
    "nvmlSystemGetDriverVersion": lambda: "580.159.04",
}


def answer(monkeypatch, **functions):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    for name, function in functions.items():
        monkeypatch.setattr(pynvml, name, function)


def refuse(code):
    def call(*_):
        raise pynvml.NVMLError(code)

    return call


def test_h200(monkeypatch):
    answer(monkeypatch, **H200)
    first, second = detect()
    assert (first.device, second.device) == ("cuda:0", "cuda:1")
    assert first.peak_hbm_bytes_per_second == pytest.approx(4.814304e12)
    assert first.peak_hbm_source == "NVML: 2 × 3201 MHz × 6016 bit / 8"
    assert (first.sm_count, first.memory_bytes, first.driver) == (132, 140 * GiB, "580.159.04")
    assert (first.l2_bytes, first.peak_flops_per_second) == (60 * 2**20, 989e12)
    assert limits(first).shared_memory_per_block == 227 * 1024
    assert why_no_gpu() is None


@pytest.mark.parametrize(
    ("megahertz", "bits", "gigabytes"), [(1215, 5120, 1555.2), (5001, 256, 320.064), (10501, 384, 1008.096)]
)
def test_peaks_of_other_memories(monkeypatch, megahertz, bits, gigabytes):
    clock = {"nvmlDeviceGetMaxClockInfo": lambda gpu, clock: megahertz, "nvmlDeviceGetMemoryBusWidth": lambda gpu: bits}
    answer(monkeypatch, **(H200 | clock))
    assert detect()[0].peak_hbm_bytes_per_second == pytest.approx(gigabytes * 1e9)


def test_what_nvml_does_not_answer_is_none_and_never_zero(monkeypatch):
    kept = ("nvmlInit", "nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex")
    answer(monkeypatch, **{name: H200[name] for name in kept}, nvmlDeviceGetMemoryBusWidth=lambda gpu: 0)
    gpu = detect()[0]
    assert gpu.name == "NVIDIA GPU without a name"
    numbers = (gpu.memory_bytes, gpu.compute_capability, gpu.sm_count, gpu.l2_bytes, gpu.peak_hbm_bytes_per_second)
    assert numbers == (None,) * 5
    assert "Uninitialized" in gpu.peak_hbm_source and "not in the table" in gpu.peak_flops_source
    assert limits(gpu) is None


def test_without_clocks_the_datasheet_is_named(monkeypatch):
    answer(monkeypatch, **(H200 | {"nvmlDeviceGetMaxClockInfo": refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)}))
    assert (detect()[0].peak_hbm_bytes_per_second, detect()[0].peak_hbm_source) == (4800e9, "datasheet")


def test_a_gpu_in_mig_mode_is_its_first_instance(monkeypatch):
    """The instance has its own SMs and memory, and neither the clocks nor the table may pass for its bandwidth."""
    instance = {
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetMigMode": lambda gpu: [1, 1],
        "nvmlDeviceGetMaxMigDeviceCount": lambda gpu: 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": lambda gpu, i: (
            refuse(pynvml.NVML_ERROR_NOT_FOUND)() if i != 3 else "mig"
        ),
        "nvmlDeviceGetUUID": lambda handle: "MIG-1234" if handle == "mig" else "GPU-aaaa",
        "nvmlDeviceGetName": lambda handle: "NVIDIA H200 MIG 1g.18gb" if handle == "mig" else "NVIDIA H200",
        "nvmlDeviceGetGpuInstanceId": lambda handle: {"mig": 9}[handle],
        "nvmlDeviceGetAttributes": lambda handle: SimpleNamespace(multiprocessorCount=16),
    }
    answer(monkeypatch, **(H200 | instance))
    (gpu,) = detect()
    assert (gpu.name, gpu.sm_count) == ("NVIDIA H200 MIG 1g.18gb", 16)
    assert (gpu.peak_hbm_bytes_per_second, gpu.peak_flops_per_second, gpu.l2_bytes) == (None, None, None)
    assert "MIG" in gpu.peak_hbm_source
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-12")
    assert detect() == (gpu,)


@pytest.mark.parametrize(
    ("variable", "chosen"),
    [
        (None, UUIDS),
        ("", []),
        ("-1", []),
        ("2,0", ["GPU-cccc", "GPU-aaaa"]),
        ("1, 7, 0", ["GPU-aabb"]),
        ("GPU-cc,GPU-aaaa", ["GPU-cccc", "GPU-aaaa"]),
        ("GPU-aa", []),
        ("1,1", []),
        ("MIG-7", ["MIG-77"]),
        ("all", []),
    ],
)
def test_cuda_visible_devices(variable, chosen):
    assert chosen_uuids(variable, UUIDS, ["MIG-77"]) == chosen


def test_visible_devices_reorder_the_gpus_or_hide_them_all(monkeypatch):
    answer(monkeypatch, **(H200 | {"nvmlDeviceGetName": lambda gpu: f"GPU {gpu}"}))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert [(gpu.device, gpu.name) for gpu in detect()] == [("cuda:0", "GPU 1"), ("cuda:1", "GPU 0")]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert detect() == ()
    assert why_no_gpu() == "CUDA_VISIBLE_DEVICES='' hides every GPU here; unset it, or name one that exists."


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        ({"nvmlInit": refuse(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)}, "install the NVIDIA driver"),
        ({"nvmlInit": refuse(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)}, "load the NVIDIA driver"),
        ({"nvmlInit": refuse(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)}, "restart the machine"),
        ({"nvmlDeviceGetCount": lambda: 0}, "sees no GPU."),
        ({"nvmlDeviceGetHandleByIndex": refuse(pynvml.NVML_ERROR_NO_PERMISSION)}, "/dev/nvidia*"),
        ({"nvmlDeviceGetCount": refuse(pynvml.NVML_ERROR_GPU_IS_LOST)}, "GPU is lost"),
    ],
)
def test_why_there_is_no_gpu(monkeypatch, functions, words):
    answer(monkeypatch, **(H200 | functions))
    assert detect() == ()
    assert words in why_no_gpu() and why_no_gpu().endswith(".")


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert detect() == ()
    assert "nvidia-ml-py is not installed" in why_no_gpu()


def test_the_table_takes_exact_products_only():
    assert find_spec("NVIDIA H100 80GB HBM3") is GPUS["h100"]
    assert find_spec("A100-SXM4-80GB") is GPUS["a100"]
    for other in ("NVIDIA H100 PCIe", "NVIDIA A10G", "NVIDIA GH200 480GB", "NVIDIA GeForce RTX 4090 Laptop GPU"):
        assert find_spec(other) is None
    # The article gives the A100 228 KB of shared memory; that is the H100.
    assert GPUS["a100"].shared_memory_per_sm == 164 * 1024
    assert GPUS["a100"].limits.shared_memory_per_block == 163 * 1024
    assert [key for key, spec in GPUS.items() if not spec.has_bfloat16] == ["v100", "t4"]


def test_the_cpu():
    cpu = cpu_device()
    assert cpu.device == "cpu" and cpu.name and cpu.memory_bytes > GiB
    assert limits(cpu) is None


def test_looking_for_gpus_loads_no_torch():
    code = "import sys, profiler.device as d; d.detect(); sys.exit(bool({'torch', 'triton'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.gpu
@pytest.mark.skipif(bool(why_no_gpu()), reason=str(why_no_gpu()))
def test_nvml_and_cuda_agree_on_this_gpu():
    import torch

    found, cuda = detect()[0], torch.cuda.get_device_properties(0)
    assert (found.name, found.compute_capability) == (cuda.name, (cuda.major, cuda.minor))
    assert found.sm_count == cuda.multi_processor_count
    assert found.l2_bytes in (None, cuda.L2_cache_size)
    assert found.memory_bytes == pytest.approx(cuda.total_memory, rel=0.03)
