"""What GPUs can do at best, by name and dtype: the denominator of model FLOP utilisation.

Owns the table. Knows no torch. Values are dense (no sparsity), in 1e12 operations a second, of NVIDIA's data sheets and
architecture papers; half precision accumulates in float32, float32 is without TF32 (torch's default), float64 is with
tensor cores where the GPU has them for it. Invariant: a GPU, a part of one (MIG) or a dtype that is not in the table is
not known; nothing is inferred from a similar name.
"""

import re
from dataclasses import dataclass

TERA = 1e12


@dataclass(frozen=True, slots=True)
class Peak:
    """`name`: a pattern for all of what CUDA calls the GPU; 0 where the data sheet has no figure."""

    name: str
    half: float
    float32: float
    float64: float
    source: str
    bfloat16: bool = True


_MEMORY = r"( \d+GB)?( HBM\d\w?)?"

PEAKS = (
    Peak(r"H100( SXM5)?" + _MEMORY, 989.4, 66.9, 66.9, "NVIDIA H100 Tensor Core GPU data sheet, SXM"),
    Peak(r"H100 PCIe", 756.0, 51.2, 51.2, "NVIDIA H100 Tensor Core GPU Architecture, PCIe"),
    Peak(r"H100 NVL", 835.5, 60.0, 60.0, "NVIDIA H100 Tensor Core GPU data sheet, NVL"),
    Peak(r"H200( SXM5)?" + _MEMORY, 989.4, 66.9, 66.9, "NVIDIA H200 Tensor Core GPU data sheet, SXM"),
    Peak(r"H200 NVL", 835.5, 60.0, 60.0, "NVIDIA H200 Tensor Core GPU data sheet, NVL"),
    Peak(r"H20(-3e)?", 148.0, 44.0, 1.0, "NVIDIA H20 data sheet"),
    Peak(r"A100-SXM4-\d+GB", 312.0, 19.5, 19.5, "NVIDIA A100 Tensor Core GPU data sheet"),
    Peak(r"A100-PCIE-\d+GB|A100 \d+GB PCIe", 312.0, 19.5, 19.5, "NVIDIA A100 Tensor Core GPU data sheet"),
    Peak(r"L40S", 362.05, 91.6, 0.0, "NVIDIA L40S data sheet"),
    Peak(r"L40", 181.05, 90.5, 0.0, "NVIDIA L40 data sheet"),
    Peak(r"L4", 121.0, 30.3, 0.0, "NVIDIA L4 data sheet"),
    Peak(r"A40", 149.7, 37.4, 0.0, "NVIDIA A40 data sheet"),
    Peak(r"A10", 125.0, 31.2, 0.0, "NVIDIA A10 data sheet"),
    Peak(r"RTX A6000", 154.8, 38.7, 0.0, "NVIDIA RTX A6000 data sheet"),
    Peak(r"RTX 6000 Ada Generation", 364.2, 91.1, 0.0, "NVIDIA RTX 6000 Ada Generation data sheet"),
    Peak(r"GeForce RTX 4090", 165.2, 82.6, 0.0, "NVIDIA Ada GPU Architecture, appendix A"),
    Peak(r"GeForce RTX 3090", 71.0, 35.6, 0.0, "NVIDIA Ampere GA102 GPU Architecture, appendix A"),
    Peak(r"(Tesla )?V100-SXM2-\d+GB", 125.0, 15.7, 7.8, "NVIDIA V100 Tensor Core GPU data sheet", bfloat16=False),
)


def peak_flops(name: str, dtype: str) -> float:
    """Operations a second of the GPU that CUDA calls `name` at best; 0.0 where that is not known.

    dtype: float16, bfloat16, float32 or float64, as `model.dtype` of a job.
    """
    plain = name.removeprefix("NVIDIA ").strip()
    for peak in PEAKS:
        if re.fullmatch(peak.name, plain):
            half = 0.0 if dtype == "bfloat16" and not peak.bfloat16 else peak.half
            known = {"float16": half, "bfloat16": half, "float32": peak.float32, "float64": peak.float64}
            return known.get(dtype, 0.0) * TERA
    return 0.0
