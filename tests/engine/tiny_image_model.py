"""Makes a model of the engine tests that sees: an Idefics3 with random weights on the tokenizer of `tiny_model.py`.

Run by the engine's Python, not ours: `python tiny_image_model.py TEXT_MODEL FOLDER`. As with the other, what it answers
means nothing: the tests look at what the engine computed and what it reused. An image is 256 tokens: two blocks of the
CPU build.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

# These are in the engine's environment alone.
import torch  # type: ignore[import-not-found]
from transformers import (  # type: ignore[import-not-found]
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3ImageProcessorPil,
    Idefics3Processor,
    LlamaConfig,
    PreTrainedTokenizerFast,
)

SEED: Final = 0
IMAGE: Final = "<image>"
MARKS: Final = ("<fake_token_around_image>", IMAGE, "<end_of_utterance>", "<global-img>")
PIXELS: Final = 224
PATCH: Final = 14
IMAGE_TOKENS: Final = (PIXELS // PATCH) ** 2
POSITIONS: Final = 32_768


def make(text_model: Path, folder: Path) -> None:
    """Writes the model, its tokenizer and its image processor to `folder`, as `transformers` lays them out."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(text_model)
    tokenizer.add_special_tokens({"additional_special_tokens": list(MARKS)})
    edge = {"longest_edge": PIXELS}
    images = Idefics3ImageProcessorPil(size=edge, max_image_size=edge, do_image_splitting=False)
    processor = Idefics3Processor(images, tokenizer, image_seq_len=IMAGE_TOKENS, chat_template=tokenizer.chat_template)
    processor.save_pretrained(folder)
    _model(processor.tokenizer).save_pretrained(folder)


def _model(tokenizer: PreTrainedTokenizerFast) -> Idefics3ForConditionalGeneration:
    torch.manual_seed(SEED)
    text = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=344,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=POSITIONS,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    vision = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": PIXELS,
        "patch_size": PATCH,
    }
    config = Idefics3Config(
        image_token_id=tokenizer.convert_tokens_to_ids(IMAGE),
        vision_config=vision,
        text_config=text.to_dict(),
        scale_factor=1,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Idefics3ForConditionalGeneration(config).to(torch.bfloat16)


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))
