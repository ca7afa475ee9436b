// SPDX-License-Identifier: MIT
/*
 * Ways to have more of the card's memory than is charged.
 *   escapes pageable MIB     memory of malloc() that the card touches and is asked to take
 *   escapes tables MAPPINGS  one 2 MiB allocation mapped again and again, far apart
 *   escapes channels STREAMS  streams, events and graphs, as many as there may be
 *   escapes mapped MIB       managed memory whose file of the UVM device is mapped, but closed
 *   escapes sent MIB         memory that UVM has mapped; its file lies in a message that nobody
 *                            reads, and RM's are closed
 * Prints what it did as JSON and waits for a line, so that others can look at the card.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <sys/socket.h>
#include <unistd.h>
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

static int send_file(int socket, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = {}, byte = 0;
	struct iovec data = {&byte, 1};
	struct msghdr message = {};
	struct cmsghdr *head = (struct cmsghdr *)control;

	message.msg_iov = &data;
	message.msg_iovlen = 1;
	message.msg_control = control;
	message.msg_controllen = sizeof(control);
	head->cmsg_len = CMSG_LEN(sizeof(int));
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	memcpy(CMSG_DATA(head), &fd, sizeof(fd));
	return sendmsg(socket, &message, 0) == 1 ? 0 : -1;
}

/* Closes the driver's files; with `socket` UVM's are sent before. Return: how many were UVM's. */
static int close_files(int socket)
{
	std::vector<int> uvm, other;
	DIR *fds = opendir("/proc/self/fd");
	struct dirent *entry;
	char path[300], target[300];

	while ((entry = readdir(fds))) {
		snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
		ssize_t length = readlink(path, target, sizeof(target) - 1);
		target[length < 0 ? 0 : length] = 0;
		if (!strcmp(target, "/dev/nvidia-uvm"))
			uvm.push_back(atoi(entry->d_name));
		else if (!strncmp(target, "/dev/nvidia", 11))
			other.push_back(atoi(entry->d_name));
	}
	closedir(fds);
	for (int fd : uvm)
		if (socket >= 0 && send_file(socket, fd))
			return -1;
	for (int fd : uvm)
		close(fd);
	for (int fd : other)
		if (socket >= 0)
			close(fd);
	return (int)uvm.size();
}

/* Memory of a file that no process has a descriptor of. */
static int undescribed(bool sent, size_t bytes)
{
	cudaMemLocation card = {cudaMemLocationTypeDevice, 0};
	char *at = nullptr;
	cudaError_t error;
	int pair[2], files;

	error = sent ? cudaMalloc(&at, bytes) : cudaMallocManaged(&at, bytes);
	if (!error && !sent)
		error = cudaMemPrefetchAsync(at, bytes, card, 0, 0);
	if (!error)
		error = cudaDeviceSynchronize();
	if (error || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 1;
	files = close_files(sent ? pair[0] : -1);
	sleep(4);
	printf("{\"files\": %d}\n", files);
	wait_for_line();
	_exit(0);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "pageable"))
		return pageable((size_t)atol(argv[2]) << 20);
	if (argc == 3 && !strcmp(argv[1], "tables"))
		return tables(atol(argv[2]));
	if (argc == 3 && (!strcmp(argv[1], "mapped") || !strcmp(argv[1], "sent")))
		return undescribed(!strcmp(argv[1], "sent"), strtoull(argv[2], NULL, 10) << 20);
	if (argc == 3 && !strcmp(argv[1], "channels"))
		return channels(atol(argv[2]));
	return 2;
}
