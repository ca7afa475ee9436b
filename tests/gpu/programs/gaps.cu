// SPDX-License-Identifier: MIT
/*
 * When the card really runs a tenant: a kernel that never ends by itself watches
 * the card's clock and notes every jump of it, so the time between two notes is
 * time that the tenant had.
 *   gaps SECONDS
 * Prints how long it ran at a stretch, and how long it stood still, in us.
 */
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <vector>

#include <cuda_runtime.h>

static const int NOTES = 1 << 16;
static const uint64_t JUMP_NS = 60000;

struct log {
	volatile uint64_t stop;
	uint64_t count;
	uint64_t note[NOTES][2]; /* last seen before, first seen after */
};

__device__ uint64_t card_ns()
{
	uint64_t now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	return now;
}

__device__ volatile int over;

__global__ void watch(struct log *log)
{
	float a = threadIdx.x;
	uint64_t last = card_ns();

	/* all multiprocessors are in use, as any tenant's would be */
	while (!over) {
		for (int i = 0; i < 2000; i++)
			a = fmaf(a, 1.000001f, 0.5f);
		if (!blockIdx.x && !threadIdx.x) {
			uint64_t now = card_ns();

			if (now - last > JUMP_NS && log->count < NOTES) {
				log->note[log->count][0] = last;
				log->note[log->count][1] = now;
				log->count++;
			}
			last = now;
			/* one thread alone looks at the host's memory */
			if (log->stop)
				over = 1;
		}
	}
	if (a == 12345.f)
		log->count = 0;
}

static void tell(const char *name, std::vector<double> &us)
{
	double sum = 0;

	if (us.empty())
		return;
	std::sort(us.begin(), us.end());
	for (double one : us)
		sum += one;
	printf(", \"%s_n\": %zu, \"%s_mean_us\": %.1f, \"%s_p5_us\": %.1f, \"%s_p50_us\": %.1f, "
	       "\"%s_p95_us\": %.1f", name, us.size(), name, sum / us.size(), name,
	       us[us.size() / 20], name, us[us.size() / 2], name, us[us.size() * 19 / 20]);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 3;
	std::vector<double> ran, stood;
	struct log *log;
	int sms;

	if (cudaHostAlloc(&log, sizeof(*log), cudaHostAllocMapped) != cudaSuccess)
		return 1;
	log->stop = log->count = 0;
	cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
	watch<<<sms * 4, 256>>>(log);
	usleep((useconds_t)(seconds * 1e6));
	log->stop = 1;
	if (cudaDeviceSynchronize() != cudaSuccess)
		return 2;
	/* the first half second is the engine's to settle in */
	for (uint64_t i = log->count / 4 + 1; i < log->count; i++) {
		ran.push_back((log->note[i][0] - log->note[i - 1][1]) / 1e3);
		stood.push_back((log->note[i][1] - log->note[i][0]) / 1e3);
	}
	printf("{\"jumps\": %llu", (unsigned long long)log->count);
	tell("ran", ran);
	tell("stood", stood);
	printf("}\n");
	return 0;
}
