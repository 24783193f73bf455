"""The parameter block of each CUPTI call, as the C headers lay it out.

Sources: cupti_target.h, cupti_profiler_target.h, cupti_profiler_host.h and cupti_range_profiler.h, alike in
CUDA 12.8 (API 26, Triton's copy) and 13.0 (API 130001). structSize tells a later library what it gets.
"""

import ctypes
from ctypes import POINTER, c_char, c_char_p, c_double, c_int, c_size_t, c_uint8, c_uint16, c_uint32, c_void_p
from typing import Any, ClassVar, cast

IMAGE = POINTER(c_char)
NAMES = POINTER(c_char_p)


class Params(ctypes.Structure):
    """What one CUPTI call takes and gives back; unset fields are 0 or NULL, structSize is set here."""

    _fields_ = [("structSize", c_size_t), ("pPriv", c_void_p)]
    function: ClassVar[str]

    def __init__(self, **values: Any) -> None:
        last = getattr(type(self), self._fields_[-1][0])
        super().__init__(structSize=last.offset + last.size, **values)


def params(function: str, struct: str, **fields: Any) -> type[Params]:
    """The block named `struct` in C, with the fields after pPriv in order, of the call named `function`."""
    own_fields = {"_fields_": list(fields.items())} if fields else {}
    return cast("type[Params]", type(struct, (Params,), {"function": function, **own_fields}))


def c_names(names: tuple[str, ...]) -> "ctypes.Array[c_char_p]":
    """The names as a C array of C strings."""
    return (c_char_p * len(names))(*(name.encode() for name in names))


ProfilerInitialize = params("cuptiProfilerInitialize", "CUpti_Profiler_Initialize_Params")
DeviceGetChipName = params(
    "cuptiDeviceGetChipName", "CUpti_Device_GetChipName_Params", deviceIndex=c_size_t, pChipName=c_char_p
)

HostInitialize = params(
    "cuptiProfilerHostInitialize",
    "CUpti_Profiler_Host_Initialize_Params",
    profilerType=c_int,
    pChipName=c_char_p,
    pCounterAvailabilityImage=IMAGE,
    pHostObject=c_void_p,
)
HostDeinitialize = params(
    "cuptiProfilerHostDeinitialize", "CUpti_Profiler_Host_Deinitialize_Params", pHostObject=c_void_p
)
HostGetSupportedChips = params(
    "cuptiProfilerHostGetSupportedChips",
    "CUpti_Profiler_Host_GetSupportedChips_Params",
    numChips=c_size_t,
    ppChipNames=NAMES,
)
HostGetBaseMetrics = params(
    "cuptiProfilerHostGetBaseMetrics",
    "CUpti_Profiler_Host_GetBaseMetrics_Params",
    pHostObject=c_void_p,
    metricType=c_int,
    ppMetricNames=NAMES,
    numMetrics=c_size_t,
)
HostConfigAddMetrics = params(
    "cuptiProfilerHostConfigAddMetrics",
    "CUpti_Profiler_Host_ConfigAddMetrics_Params",
    pHostObject=c_void_p,
    ppMetricNames=NAMES,
    numMetrics=c_size_t,
)
HostGetConfigImageSize = params(
    "cuptiProfilerHostGetConfigImageSize",
    "CUpti_Profiler_Host_GetConfigImageSize_Params",
    pHostObject=c_void_p,
    configImageSize=c_size_t,
)
HostGetConfigImage = params(
    "cuptiProfilerHostGetConfigImage",
    "CUpti_Profiler_Host_GetConfigImage_Params",
    pHostObject=c_void_p,
    configImageSize=c_size_t,
    pConfigImage=IMAGE,
)
HostGetNumOfPasses = params(
    "cuptiProfilerHostGetNumOfPasses",
    "CUpti_Profiler_Host_GetNumOfPasses_Params",
    configImageSize=c_size_t,
    pConfigImage=IMAGE,
    numOfPasses=c_size_t,
)
HostEvaluateToGpuValues = params(
    "cuptiProfilerHostEvaluateToGpuValues",
    "CUpti_Profiler_Host_EvaluateToGpuValues_Params",
    pHostObject=c_void_p,
    pCounterDataImage=IMAGE,
    counterDataImageSize=c_size_t,
    rangeIndex=c_size_t,
    ppMetricNames=NAMES,
    numMetrics=c_size_t,
    pMetricValues=POINTER(c_double),
)

