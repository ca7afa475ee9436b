# SPDX-License-Identifier: MIT
"""A tree of nodes made of plain files, with the text that the doors print."""

from __future__ import annotations

from pathlib import Path

from pycgpu.request.model import MIB


def make_tree(root: Path, cards: int = 1, total_bytes: int = 15109 * MIB) -> Path:
    """Make *root* with so many empty cards; inst_ctl is a file that keeps what is written."""
    root.mkdir(parents=True, exist_ok=True)
    put(
        root,
        version="0.1.0",
        api_version="1",
        features="memory\nslices\ngate",
        inst_ctl="",
        events="",
    )
    (root / "inst_ctl").write_text("")
    (root / "container").mkdir()
    for card in range(cards):
        (root / str(card)).mkdir()
        put(
            root / str(card),
            policy="7",
            max_inst="20",
            free_weight="20",
            uuid=f"GPU-{card}{card}{card}{card}0000-0000-0000-0000-000000000000",
            timeslice_us="5000",
            overcommit_ratio="100",
            stat="switches 12\noverruns 0",
            memory=memory(total_bytes),
        )
    return root


def memory(total: int, reserved: int = 0, allocated: int = 0, used: int = 0) -> str:
    free = total - reserved - allocated
    return f"total {total}\nreserved {reserved}\nallocated {allocated}\nused {used}\nfree {free}"


def add_container(root: Path, card: int, cid: str, name: str | None = None, **nodes: str) -> None:
    """Add a container's directory, under the 12 digits that engines show."""
    directory = root / str(card) / (name or cid[:12])
    directory.mkdir()
    put(
        directory,
        **{
            "id": "1",
            "cid": cid,
            "memsize": str(1024 * MIB),
            "meminfo": f"Free: {1000 * MIB}\nPID: 4711 Mem: {24 * MIB}",
            "weight": "1",
            "quota": "0",
            "quota_min": "0",
            "priority": "0",
            "procs": f"4711 7 {24 * MIB} python3 train me",
            "stat": "busy_ns 5",
            "events": "oom 1\nrefused 2",
            "oom_action": "fail",
            "uvm_disable": "0",
            "unknown": "refuse",
        }
        | nodes,
    )
    by_id = root / "container" / cid
    by_id.mkdir(exist_ok=True)
    put(by_id, cid=cid)
    (by_id / str(card)).symlink_to(directory)


def put(directory: Path, **nodes: str) -> None:
    """Write nodes; each value gets its newline."""
    for name, text in nodes.items():
        (directory / name).write_text(text + "\n")
