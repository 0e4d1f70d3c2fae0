"""States of rules that a bank keeps on disk: read as if they were computed, and never those of something else."""

import pytest
import torch
from dynarule.plus.states_file import FILE, StatesFile, write_states
from safetensors import safe_open
from safetensors.torch import save_file

from dynarule import RuleBank, RuleStates

TEXTS = ["w11 w12 w13", "w14 w15", "w16 w17 w18 w19", "w20 w21"]


@pytest.fixture
def kept(tmp_path, tiny_model, tiny_tokenizer):
    """A folder with states of three of the rules, whoever made them, and how many forwards others take for all."""
    RuleBank(torch.eye(3, 20), torch.eye(3, 20), list("abc"), TEXTS[:3]).save(tmp_path)
    made = RuleStates(tiny_model("llama"), tiny_tokenizer(), folder=tmp_path)
    seen = []
    write_states(tmp_path, made, TEXTS[:3], lambda *done: seen.append(done))
    assert seen == [(3, 3)] and len(RuleBank.load(tmp_path)) == 3
    return tmp_path, made


@torch.no_grad()
def test_kept_states_are_those_that_the_model_computes(kept, tiny_model, tiny_tokenizer, near):
    """To fp16, with nothing computed but what is not there, and no more in memory than asked for."""
    folder, made = kept
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    states = RuleStates(tiny_model("llama"), tiny_tokenizer(), most=2, folder=folder)
    read, real = [], states._read
    states._read = lambda texts: read.extend(texts) or real(texts)
    for got, expected in zip(states(TEXTS), made(TEXTS), strict=True):
        for one, other in zip(got, expected, strict=True):
            assert one.dtype == torch.float32 and near(one.half(), other, units=2)
    assert read == TEXTS[3:] and len(states) == 2
    left = states.unread("\n".join(TEXTS[:2]))
    assert left.count == 3 and left.new_R.tolist() == [14, 15]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files  # reading never writes


@pytest.mark.parametrize("other", ["base", "rope", "dtype", "text", "tokenizer"])
def test_nothing_else_is_served_from_them(other, kept, tiny_model, tiny_tokenizer):
    folder, _ = kept
    model, tokenizer, text = tiny_model("llama"), tiny_tokenizer(), TEXTS[0]
    if other == "base":
        model.model.layers[3].mlp.up_proj.weight[0, 0] += 1e-6
    elif other == "rope":
        model = tiny_model("llama", rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    elif other == "dtype":
        model = model.bfloat16()
    elif other == "text":
        text = "w11 w12 w14"
    else:
        tokenizer.add_tokens(["w11 w12"])
    states = RuleStates(model, tokenizer, folder=folder)
    assert states._at_hand(text) is None
    same = RuleStates(tiny_model("llama"), tiny_tokenizer(), folder=folder)
    assert same._at_hand(TEXTS[0]) is not None


def test_a_file_that_is_damaged_is_named(kept, tiny_model, tiny_tokenizer):
    folder, _ = kept
    with safe_open(folder / FILE, "pt") as file:
        metadata, states = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    changes = (
        lambda x: x * torch.nan,
        lambda x: x[:, :1],
        lambda x: x[..., :1, :],
        lambda x: x.to(torch.int8),
    )
    damaged = r"states.safetensors is damaged .*dynarule bank states"
    for change in changes:
        save_file({name: change(x).contiguous() for name, x in states.items()}, folder / FILE, metadata)
        with pytest.raises(ValueError, match=damaged):
            RuleStates(tiny_model("llama"), tiny_tokenizer(), folder=folder)(TEXTS[:1])
    (folder / FILE).write_bytes((folder / FILE).read_bytes()[:-1])
    with pytest.raises(ValueError, match=damaged):
        StatesFile(folder, tiny_model("llama"))
