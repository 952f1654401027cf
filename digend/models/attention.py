"""Names of modules that several families' transformers share, as diffusers has them. No torch."""

DOUBLE_STREAM = (
    "attn.to_q",
    "attn.to_k",
    "attn.to_v",
    "attn.to_out.0",
    "attn.add_q_proj",
    "attn.add_k_proj",
    "attn.add_v_proj",
    "attn.to_add_out",
)
"""LoRA targets where text and picture have projections of their own and one attention."""
