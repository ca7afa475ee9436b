# SPDX-License-Identifier: MIT
"""ResNet-50 training, fp16, batch 256, no synchronisation per step; progress as work.cu's."""

import mmap
import os
import struct
import sys
import time
from collections import deque

import torch
import torchvision

path, seconds = sys.argv[1], float(sys.argv[2])
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
os.ftruncate(fd, 16)
progress = mmap.mmap(fd, 16)
torch.backends.cudnn.benchmark = True
model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
x = torch.randn(256, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
y = torch.randint(0, 1000, (256,), device="cuda")
queued: deque[torch.cuda.Event] = deque()
steps = 0
end = time.monotonic() + seconds
while time.monotonic() < end:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    event = torch.cuda.Event(blocking=True)
    event.record()
    queued.append(event)
    if len(queued) > 3:
        queued.popleft().synchronize()
        steps += 1
        progress[:16] = struct.pack("<QQ", steps, time.monotonic_ns())
