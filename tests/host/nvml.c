// SPDX-License-Identifier: MIT
/*
 * A libnvidia-ml.so.1 of one board, for hosts without NVIDIA's: what pynvml asks of it.
 *
 * What is not here is to pynvml as in a library of an older driver.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	SUCCESS = 0,
	INVALID_ARGUMENT = 2,
	NOT_SUPPORTED = 3,
	NOT_FOUND = 6,
	INSUFFICIENT_SIZE = 7,
	DRIVER_NOT_LOADED = 9,
	TIMED_OUT = 10,
	GPU_IS_LOST = 15,
	UNKNOWN = 999
};

#ifndef STATE
#define STATE "/nowhere"
#endif

static int board; /* its address is the handle */

/*
 * What a test wants of a board, or of all ("nvml"), stands in a file of that name in the directory
 * NVML_STATE, or STATE: a word, of which "xid" and a number is read once.
 */
static int is_told(const char *name, const char *word, unsigned long long *number)
{
	char path[512], found[32] = "";
	const char *directory = getenv("NVML_STATE");
	unsigned long long value = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory ? directory : STATE, name);
	file = fopen(path, "r");
	if (!file)
		return 0;
	if (fscanf(file, "%31s %llu", found, &value) < 1)
		found[0] = '\0';
	fclose(file);
	if (strcmp(found, word))
		return 0;
	if (number) {
		*number = value;
		remove(path);
	}
	return 1;
}

int nvmlInit_v2(void) { return is_told("nvml", "down", NULL) ? DRIVER_NOT_LOADED : SUCCESS; }
int nvmlInitWithFlags(unsigned int flags) { return nvmlInit_v2(); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int error) { return "an error"; }

static int text(char *to, unsigned int size, const char *from)
{
	snprintf(to, size, "%s", from);
	return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *to, unsigned int size) { return text(to, size, "580.159.04"); }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 1; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle)
{
	*handle = &board;
	return index ? INVALID_ARGUMENT : SUCCESS;
}

int nvmlDeviceGetUUID(void *handle, char *to, unsigned int size)
{
	return text(to, size, "GPU-00000000-0000-0000-0000-000000000001");
}

int nvmlDeviceGetName(void *handle, char *to, unsigned int size)
{
	return text(to, size, "NVIDIA H200");
}

int nvmlDeviceGetMinorNumber(void *handle, unsigned int *minor) { *minor = 0; return SUCCESS; }
int nvmlDeviceGetPerformanceState(void *handle, int *state) { *state = 2; return SUCCESS; }
int nvmlDeviceGetPersistenceMode(void *handle, int *mode) { *mode = 1; return SUCCESS; }
int nvmlDeviceGetPowerUsage(void *handle, unsigned int *mw) { *mw = 312400; return SUCCESS; }

int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *mj)
{
	*mj = 7200000;
	return SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned int *mw)
{
	*mw = 700000;
	return SUCCESS;
}

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned int *celsius)
{
	*celsius = 41;
	return sensor ? INVALID_ARGUMENT : SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *handle, unsigned int rates[2])
{
	rates[0] = 87;
	rates[1] = 12;
	return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long memory[3])
{
	memory[0] = 140ull << 30;
	memory[1] = 110ull << 30;
	memory[2] = 30ull << 30;
	return SUCCESS;
}

/* Graphics, SM, memory; no video clock, as on some boards. */
int nvmlDeviceGetClockInfo(void *handle, int type, unsigned int *mhz)
{
	static const unsigned int now[] = { 1755, 1770, 3201 };

	if (type > 2)
		return NOT_SUPPORTED;
	*mhz = now[type];
	return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(void *handle, int type, unsigned int *mhz)
{
	static const unsigned int most[] = { 1980, 1985, 3205 };

	if (type > 2)
		return NOT_SUPPORTED;
	*mhz = most[type];
	return SUCCESS;
}

/* As a test asks: NVML_ECC is "off", or "none" on a board that has none. */
int nvmlDeviceGetEccMode(void *handle, int *current, int *pending)
{
	const char *ecc = getenv("NVML_ECC");

	if (ecc && !strcmp(ecc, "none"))
		return NOT_SUPPORTED;
	*current = !ecc;
	*pending = 0;
	return SUCCESS;
}

/* By type (corrected, uncorrected) and counter (volatile, aggregate). */
int nvmlDeviceGetTotalEccErrors(void *handle, int type, int counter, unsigned long long *count)
{
	*count = 10 * (type + 1) + counter;
	return SUCCESS;
}

struct process {
	unsigned int pid;
	unsigned long long used_bytes;
	unsigned int instances[2];
};

/* Two clients of an MPS server where a test asks for them. */
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned int *count,
					       struct process *found)
{
	if (!getenv("NVML_MPS")) {
		*count = 0;
		return SUCCESS;
	}
	if (!found || *count < 2) {
		*count = 2;
		return INSUFFICIENT_SIZE;
	}
	found[0] = (struct process){ .pid = 4712 };
	found[1] = (struct process){ .pid = 4711 };
	*count = 2;
	return SUCCESS;
}

