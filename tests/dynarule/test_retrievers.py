"""A question's rules for LangChain and LlamaIndex: those of each step of its answer, each once."""

import pytest
from dynarule.serve import StepRules

from dynarule import RuleAdapter, dynarule_config, generate


@pytest.fixture
def search(tiny_model, tiny_tokenizer, bank):
    model, tokenizer = tiny_model("qwen2", tie_word_embeddings=False), tiny_tokenizer(search=True)
    head = model.get_output_embeddings().weight.data
    head[90] = 1.1 * head[39]  # <search> is written now and then
    adapted = RuleAdapter(model, dynarule_config(20, confidence_layer=2, top_k=5)).model
    return StepRules(adapted, tokenizer, bank, top=2, max_new_tokens=12)


def test_rules_are_those_of_the_steps(search):
    found = search("w11 w12")
    (answer,) = generate(search.model, search.tokenizer, search.bank, ["w11 w12\n"], max_new_tokens=12)
    ids = [name for step in answer.trace for name in step.ids[:2]]
    assert [rule["id"] for rule in found] == list(dict.fromkeys(ids))
    assert found[0] | {"score": 0} == {"id": ids[0], "text": f"rule {ids[0][1:]}", "score": 0, "step": 0}


def test_frameworks_get_what_the_search_finds(search):
    pytest.importorskip("langchain_core")
    pytest.importorskip("llama_index.core")
    found = [(rule["id"], rule["text"], rule["step"], rule["score"]) for rule in search("w11 w12")]
    documents = search.langchain().invoke("w11 w12")
    assert [(d.id, d.page_content, d.metadata["step"], d.metadata["score"]) for d in documents] == found
    nodes = search.llamaindex().retrieve("w11 w12")
    assert [(n.node.id_, n.node.text, n.node.metadata["step"], n.score) for n in nodes] == found
