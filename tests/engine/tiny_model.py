"""Makes the model of the engine tests: a Llama with random weights and a tokenizer of its own, in a few seconds.

Run by the engine's Python, not ours: `python tiny_model.py FOLDER`. The weights mean nothing, and need not: what the
tests look at is which prompt tokens the engine computed and which it reused. 6.3 million parameters, 12 MB.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

# These three are in the engine's environment alone.
import torch  # type: ignore[import-not-found]
from tokenizers import (  # type: ignore[import-not-found]
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    trainers,
)
from transformers import (  # type: ignore[import-not-found]
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

SEED: Final = 0
VOCABULARY: Final = 2048
POSITIONS: Final = 32_768

BEGIN: Final = "<s>"
END: Final = "</s>"
PADDING: Final = "<pad>"
ROLES: Final = ("<|user|>", "<|assistant|>", "<|system|>")
CHAT_TEMPLATE: Final = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def make(folder: Path) -> None:
    """Writes the model and its tokenizer to `folder`, as `transformers` lays them out."""
    tokenizer = _tokenizer()
    tokenizer.save_pretrained(folder)
    _model(tokenizer).save_pretrained(folder)


def _tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE, trained on the standard library's sources: the one text that every machine has."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BEGIN, END, *ROLES, PADDING],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    corpus = sorted(str(path) for path in Path(os.__file__).parent.glob("*.py"))[:120]
    tokenizer.train(corpus, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BEGIN, eos_token=END, pad_token=PADDING)
    fast.chat_template = CHAT_TEMPLATE
    return fast


def _model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=POSITIONS,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).to(torch.bfloat16)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
