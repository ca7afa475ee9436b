// SPDX-License-Identifier: MIT
// CUDA graphs: capture with kernels and allocation nodes, instantiate, launch, destroy.
#include "mark.h"

__global__ void add(float *p, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		p[i] += 1;
}

int main(void)
{
	const int n = 4 << 20;
	cudaStream_t stream;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	float *p, *inside;
	int i;

	MUST(cudaStreamCreate(&stream));
	MUST(cudaMalloc(&p, n * sizeof(float)));
	mark_memory("context, 16 MiB");
	MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	for (i = 0; i < 20; i++)
		add<<<n / 256, 256, 0, stream>>>(p, n);
	MUST(cudaMallocAsync((void **)&inside, 40 << 20, stream));
	MUST(cudaMemsetAsync(inside, 0, 40 << 20, stream));
	add<<<n / 256, 256, 0, stream>>>(inside, n);
	MUST(cudaFreeAsync(inside, stream));
	MUST(cudaStreamEndCapture(stream, &graph));
	mark_memory("captured");
	MUST(cudaGraphInstantiate(&exec, graph, 0));
	mark_memory("instantiated");
	for (i = 0; i < 3; i++)
		MUST(cudaGraphLaunch(exec, stream));
	MUST(cudaStreamSynchronize(stream));
	mark_memory("launched");
	MUST(cudaGraphExecDestroy(exec));
	MUST(cudaGraphDestroy(graph));
	mark_memory("destroyed");
	MUST(cudaDeviceGraphMemTrim(0));
	mark_memory("trimmed");
	MUST(cudaFree(p));
	mark_memory("freed");
	return 0;
}
