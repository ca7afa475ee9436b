# SPDX-License-Identifier: MIT
"""What monitoring programs ask NVML."""

import ctypes

import pynvml as n

tracer = getattr(ctypes.CDLL(None), "nvtrace_mark", None)


def ask(name: str, *args: object) -> object:
    """Call one NVML function; its name and answer go into the trace."""
    try:
        answer = getattr(n, name)(*args)
    except n.NVMLError as error:
        answer = error
    line = f"{name}: {answer}"[:400].replace("\n", " ")
    print(line, flush=True)
    if tracer is not None:
        tracer(line.encode())
    return answer


ask("nvmlInit")
ask("nvmlSystemGetDriverVersion")
ask("nvmlSystemGetCudaDriverVersion_v2")
ask("nvmlDeviceGetCount")
card = ask("nvmlDeviceGetHandleByIndex", 0)
for question in (
    "Name", "UUID", "MinorNumber", "PciInfo", "MemoryInfo", "BAR1MemoryInfo", "UtilizationRates",
    "ComputeRunningProcesses", "GraphicsRunningProcesses", "PowerUsage", "EnforcedPowerLimit",
    "PersistenceMode", "ComputeMode", "EccMode", "MigMode", "CudaComputeCapability", "Brand",
    "NumGpuCores", "EncoderUtilization", "DecoderUtilization", "PerformanceState",
    "TotalEnergyConsumption", "CurrPcieLinkGeneration", "CurrPcieLinkWidth", "RetiredPages_v2",
    "Architecture", "MemoryBusWidth", "SupportedEventTypes", "AccountingMode",
):  # fmt: skip
    if question == "RetiredPages_v2":
        ask("nvmlDeviceGetRetiredPages_v2", card, 0)
    else:
        ask(f"nvmlDeviceGet{question}", card)
ask("nvmlDeviceGetMemoryInfo", card, n.nvmlMemory_v2)
ask("nvmlDeviceGetTemperature", card, n.NVML_TEMPERATURE_GPU)
ask("nvmlDeviceGetClockInfo", card, n.NVML_CLOCK_SM)
ask("nvmlDeviceGetMaxClockInfo", card, n.NVML_CLOCK_MEM)
ask("nvmlDeviceGetProcessUtilization", card, 0)
ask("nvmlShutdown")
