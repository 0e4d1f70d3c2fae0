"""TRL's own GRPOTrainer trains on our rows and reward, and reads our environment's tool."""

import inspect
import json

import pytest
from ruleworld_data.environments import EnvConfig, RewardWeights, instance
from ruleworld_data.plugins.trl_environment import SearchEnvironment, dataset, reward

CONFIG = EnvConfig(("multi_hop_2",), access="tool", pool_size=60, reward=RewardWeights(search_cost=0.25))


def test_rows_and_rewards_of_texts_and_conversations():
    rows = dataset(CONFIG, range(3))
    assert rows[0]["prompt"] == [{"role": "user", "content": instance(CONFIG, 0).prompt}]
    golden = [instance(CONFIG, i).answer for i in range(3)]
    talks = [[{"role": "tool", "content": text}, {"role": "assistant", "content": text}] for text in golden]
    assert reward(golden, rows["metadata"], prompts=[""] * 3, extra=1) == [1.0] * 3
    assert reward(talks, rows["metadata"]) == [1.0] * 3
    parts = [[{"role": "assistant", "content": [{"type": "text", "text": text}]}] for text in golden]
    assert reward(parts, rows["metadata"]) == [1.0] * 3
    cut = [talks[0][:1], [], [{"role": "assistant", "content": None}]]
    assert reward(cut, rows["metadata"]) == [0.0] * 3


def test_searches_of_an_environment_count():
    row = dataset(CONFIG, [0])[0]
    env = SearchEnvironment()
    assert env.reset(**row) is None
    assert env.search("if A").startswith("If ")
    for _ in range(len(json.loads(row["metadata"])["gold_rule_ids"])):
        env.search("if A")
    assert reward([instance(CONFIG, 0).answer], [row["metadata"]], environments=[env]) == [0.75]
    tools = [name for name, _ in inspect.getmembers(SearchEnvironment, inspect.isfunction) if name[0] != "_"]
    assert tools == ["reset", "search"]


def test_the_tool_has_a_schema():
    utils = pytest.importorskip("transformers.utils", reason="transformers is missing")
    schema = utils.get_json_schema(SearchEnvironment().search)["function"]
    assert schema["name"] == "search" and list(schema["parameters"]["properties"]) == ["query"]


def test_grpo_takes_a_step(tmp_path):
    trl = pytest.importorskip("trl", reason='trl is missing: pip install "ruleworld-data[trl]"')
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {"<pad>": 0, "</s>": 1, "?": 2, **{f"w{i}": i for i in range(3, 32)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    processing = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="?"
    )
    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, pad_token_id=0, eos_token_id=1, **sizes))
    options = trl.GRPOConfig(
        output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=4, num_generations=2,
        max_completion_length=4, use_cpu=True, bf16=False, report_to="none", save_strategy="no", logging_steps=1,
    )  # fmt: skip
    rows = dataset(EnvConfig(("multi_hop_2",), pool_size=5), range(4), chat=False)
    trainer = trl.GRPOTrainer(model, reward, options, train_dataset=rows, processing_class=processing)
    trainer.train()
    assert any(entry.get("reward") == 0.0 for entry in trainer.state.log_history)