struct sample {
	unsigned int pid;
	unsigned long long at_us;
	unsigned int sm, memory, encoder, decoder;
};

/*
 * NVML_PROCESSES has pairs of a process and its percent of the time, which both samples since the
 * last look have. What was sampled before the first look is of an earlier time.
 */
int nvmlDeviceGetProcessUtilization(void *handle, struct sample *found, unsigned int *count,
				    unsigned long long since_us)
{
	static unsigned long long now_us;
	const char *told = getenv("NVML_PROCESSES");
	unsigned int pid, percent, used = 0;
	int length;

	if (!told)
		return NOT_SUPPORTED;
	if (!*told)
		return NOT_FOUND;
	if (!found) {
		*count = 8;
		return INSUFFICIENT_SIZE;
	}
	memset(found, 0, *count * sizeof(*found));
	now_us += 1000000;
	for (; sscanf(told, "%u %u%n", &pid, &percent, &length) == 2; told += length) {
		if (!since_us)
			percent = 99;
		found[used++] = (struct sample){ .pid = pid, .at_us = now_us - 1, .sm = percent };
		found[used++] = (struct sample){ .pid = pid, .at_us = now_us, .sm = percent };
	}
	return SUCCESS;
}

struct gpm_support {
	unsigned int version, is_supported;
};

/* NVML_GPM has pairs of a metric and its percent; boards before Hopper have none. */
int nvmlGpmQueryDeviceSupport(void *handle, struct gpm_support *support)
{
	support->is_supported = !!getenv("NVML_GPM");
	return SUCCESS;
}

int nvmlGpmSampleAlloc(int **sample)
{
	*sample = calloc(1, sizeof(int));
	return SUCCESS;
}

int nvmlGpmSampleFree(int *sample)
{
	free(sample);
	return SUCCESS;
}

int nvmlGpmSampleGet(void *handle, int *sample)
{
	static int taken;

	*sample = ++taken;
	return SUCCESS;
}

struct gpm_metrics {
	unsigned int version, count;
	int *before, *after;
	struct {
		unsigned int id;
		int error;
		double value;
		char *words[3];
	} metric[];
};

int nvmlGpmMetricsGet(struct gpm_metrics *asked)
{
	unsigned int place, metric, percent;
	int length;

	if (asked->version != 1 || *asked->before >= *asked->after)
		return INVALID_ARGUMENT;
	for (place = 0; place < asked->count; place++) {
		const char *told = getenv("NVML_GPM");

		asked->metric[place].error = NOT_SUPPORTED;
		for (; sscanf(told, "%u %u%n", &metric, &percent, &length) == 2; told += length) {
			if (metric != asked->metric[place].id)
				continue;
			asked->metric[place].error = SUCCESS;
			asked->metric[place].value = percent;
		}
	}
	return SUCCESS;
}

struct pci {
	char legacy[16];
	unsigned int numbers[5];
	char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(void *handle, struct pci *pci)
{
	memset(pci, 0, sizeof(*pci));
	return text(pci->bus_id, sizeof(pci->bus_id), "00000000:01:00.0");
}

/* A handle by UUID, and a set of events with one board, are that UUID. */
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle)
{
	*handle = strdup(uuid);
	if (is_told(uuid, "gone", NULL))
		return NOT_FOUND;
	return is_told(uuid, "lost", NULL) ? GPU_IS_LOST : SUCCESS;
}

int nvmlDeviceGetMigMode(void *handle, unsigned int *current, unsigned int *pending)
{
	*current = *pending = is_told(handle, "mig", NULL);
	return SUCCESS;
}

int nvmlEventSetCreate(void **set)
{
	*set = calloc(1, 96);
	return SUCCESS;
}

int nvmlEventSetFree(void *set)
{
	free(set);
	return SUCCESS;
}

int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, void *set)
{
	strncpy(set, handle, 95);
	return is_told(handle, "mute", NULL) ? NOT_SUPPORTED : SUCCESS;
}

struct event {
	void *device;
	unsigned long long type, data;
	unsigned int instances[2];
};

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned int timeout_ms)
{
	unsigned int waited_ms;

	for (waited_ms = 0; waited_ms <= timeout_ms; waited_ms += 10) {
		if (is_told(set, "lost", NULL))
			return GPU_IS_LOST;
		if (is_told(set, "fail", NULL))
			return UNKNOWN;
		if (is_told(set, "xid", &event->data)) {
			event->device = set;
			event->type = 8;
			return SUCCESS;
		}
		usleep(10000);
	}
	return TIMED_OUT;
}
