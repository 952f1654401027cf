"""A vision-language model from a local folder of transformers: pictures and a question in, its answer out.

Imports torch and transformers, so the torch-free spec imports it late. Works with every architecture that transformers'
auto classes know and whose processor has a chat template (Qwen2.5-VL, Idefics3, SmolVLM, LLaVA, ...). Invariant: only
safetensors of that folder are read, no code in it is run, and nothing is fetched.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from digend.rewards.local import LocalOptions, model_folder, torch_dtype


@dataclass(frozen=True, slots=True)
class Answer:
    """`is_cut`: it ended because it was as long as it may be."""

    text: str
    is_cut: bool


class VisionLanguageModel:
    """Frozen, in eval mode, on its device. Answers greedily."""

    def __init__(self, options: LocalOptions, max_new_tokens: int, device: str) -> None:
        folder = model_folder(options.path)
        self._dtype, self._device, self._longest = torch_dtype(options.dtype), device, max_new_tokens
        self._processor = _processor(folder)
        try:
            model: Any = AutoModelForImageTextToText.from_pretrained(
                folder, dtype=self._dtype, local_files_only=True, use_safetensors=True
            )
        except (OSError, ValueError) as error:
            raise ValueError(f"path: {folder} holds no vision-language model: {error}") from error
        self._model: Any = model.to(device).eval().requires_grad_(False)

    @torch.no_grad()
    def answers(self, pictures: list[list[Any]], questions: list[str]) -> list[Answer]:
        """One answer a sample; `pictures` are those of each, RGB images of PIL."""
        texts = [self._text(len(shown), asked) for shown, asked in zip(pictures, questions, strict=True)]
        inputs = self._processor(images=pictures, text=texts, padding=True, return_tensors="pt")
        given = {
            name: tensor.to(self._device, self._dtype) if tensor.is_floating_point() else tensor.to(self._device)
            for name, tensor in inputs.items()
        }
        # Settings of sampling in the folder would be warned of, as they have no use here.
        greedy = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
        made = self._model.generate(**given, max_new_tokens=self._longest, **greedy)
        new = made[:, given["input_ids"].shape[1] :]
        told = self._processor.batch_decode(new, skip_special_tokens=True)
        ends = self._ends()
        return [
            Answer(text, len(row) == self._longest and int(row[-1]) not in ends)
            for text, row in zip(told, new, strict=True)
        ]

    def _text(self, num_pictures: int, question: str) -> str:
        content = [*({"type": "image"} for _ in range(num_pictures)), {"type": "text", "text": question}]
        messages = [{"role": "user", "content": content}]
        text: str = self._processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return text

    def _ends(self) -> set[int]:
        """Tokens after which an answer is over; rows that ended early are filled up with the padding's."""
        config = self._model.generation_config
        ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
        return {
            each for each in (*ends, config.pad_token_id, self._processor.tokenizer.pad_token_id) if each is not None
        }


def _processor(folder: Path) -> Any:
    """Padded on the left, so that all answers of a batch begin at one place."""
    try:
        processor: Any = AutoProcessor.from_pretrained(folder, local_files_only=True)
    except ImportError as error:
        raise ValueError(f"path: the processor of {folder} needs a package: {str(error).strip()}") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"path: {folder} holds no processor: {error}") from error
    if not getattr(processor, "chat_template", None):
        raise ValueError(f"path: {folder} has no chat template (chat_template.jinja), so nothing can be asked")
    processor.tokenizer.padding_side = "left"
    return processor
