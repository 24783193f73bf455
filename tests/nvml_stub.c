/* A libnvidia-ml.so.1 without a driver: H200s that answer, or fail, as the file $NVML_STUB says at each call.

   The file holds words "name=value": gpus=1 mig=0 lost=-1 error=0 init=0 hang=0 crash=0 nonsense=0, where error is what
   every call answers, init what nvmlInit answers, lost the index of a GPU that is lost, mig the instances of each GPU. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, INVALID = 2, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15 };
#define GIB (1ull << 30)

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process;
typedef struct { unsigned sms, copy, decoder, encoder, jpeg, ofa, gpu_slices, compute_slices; unsigned long long mb; } attributes;

static long told(const char *name, long otherwise) {
    char text[512] = "", pattern[32];
    const char *path = getenv("NVML_STUB"), *found;
    FILE *file = path ? fopen(path, "r") : NULL;
    if (file) {
        text[fread(text, 1, sizeof text - 1, file)] = 0;
        fclose(file);
    }
    snprintf(pattern, sizeof pattern, "%s=", name);
    found = strstr(text, pattern);
    return found ? strtol(found + strlen(pattern), NULL, 0) : otherwise;
}

static int state(void) {
    if (told("crash", 0)) raise(SIGSEGV);
    while (told("hang", 0)) usleep(20000);
    return (int)told("error", 0);
}

/* A GPU is its index + 1, the instance i of it 256 * (i + 1) more. */
static int of(void *device) {
    long number = (long)device, gpu = (number & 255) - 1, instance = (number >> 8) - 1;
    int answer = state();
    if (answer) return answer;
    if (gpu < 0 || gpu >= told("gpus", 1)) return INVALID;
    if (instance >= told("mig", 0)) return NOT_FOUND;
    return gpu == told("lost", -1) ? LOST : OK;
}

static int is_instance(void *device) { return (long)device > 255; }

static unsigned or_nonsense(unsigned value) { return told("nonsense", 0) ? 0xFFFFFFFFu : value; }

#define FOR(device) do { int answer = of(device); if (answer) return answer; } while (0)

int nvmlInitWithFlags(unsigned flags) { int answer = state(); (void)flags; return answer ? answer : (int)told("init", 0); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == LOST ? "GPU is lost" : "an error"; }

int nvmlDeviceGetCount_v2(unsigned *count) { int answer = state(); *count = (unsigned)told("gpus", 1); return answer; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(long)(index + 1);
    return of(*device);
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
    FOR(device);
    if (is_instance(device)) snprintf(text, size, "MIG-%08lx-0000-0000-0000-000000000000", (long)device);
    else snprintf(text, size, "GPU-%08lx-0000-0000-0000-000000000000", (long)device);
    return OK;
}

int nvmlDeviceGetName(void *device, char *text, unsigned size) {
    FOR(device);
    snprintf(text, size, told("nonsense", 0) ? "\xff\xfe\x80" : is_instance(device) ? "NVIDIA H200 MIG 1g.18gb" : "NVIDIA H200");
    return OK;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, memory_v2 *memory) {
    FOR(device);
    memory->total = told("nonsense", 0) ? ~0ull : is_instance(device) ? 16 * GIB : 140 * GIB;
    memory->used = told("nonsense", 0) ? ~0ull : 3 * GIB;
    memory->free = memory->total - memory->used;
    memory->reserved = 0;
    return OK;
}

int nvmlDeviceGetMemoryInfo(void *device, memory_v1 *memory) {
    FOR(device);
    memory->total = told("nonsense", 0) ? ~0ull : is_instance(device) ? 16 * GIB : 140 * GIB;
    memory->used = 3 * GIB;
    memory->free = memory->total - memory->used;
    return OK;
}

int nvmlDeviceGetUtilizationRates(void *device, utilization *rates) {
    FOR(device);
    if (is_instance(device)) return NOT_SUPPORTED;
    rates->gpu = or_nonsense(42);
    rates->memory = or_nonsense(17);
    return OK;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { FOR(device); *milliwatts = or_nonsense(512000); return OK; }
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) { FOR(device); (void)sensor; *celsius = or_nonsense(51); return OK; }
int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz) { FOR(device); *mhz = or_nonsense(kind == 2 ? 3201 : 1980); return OK; }
int nvmlDeviceGetMaxClockInfo(void *device, int kind, unsigned *mhz) { FOR(device); *mhz = or_nonsense(kind == 2 ? 3201 : 1980); return OK; }
int nvmlDeviceGetMemoryBusWidth(void *device, unsigned *bits) { FOR(device); *bits = or_nonsense(6144); return OK; }
int nvmlDeviceGetNumGpuCores(void *device, unsigned *cores) { FOR(device); *cores = or_nonsense(132 * 128); return OK; }

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    FOR(device);
    *major = (int)or_nonsense(9);
    *minor = (int)or_nonsense(0);
    return OK;
}

int nvmlDeviceGetGpuInstanceId(void *device, unsigned *id) {
    FOR(device);
    *id = 7;
    return is_instance(device) ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetAttributes_v2(void *device, attributes *found) {
    FOR(device);
    if (!is_instance(device)) return NOT_SUPPORTED;
    memset(found, 0, sizeof *found);
    found->sms = or_nonsense(16);
    return OK;
}

int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *later) { FOR(device); *now = *later = told("mig", 0) > 0; return OK; }
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) { FOR(device); *count = or_nonsense(7); return OK; }

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **instance) {
    FOR(device);
    if ((long)index >= told("mig", 0)) return NOT_FOUND;
    *instance = (void *)((long)device + 256 * (long)(index + 1));
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process *found) {
    FOR(device);
    unsigned room = *count;
    *count = or_nonsense(1);
    if (!found || room < 1) return TOO_SMALL;
    memset(found, 0, sizeof *found);
    found->pid = 4242;
    found->used = 2 * GIB;
    return OK;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) { int answer = state(); snprintf(text, size, "580.95.05"); return answer; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { int answer = state(); *version = 13000; return answer; }
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) { FOR(device); *millijoules = 1000; return OK; }
