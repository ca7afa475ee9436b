// SPDX-License-Identifier: MIT
/*
 * Ways to have more of the card's memory than is charged.
 *   escapes pageable MIB     memory of malloc() that the card touches and is asked to take
 *   escapes tables MAPPINGS  one 2 MiB allocation mapped again and again, far apart
 *   escapes channels STREAMS  streams, events and graphs, as many as there may be
 * Prints what it did as JSON and waits for a line, so that others can look at the card.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda.h>
#include <cuda_runtime.h>

__global__ void touch(char *at, size_t bytes, size_t stride)
{
	size_t i = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) * stride;

	if (i < bytes)
		at[i] = (char)(at[i] + 1);
}

static void wait_for_line()
{
	fflush(stdout);
	while (getchar() != '\n' && !feof(stdin))
		;
}

static int pageable(size_t bytes)
{
	int has = 0;
	cudaError_t taken, error;
	cudaMemLocation card = {cudaMemLocationTypeDevice, 0};

	cudaDeviceGetAttribute(&has, cudaDevAttrPageableMemoryAccess, 0);
	char *at = (char *)malloc(bytes);

	memset(at, 1, bytes);
	if (!has) {
		printf("{\"pageable\": 0}\n");
		wait_for_line();
		return 0;
	}
	taken = cudaMemPrefetchAsync(at, bytes, card, 0, 0);
	cudaDeviceSynchronize();
	touch<<<(unsigned int)(bytes / 4096 / 256 + 1), 256>>>(at, bytes, 4096);
	error = cudaDeviceSynchronize();
	printf("{\"pageable\": 1, \"prefetch\": \"%s\", \"touched\": \"%s\", \"value\": %d}\n",
	       cudaGetErrorName(taken), cudaGetErrorName(error), at[bytes / 2 / 4096 * 4096]);
	wait_for_line();
	return 0;
}

static int tables(long mappings)
{
	const size_t block = 2u << 20, apart = 512u << 20;
	CUmemAllocationProp what = {};
	CUmemAccessDesc access = {};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr base = 0;
	CUresult error = CUDA_SUCCESS;
	long done = 0;

	cudaFree(0);
	what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	access.location = what.location;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	error = cuMemCreate(&handle, block, &what, 0);
	if (!error)
		error = cuMemAddressReserve(&base, apart * mappings, 0, 0, 0);
	for (; !error && done < mappings; done++) {
		error = cuMemMap(base + apart * done, block, 0, handle, 0);
		if (!error)
			error = cuMemSetAccess(base + apart * done, block, &access, 1);
	}
	printf("{\"mappings\": %ld, \"error\": %d}\n", done, error);
	wait_for_line();
	return 0;
}

static int channels(long streams)
{
	std::vector<cudaStream_t> made;
	cudaError_t error = cudaSuccess;

	for (long i = 0; i < streams && !error; i++) {
		cudaStream_t one;

		error = cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
		if (!error) {
			touch<<<1, 1, 0, one>>>(nullptr, 0, 1);
			made.push_back(one);
		}
	}
	cudaDeviceSynchronize();
	printf("{\"streams\": %zu, \"error\": \"%s\"}\n", made.size(), cudaGetErrorName(error));
	wait_for_line();
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "pageable"))
		return pageable((size_t)atol(argv[2]) << 20);
	if (argc == 3 && !strcmp(argv[1], "tables"))
		return tables(atol(argv[2]));
	if (argc == 3 && !strcmp(argv[1], "channels"))
		return channels(atol(argv[2]));
	return 2;
}
