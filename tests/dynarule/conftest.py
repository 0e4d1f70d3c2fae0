"""Tiny random models of the supported families, and a random bank."""

import os

import pytest
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, PreTrainedTokenizerFast

from dynarule import RuleAdapter, RuleBank, dynarule_config

# Tiny matrices: more threads only wait for each other. Whether results depend on them is asked with 2.
torch.set_num_threads(int(os.environ.get("DYNARULE_TEST_THREADS", "1")))
FAMILIES = ("qwen2", "qwen3", "llama", "mistral")
WIDTH = 20


def make_model(family: str, dtype: torch.dtype = torch.float32, **changes):
    """A random model whose weights are large enough that attention is not uniform."""
    # Mistral's window is shorter than the laws' texts.
    extra = {"qwen3": {"head_dim": 16}, "mistral": {"sliding_window": 12}}.get(family, {})
    settings = {
        "vocab_size": 97,
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "pad_token_id": 0,
        "bos_token_id": 95,
        "eos_token_id": 96,
    }
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **(settings | extra | changes))
    model = AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.25)
    return model.to(dtype).requires_grad_(False)


def within_rounding(got, expected, units=64, scale=None):
    """Say whether two results of the same sums in another order are equal: some units of the largest value's rounding.

    A tiny model's logits of 10 differ by about 10 units from one CPU, or number of threads, to another; a mistake in
    what is read makes 1,000 units and more. The coarser dtype of the two counts, fp32 for lists of numbers. ``scale``
    is the size of what was summed, where the sums themselves are smaller.
    """
    got, expected = (torch.as_tensor(each).detach() for each in (got, expected))
    dtype = max(got.dtype, expected.dtype, key=lambda dtype: torch.finfo(dtype).eps)
    largest = float(expected.abs().max()) if scale is None else float(scale)
    assert got.shape == expected.shape
    return float((got - expected).abs().max()) <= units * torch.finfo(dtype).eps * largest


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


def read_pieces(model, ids_BT, mask_BT, sizes):
    """Logits of some texts that are read through a cache in pieces of so many tokens."""
    positions, cache = (mask_BT.cumsum(-1) - 1).clamp_min(0), DynamicCache(config=model.config)
    logits, stop = [], 0
    for size in sizes:
        start, stop = stop, stop + size
        out = model(
            ids_BT[:, start:stop],
            attention_mask=mask_BT[:, :stop],
            position_ids=positions[:, start:stop],
            past_key_values=cache,
            use_cache=True,
        )
        logits.append(out.logits)
    return torch.cat(logits, 1)


def random_bank(texts, **options):
    """Rules r0, r1, ... of these texts, with random embeddings."""
    generator = torch.Generator().manual_seed(1)
    keys, values = (torch.randn(len(texts), WIDTH, generator=generator) for _ in range(2))
    return RuleBank(keys, values, [f"r{i}" for i in range(len(texts))], list(texts), **options)


@pytest.fixture
def bank():
    return random_bank([f"rule {i}" for i in range(30)])


class FakeEncoder:
    """Texts to vectors that depend on every character and its place, the same in every process; no model."""

    def __init__(self, model="minilm"):
        self.fingerprint = f"{model}@1"

    def __call__(self, texts):
        seeds = [sum(ord(c) * place for place, c in enumerate(text, 1)) for text in texts]
        rows = [torch.randn(WIDTH, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        return torch.stack(rows) if rows else torch.zeros(0, WIDTH)


def forcing(*steps, token=90, then=None):
    """A logits processor that forces <search>, or another token, at some lengths of the answer.

    Before each token it calls ``then(length)``.
    """

    def process(ids, scores):
        process.length += 1
        if then is not None:
            then(process.length)
        if process.length in steps:
            scores = torch.full_like(scores, -torch.inf)
            scores[:, token] = 0
        return scores

    process.length = -1
    return process


def make_tokenizer(words: int = 90, search: bool = False, chat: bool = False):
    """A word tokenizer whose word "w12" has id 12; 0 pads, 96 ends, as in the tiny models."""
    vocabulary = {"<pad>": 0} | {f"w{i}": i for i in range(1, words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w1"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if search:
        tokenizer.add_special_tokens(["<search>"])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>")
    if chat:
        fast.chat_template = "{% for m in messages %}w2 {{ m['content'] }} {% endfor %}w3"
    return fast


def make_word_tokenizer(texts, special=("<pad>", "<eos>", "<unk>", "<search>")):
    """A word-level tokenizer over the words of some texts, with <search> as a special token."""
    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\n|\d|[A-Za-z]+|[^\sA-Za-z\d]"), "isolated"),
            pre_tokenizers.Split(Regex(r"[ \t]+"), "removed"),
        ]
    )
    words = sorted({word for text in texts for word, _ in split.pre_tokenize_str(text)})
    names = dict.fromkeys([*special, *words])
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = split
    extra = ["<search>"] if "<search>" in special else []
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        extra_special_tokens=extra,
    )


def as_fixture(function, name=None):
    """A fixture that is the function."""
    return pytest.fixture(scope="session", name=name)(lambda: function)


near, tiny_model, in_pieces = map(as_fixture, (within_rounding, make_model, read_pieces))
tiny_tokenizer, word_tokenizer = map(as_fixture, (make_tokenizer, make_word_tokenizer))


@pytest.fixture
def ready(tiny_model, tiny_tokenizer):
    """Makes a model that does not end by itself, a tokenizer that knows <search>, and an adapter."""

    def make(family="qwen2"):
        model = tiny_model(family, tie_word_embeddings=False)
        model.get_output_embeddings().weight[[0, 96]] = 0
        adapter = RuleAdapter(model, dynarule_config(WIDTH, confidence_layer=2, top_k=5))
        return model, tiny_tokenizer(search=True), adapter

    return make
