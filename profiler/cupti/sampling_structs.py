"""The parameter block of each PM sampling call, as cupti_pmsampling.h lays it out.

The header is the same in CUDA 12.8 (API 26) and 13.0 (API 130001), so that either library takes these sizes.
"""

from ctypes import c_int, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p

from profiler.cupti.structs import IMAGE, NAMES, params

PmSamplingEnable = params(
    "cuptiPmSamplingEnable",
    "CUpti_PmSampling_Enable_Params",
    deviceIndex=c_size_t,
    pPmSamplingObject=c_void_p,
)
PmSamplingDisable = params("cuptiPmSamplingDisable", "CUpti_PmSampling_Disable_Params", pPmSamplingObject=c_void_p)
PmSamplingSetConfig = params(
    "cuptiPmSamplingSetConfig",
    "CUpti_PmSampling_SetConfig_Params",
    pPmSamplingObject=c_void_p,
    configSize=c_size_t,
    pConfig=IMAGE,
    hardwareBufferSize=c_size_t,
    samplingInterval=c_uint64,
    triggerMode=c_int,
    hwBufferAppendMode=c_int,
)
PmSamplingGetCounterDataSize = params(
    "cuptiPmSamplingGetCounterDataSize",
    "CUpti_PmSampling_GetCounterDataSize_Params",
    pPmSamplingObject=c_void_p,
    pMetricNames=NAMES,
    numMetrics=c_size_t,
    maxSamples=c_uint32,
    counterDataSize=c_size_t,
)
PmSamplingCounterDataImageInitialize = params(
    "cuptiPmSamplingCounterDataImageInitialize",
    "CUpti_PmSampling_CounterDataImage_Initialize_Params",
    pPmSamplingObject=c_void_p,
    counterDataSize=c_size_t,
    pCounterData=IMAGE,
)
PmSamplingStart = params("cuptiPmSamplingStart", "CUpti_PmSampling_Start_Params", pPmSamplingObject=c_void_p)
PmSamplingStop = params("cuptiPmSamplingStop", "CUpti_PmSampling_Stop_Params", pPmSamplingObject=c_void_p)
PmSamplingDecodeData = params(
    "cuptiPmSamplingDecodeData",
    "CUpti_PmSampling_DecodeData_Params",
    pPmSamplingObject=c_void_p,
    pCounterDataImage=IMAGE,
    counterDataImageSize=c_size_t,
    decodeStopReason=c_int,
    overflow=c_uint8,
)
PmSamplingGetCounterDataInfo = params(
    "cuptiPmSamplingGetCounterDataInfo",
    "CUpti_PmSampling_GetCounterDataInfo_Params",
    pCounterDataImage=IMAGE,
    counterDataImageSize=c_size_t,
    numTotalSamples=c_size_t,
    numPopulatedSamples=c_size_t,
    numCompletedSamples=c_size_t,
)
PmSamplingCounterDataGetSampleInfo = params(
    "cuptiPmSamplingCounterDataGetSampleInfo",
    "CUpti_PmSampling_CounterData_GetSampleInfo_Params",
    pPmSamplingObject=c_void_p,
    pCounterDataImage=IMAGE,
    counterDataImageSize=c_size_t,
    sampleIndex=c_size_t,
    startTimestamp=c_uint64,
    endTimestamp=c_uint64,
)
