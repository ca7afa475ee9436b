# SPDX-License-Identifier: MIT
"""PyTorch in a tenant: sizes, out of memory, going on after it, DataLoader workers by fork."""

import json
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

report = {"total": torch.cuda.get_device_properties(0).total_memory}
report["seen"] = torch.cuda.mem_get_info()[1]
held: list[Any] = []
try:
    while len(held) < 4096:
        held.append(torch.empty(1 << 28, dtype=torch.uint8, device="cuda"))
    report["oom"] = ""
except torch.OutOfMemoryError as error:
    report["oom"] = str(error)[:120]
report["blocks"] = len(held)
del held
torch.cuda.empty_cache()
again = torch.ones(1 << 28, dtype=torch.uint8, device="cuda")
report["after"] = int(again[:100].sum())
data = TensorDataset(torch.arange(1024, dtype=torch.float32))
total = 0.0
for (batch,) in DataLoader(data, batch_size=64, num_workers=4, pin_memory=True):
    total += batch.cuda(non_blocking=True).sum().item()
report["loader"] = total
graph_in = torch.ones(1024, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    graph_out = graph_in * 3
graph.replay()
torch.cuda.synchronize()
report["graph"] = float(graph_out.sum())
print(json.dumps(report))
