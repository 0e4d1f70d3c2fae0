r"""A causal model that writes one and the same text whatever it is asked: its score is known by counting."""

from __future__ import annotations

from pathlib import Path


def save_constant_model(folder: Path, text: str) -> Path:
    """Write a Qwen2 with random layers whose head gives token 0, which is ``text``, the highest score."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([text, "<end>", *letters])}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<end>", eos_token="<end>")
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(vocabulary),
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=16384,
            tie_word_embeddings=False,
            eos_token_id=1,
            bos_token_id=None,
            pad_token_id=1,
        )
    )
    with torch.no_grad():  # the last hidden state becomes (1, 0, ...), and only token 0 reads that
        model.model.norm.weight.zero_()
        model.lm_head.weight.zero_()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
