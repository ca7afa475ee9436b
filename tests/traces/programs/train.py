# SPDX-License-Identifier: MIT
"""A few training steps of ResNet-50 on random data."""

import ctypes

import torch
import torchvision


def mark(step: str) -> None:
    """Print a line, and leave it in the trace where the tracer is loaded."""
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    line = f"{step} free={free_bytes} total={total_bytes}"
    line += f" allocated={torch.cuda.memory_allocated()} reserved={torch.cuda.memory_reserved()}"
    print(line, flush=True)
    tracer = getattr(ctypes.CDLL(None), "nvtrace_mark", None)
    if tracer is not None:
        tracer(line.encode())


torch.manual_seed(0)
mark("context")
model = torchvision.models.resnet50(weights=None).cuda().half()
model = model.to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
mark("model")
images = torch.randn(16, 3, 224, 224, device="cuda", dtype=torch.half)
images = images.to(memory_format=torch.channels_last)
labels = torch.randint(0, 1000, (16,), device="cuda")
for i in range(4):
    optimizer.zero_grad(set_to_none=True)
    torch.nn.functional.cross_entropy(model(images).float(), labels).backward()
    optimizer.step()
    torch.cuda.synchronize()
    mark(f"step {i}")
del model, optimizer, images, labels
torch.cuda.empty_cache()
mark("freed")
