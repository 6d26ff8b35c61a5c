"""GPUs and links by their data sheets. Decimal units: 1 GB = 1e9 bytes, 1 TFLOPS = 1e12 operations a second."""

from __future__ import annotations

from dataclasses import dataclass

from sim.errors import InputError
from sim.registry import unknown


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator.

    Parameters
    ----------
    name
        As used in names of cost models ("h100").
    flops
        Dense bf16 tensor-core FLOPs per second (no sparsity).
    bandwidth
        Memory bandwidth, bytes per second.
    memory_bytes
        Memory size.
    nvlink_bandwidth
        NVLink, bytes per second and direction.
    pcie
        Name of its host link in `LINKS`.
    source
        Data sheet.
    """

    name: str
    title: str
    flops: int
    bandwidth: int
    memory_bytes: int
    nvlink_bandwidth: int
    pcie: str
    source: str

    @property
    def turning_point(self) -> float:
        """FLOPs per byte from which on the roofline is flat.

        >>> round(GPUS["a100"].turning_point)
        153
        """
        return self.flops / self.bandwidth


@dataclass(frozen=True, slots=True)
class Link:
    """A link between GPU and host memory.

    Parameters
    ----------
    bandwidth
        Bytes per second in one direction, line coding taken off.
    source
        Where the rate comes from.
    """

    name: str
    title: str
    bandwidth: float
    source: str


GPUS: dict[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        Gpu("a100", "A100 80GB SXM", 312 * 10**12, 2039 * 10**9, 80 * 10**9, 300 * 10**9, "pcie4",
            "NVIDIA A100 data sheet (June 2021): 312 TFLOPS dense bf16, 2,039 GB/s, 80 GB, NVLink 600 GB/s both ways"),
        Gpu("h100", "H100 80GB SXM", 989_400 * 10**9, 3350 * 10**9, 80 * 10**9, 450 * 10**9, "pcie5",
            "NVIDIA H100 data sheet and architecture white paper: 989.4 TFLOPS dense bf16 (1,979 with sparsity), "
            "3.35 TB/s, 80 GB, NVLink 900 GB/s both ways"),
        Gpu("h200", "H200 141GB SXM", 989_400 * 10**9, 4800 * 10**9, 141 * 10**9, 450 * 10**9, "pcie5",
            "NVIDIA H200 data sheet: compute as H100 SXM, 4.8 TB/s, 141 GB, NVLink 900 GB/s both ways"),
    )
}  # fmt: skip

LINKS: dict[str, Link] = {
    link.name: link
    for link in (
        Link("pcie3", "PCIe 3.0 x16", 8e9 * 16 / 8 * 128 / 130, "PCI-SIG 3.0: 8 GT/s a lane, 128b/130b"),
        Link("pcie4", "PCIe 4.0 x16", 16e9 * 16 / 8 * 128 / 130, "PCI-SIG 4.0: 16 GT/s a lane, 128b/130b"),
        Link("pcie5", "PCIe 5.0 x16", 32e9 * 16 / 8 * 128 / 130, "PCI-SIG 5.0: 32 GT/s a lane, 128b/130b"),
        Link("pcie6", "PCIe 6.0 x16", 64e9 * 16 / 8 * 242 / 256, "PCI-SIG 6.0: 64 GT/s a lane, 242 of 256 bytes"),
        Link("nvlink-c2c", "NVLink-C2C", 450e9, "NVIDIA Grace Hopper data sheet: 900 GB/s both ways"),
    )
}


def find_gpu(name: str) -> Gpu:
    """A GPU by name, in any case.

    Raises
    ------
    InputError
        If it is unknown; names the nearest one.
    """
    try:
        return GPUS[name.lower()]
    except KeyError:
        raise InputError(unknown(name, list(GPUS)), field="gpu") from None
