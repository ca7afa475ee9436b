/* SPDX-License-Identifier: MIT */
/* A line of the program's own in its trace, and calls that must work. */
#ifndef MARK_H
#define MARK_H
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C"
#endif
void nvtrace_mark(const char *text) __attribute__((weak));

static void mark(const char *format, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, format);
	vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	printf("%s\n", line);
	fflush(stdout);
	if (nvtrace_mark)
		nvtrace_mark(line);
}

#ifdef __CUDACC__
#define MUST(call) do { cudaError_t e_ = (call); if (e_ != cudaSuccess) { \
	mark("failed %s: %s", #call, cudaGetErrorString(e_)); exit(1); } } while (0)
#define MUSTCU(call) do { CUresult e_ = (call); if (e_ != CUDA_SUCCESS) { \
	mark("failed %s: %d", #call, (int)e_); exit(1); } } while (0)

/* What cuMemGetInfo answers now, in the trace. */
static inline void mark_memory(const char *step)
{
	size_t free_bytes = 0, total_bytes = 0;

	MUST(cudaMemGetInfo(&free_bytes, &total_bytes));
	mark("%s free=%zu total=%zu", step, free_bytes, total_bytes);
}
#endif
#endif
