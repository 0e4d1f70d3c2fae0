"""A tiny random language model in a folder, as a user would bring one."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM


def byte_level(texts):
    """A tokenizer of GPT-2's kind, as SmolLM2 has one, trained on some texts."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<pad>", "<end>", "<search>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<end>", additional_special_tokens=["<search>"]
    )


def save_model(folder, layers=2, positions=8192, seed=0, words=()):
    """Write ``base/`` with a random Qwen2 and a byte-pair tokenizer trained on some text."""
    tokenizer = byte_level(list(words) or ["If A chases B, B will enter the bridge."])
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = Qwen2ForCausalLM(config).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.25)
    (folder / "base").mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    return folder