RangeProfilerEnable = params(
    "cuptiRangeProfilerEnable",
    "CUpti_RangeProfiler_Enable_Params",
    ctx=c_void_p,
    pRangeProfilerObject=c_void_p,
)
RangeProfilerDisable = params(
    "cuptiRangeProfilerDisable", "CUpti_RangeProfiler_Disable_Params", pRangeProfilerObject=c_void_p
)
RangeProfilerGetCounterDataSize = params(
    "cuptiRangeProfilerGetCounterDataSize",
    "CUpti_RangeProfiler_GetCounterDataSize_Params",
    pRangeProfilerObject=c_void_p,
    pMetricNames=NAMES,
    numMetrics=c_size_t,
    maxNumOfRanges=c_size_t,
    maxNumRangeTreeNodes=c_uint32,
    counterDataSize=c_size_t,
)
RangeProfilerCounterDataImageInitialize = params(
    "cuptiRangeProfilerCounterDataImageInitialize",
    "CUpti_RangeProfiler_CounterDataImage_Initialize_Params",
    pRangeProfilerObject=c_void_p,
    counterDataSize=c_size_t,
    pCounterData=IMAGE,
)
RangeProfilerSetConfig = params(
    "cuptiRangeProfilerSetConfig",
    "CUpti_RangeProfiler_SetConfig_Params",
    pRangeProfilerObject=c_void_p,
    configSize=c_size_t,
    pConfig=IMAGE,
    counterDataImageSize=c_size_t,
    pCounterDataImage=IMAGE,
    range=c_int,
    replayMode=c_int,
    maxRangesPerPass=c_size_t,
    numNestingLevels=c_uint16,
    minNestingLevel=c_uint16,
    passIndex=c_size_t,
    targetNestingLevel=c_uint16,
)
RangeProfilerStart = params(
    "cuptiRangeProfilerStart", "CUpti_RangeProfiler_Start_Params", pRangeProfilerObject=c_void_p
)
RangeProfilerStop = params(
    "cuptiRangeProfilerStop",
    "CUpti_RangeProfiler_Stop_Params",
    pRangeProfilerObject=c_void_p,
    passIndex=c_size_t,
    targetNestingLevel=c_size_t,
    isAllPassSubmitted=c_uint8,
)
RangeProfilerPushRange = params(
    "cuptiRangeProfilerPushRange",
    "CUpti_RangeProfiler_PushRange_Params",
    pRangeProfilerObject=c_void_p,
    pRangeName=c_char_p,
)
RangeProfilerPopRange = params(
    "cuptiRangeProfilerPopRange", "CUpti_RangeProfiler_PopRange_Params", pRangeProfilerObject=c_void_p
)
RangeProfilerDecodeData = params(
    "cuptiRangeProfilerDecodeData",
    "CUpti_RangeProfiler_DecodeData_Params",
    pRangeProfilerObject=c_void_p,
    numOfRangeDropped=c_size_t,
)
RangeProfilerGetCounterDataInfo = params(
    "cuptiRangeProfilerGetCounterDataInfo",
    "CUpti_RangeProfiler_GetCounterDataInfo_Params",
    pCounterDataImage=IMAGE,
    counterDataImageSize=c_size_t,
    numTotalRanges=c_size_t,
)
RangeProfilerCounterDataGetRangeInfo = params(
    "cuptiRangeProfilerCounterDataGetRangeInfo",
    "CUpti_RangeProfiler_CounterData_GetRangeInfo_Params",
    pCounterDataImage=IMAGE,
    counterDataImageSize=c_size_t,
    rangeIndex=c_size_t,
    rangeDelimiter=c_char_p,
    rangeName=c_char_p,
)
