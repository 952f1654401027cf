/* A fake of libnvidia-ml.so.1: what NVML would say is read, at every call, from the file that FAKE_NVML names.

   Lines of the file: "NAME VALUE" with the names asked for below; "fail FUNCTION CODE" makes a function answer with an
   NVML error; "hang FUNCTION 1" lets it wait until the line is gone. Functions are named without their _v2. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *device_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int gpu, memory; } utilization_t;

enum { SUCCESS = 0, NOT_FOUND = 6, INVALID_ARGUMENT = 2, UNKNOWN = 999, SM = 1 };

static int look(const char *first, const char *second, unsigned long long *value)
{
    char line[256], one[64], two[64], three[64];
    FILE *file = fopen(getenv("FAKE_NVML"), "r");
    int found = 0;
    while (file && fgets(line, sizeof line, file)) {
        int words = sscanf(line, "%63s %63s %63s", one, two, three);
        if (strcmp(one, first) || words < 2 || (second && (words < 3 || strcmp(two, second))))
            continue;
        *value = strtoull(second ? three : two, NULL, 0);
        found = 1;
    }
    if (file)
        fclose(file);
    return found;
}

static int enter(const char *function)
{
    unsigned long long value = SUCCESS;
    while (look("hang", function, &value))
        usleep(5000);
    look("fail", function, &value);
    return (int)value;
}

static int answer(const char *function, const char *name, unsigned int *into)
{
    unsigned long long value = 0;
    int code = enter(function);
    if (code == SUCCESS && !look(name, NULL, &value))
        return UNKNOWN;
    *into = (unsigned int)value;
    return code;
}

int nvmlInitWithFlags(unsigned int flags) { (void)flags; return enter("nvmlInit"); }
int nvmlShutdown(void) { return enter("nvmlShutdown"); }
const char *nvmlErrorString(int code) { return code == UNKNOWN ? "Unknown Error" : "an error of the fake"; }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device_t *device)
{
    unsigned long long count = 1;
    int code = enter("nvmlDeviceGetHandleByIndex");
    look("count", NULL, &count);
    *device = (device_t)1;
    return code != SUCCESS ? code : index < count ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, device_t *device)
{
    unsigned long long known = 0;
    int code = enter("nvmlDeviceGetHandleByUUID");
    *device = (device_t)1;
    return code != SUCCESS ? code : look("uuid", uuid, &known) ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetClockInfo(device_t device, int type, unsigned int *clock)
{
    (void)device;
    return type == SM ? answer("nvmlDeviceGetClockInfo", "sm_clock", clock) : INVALID_ARGUMENT;
}

int nvmlDeviceGetMaxClockInfo(device_t device, int type, unsigned int *clock)
{
    (void)device;
    return type == SM ? answer("nvmlDeviceGetMaxClockInfo", "max_sm_clock", clock) : INVALID_ARGUMENT;
}

static int reasons(const char *function, unsigned long long *mask)
{
    int code = enter(function);
    *mask = 0;
    look("reasons", NULL, mask);
    return code;
}

#ifndef BEFORE_535
int nvmlDeviceGetCurrentClocksEventReasons(device_t device, unsigned long long *mask)
{
    (void)device;
    return reasons("nvmlDeviceGetCurrentClocksEventReasons", mask);
}
#endif

int nvmlDeviceGetCurrentClocksThrottleReasons(device_t device, unsigned long long *mask)
{
    (void)device;
    return reasons("nvmlDeviceGetCurrentClocksThrottleReasons", mask);
}

int nvmlDeviceGetMemoryInfo(device_t device, memory_t *memory)
{
    int code = enter("nvmlDeviceGetMemoryInfo");
    (void)device;
    look("total", NULL, &memory->total);
    look("free", NULL, &memory->free);
    memory->used = memory->total - memory->free;
    return code;
}

int nvmlDeviceGetUtilizationRates(device_t device, utilization_t *rates)
{
    (void)device;
    rates->memory = 0;
    return answer("nvmlDeviceGetUtilizationRates", "utilization", &rates->gpu);
}

int nvmlDeviceGetPowerUsage(device_t device, unsigned int *milliwatts)
{
    (void)device;
    return answer("nvmlDeviceGetPowerUsage", "power", milliwatts);
}

int nvmlDeviceGetTemperature(device_t device, int sensor, unsigned int *celsius)
{
    (void)device;
    return sensor == 0 ? answer("nvmlDeviceGetTemperature", "temperature", celsius) : INVALID_ARGUMENT;
}
