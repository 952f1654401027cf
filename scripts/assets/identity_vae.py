"""An autoencoder that changes nothing, as a stock AutoencoderKL with hand-set weights and no training.

Owns those weights. Eight channels in one GroupNorm group carry x, -x, +K and -K: the group's mean is 0 and K
swamps its variance, so the norm is a constant; the residual branches are zero; a bias moves SiLU to where it
is the identity. Scale factor 1, three latent channels: latents are the picture in [-1, 1]. fp32 only, as K
drowns x in shorter types.
"""

from __future__ import annotations

from typing import Any

import torch
from diffusers import AutoencoderKL

SWAMP = 512.0
BIAS = 20.0
CHANNELS = 8
_SMALL_LOG_VARIANCE = -30.0


def build_identity_vae() -> Any:
    """The autoencoder, in eval mode: encode(x) and decode(x) return x to 1e-5."""
    vae = AutoencoderKL(
        in_channels=3,
        out_channels=3,
        down_block_types=("DownEncoderBlock2D",),
        up_block_types=("UpDecoderBlock2D",),
        block_out_channels=(CHANNELS,),
        layers_per_block=1,
        latent_channels=3,
        norm_num_groups=1,
        use_quant_conv=False,
        use_post_quant_conv=False,
        shift_factor=0.0,
        scaling_factor=1.0,
        mid_block_add_attention=False,
    )
    _fill_unused(vae)
    with torch.no_grad():
        _set_identity(vae.encoder)
        _set_identity(vae.decoder)
        vae.encoder.conv_out.bias[3:] = _SMALL_LOG_VARIANCE
    return vae.eval()


def _fill_unused(vae: Any) -> None:
    """Residual branches add 0; all convolutions start at 0, so that no weight is left to chance."""
    with torch.no_grad():
        for name, weight in vae.named_parameters():
            if "conv" in name:
                weight.zero_()


def _set_identity(half: Any) -> None:
    for i in range(3):
        half.conv_in.weight[i, i, 1, 1] = 1.0
        half.conv_in.weight[3 + i, i, 1, 1] = -1.0
        half.conv_out.weight[i, i, 1, 1] = 1.0
        half.conv_out.bias[i] = -BIAS
    half.conv_in.bias[6], half.conv_in.bias[7] = SWAMP, -SWAMP
    variance = half.conv_in.bias.square().mean()
    half.conv_norm_out.weight.fill_((variance + half.conv_norm_out.eps).sqrt())
    half.conv_norm_out.bias.fill_(BIAS)
