"""The base in the box: tokenizer, documents, training and gates."""

import functools
import hashlib
import json
import os
import random
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ruleworld_data.fresh import fresh_worlds
from ruleworld_data.generate import question_table, rule_table
from ruleworld_data.questions import training_text
from ruleworld_data.spec import SUBTASKS
from rwbench.zoo.base import gates
from rwbench.zoo.base.curriculum import LADDERS, MIN_SEEN, Curriculum
from rwbench.zoo.base.data import DocumentStream, _near, batches, collate, small_sizes
from rwbench.zoo.base.documents import Document, Writer, key_value_pairs
from rwbench.zoo.base.model import last_states, new_base
from rwbench.zoo.base.recipe import GATE_SEED, BaseRecipe, Mixture, Phase, Shape, read_recipe
from rwbench.zoo.base.tokenizer import END, PAD, STEP, build_tokenizer
from rwbench.zoo.base.train import BaseTrainer, trained_base

SHAPE = Shape(hidden=32, layers=3, heads=4, kv_heads=2, feed_forward=48, positions=2048)
EVERYTHING = Mixture(terse=0.2, recital=0.3, questions=0.3, guess=0.1, requests=0.1)
LEVELS = {"terse": 2, "recital": 3, "questions": 2}
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return build_tokenizer(vocabulary, 2048)


@pytest.fixture(scope="module")
def writer(vocabulary):
    return Writer(vocabulary, 0.15)


@pytest.fixture(scope="module")
def documents(writer):
    return DocumentStream(writer, 5, 6000).block(3, EVERYTHING, LEVELS)


def by_line(tokenizer, document):
    """Split a document's tokens, with their weights, into lines."""
    lines = [[]]
    for token, weight in zip(document.ids, document.weights, strict=True):
        lines[-1].append((token, weight))
        if tokenizer.decode([token]) == "\n":
            lines.append([])
    return lines


def small_recipe(**changes):
    phases = (
        Phase("one", 4000, Mixture(terse=0.5, recital=0.5)),
        Phase("two", 6000, EVERYTHING, rate=(1.0, 0.0)),
    )
    values = {
        "phases": phases,
        "shape": SHAPE,
        "batch_tokens": 512,
        "block_tokens": 1500,
        "warmup": 3,
    }
    return BaseRecipe("test", **values | changes)


def text_of(tokenizer, ids):
    return tokenizer.decode(ids, skip_special_tokens=False)


class TestTokenizer:
    def test_the_benchmark_is_written_in_whole_words(self, tokenizer):
        """Every word of rules, questions and answers is one token, so nothing falls back to pieces."""
        rules = rule_table(scale="tiny").to_pylist()
        texts = [rule[name] for rule in rules for name in ("nl", "fol")]
        for subtask in SUBTASKS:
            for row in question_table(subtask, "test", scale="tiny").slice(0, 40).to_pylist():
                texts += [row["question"], training_text(row, "nl", STEP), training_text(row, "fol", STEP)]
        for text, ids in zip(texts, tokenizer(texts)["input_ids"], strict=True):
            tokens = tokenizer.convert_ids_to_tokens(ids)
            assert not [token for token in tokens if token.startswith("##")], text
            assert tokenizer.unk_token_id not in ids
            assert text_of(tokenizer, ids) == text
            words = len(re.findall(r"[A-Za-z]{2,}", re.sub(r"\[\w+( \d)?\]|boxed|<step>", "", text)))
            assert (
                sum(
                    bool(re.search("[A-Za-z]{2}", t)) and t[0] not in "[<" and "boxed" not in t
                    for t in tokens
                )
                == words
            )

    @settings(max_examples=200, deadline=None)
    @given(st.text(st.characters(min_codepoint=32, max_codepoint=126) | st.just("\n"), max_size=60))
    def test_any_ascii_text_comes_back(self, tokenizer, text):
        assert text_of(tokenizer, tokenizer(text)["input_ids"]) == text

    def test_a_writer_cuts_as_the_tokenizer_does(self, tokenizer, documents):
        for document in documents:
            assert tokenizer(text_of(tokenizer, document.ids))["input_ids"] == document.ids

    def test_forms_of_a_word_share_a_stem(self, vocabulary):
        stem = dict(zip(vocabulary.tokens, vocabulary.stems, strict=True))
        for forms in (
            ("▁royal", "Royal", "▁Royal"),
            ("▁hooves", "▁hoof", "_hoof"),
            ("▁hid", "▁hides", "Hide"),
            ("7", "▁7"),
        ):
            assert len({stem[form] for form in forms}) == 1
        assert stem["▁hooves"] != stem["▁hides"]

    def test_saved_and_loaded(self, tokenizer, tmp_path):
        from transformers import AutoTokenizer

        tokenizer.save_pretrained(tmp_path)
        loaded = AutoTokenizer.from_pretrained(tmp_path)
        text = f"If A is a tiny cat, it has 12 fins.\n{STEP}[Answer] \\boxed{{12, stony bridge}}{END}"
        assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"]
        assert loaded.decode(loaded(text)["input_ids"]) == text
        assert (loaded.pad_token, loaded.eos_token, loaded.padding_side) == (PAD, END, "left")


class TestModel:
    def test_the_forward_pass_is_transformers(self, vocabulary):
        model = new_base(SHAPE, vocabulary, 0).eval()
        ids = torch.randint(4, len(vocabulary.tokens), (3, 40), generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            for parameter in model.parameters():  # norms and biases too
                parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
            ours, theirs = last_states(model, ids, torch.float32), model.model(ids).last_hidden_state
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)

    def test_forms_of_a_word_begin_near_each_other(self, vocabulary):
        weight = new_base(Shape(hidden=256, layers=1), vocabulary, 0).model.embed_tokens.weight
        row = {token: weight[i] for i, token in enumerate(vocabulary.tokens)}
        near = torch.cosine_similarity(row["▁royal"], row["Royal"], dim=0)
        far = torch.cosine_similarity(row["▁royal"], row["▁cat"], dim=0)
        assert near > 0.6 and far < 0.3

    def test_heads_of_the_first_layer_look_back_one_distance_each(self, vocabulary):
        """Measured on transformers' own attention weights, at a place far enough from the start."""
        from transformers import LlamaForCausalLM

        shape = Shape(layers=1)
        model = new_base(shape, vocabulary, 0)
        eager = LlamaForCausalLM._from_config(model.config, attn_implementation="eager")
        eager.load_state_dict(model.state_dict())
        ids = torch.randint(4, 200, (1, 30), generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            (weights,) = eager(ids, output_attentions=True).attentions
        for head in range(shape.heads - 2):
            assert weights[0, head, 25, 24 - head] > 0.8
        assert weights[0, -1, 25].max() < 0.2


class TestDocuments:
    def test_recital_asks_what_stands_in_the_list_once(self, writer, tokenizer):
        (world,) = fresh_worlds(9, 1, {}, n_rules=120)
        rules = world.rules.to_pylist()
        for language in ("nl", "fol"):
            document = writer.recital(rules, random.Random(0).sample(range(120), 120), language)
            text = text_of(tokenizer, document.ids)
            listed, recited = text.split("\n\n")
            assert listed.split("\n") == [rule[language] for rule in rules]
            assert set(recited.strip().split("\n")) <= set(listed.split("\n"))
            rules_of = Counter(rule["premise_" + language] for rule in rules)
            assert max(rules_of.values()) > 1
            assert len(document.spans) == sum(n == 1 for n in rules_of.values())
            by_conclusion = {rule["conclusion_" + language] for rule in rules}
            for start, stop, kind in document.spans:
                said = text_of(tokenizer, document.ids[start:stop]).strip().rstrip(".")
                assert said in by_conclusion and kind in {rule["type"] for rule in rules}
                assert set(document.weights[start:stop]) == {1.0}

    def test_questions_hold_their_answers(self, writer, tokenizer):
        (world,) = fresh_worlds(9, 1, dict.fromkeys(SUBTASKS, 2), n_rules=300)
        for row in world.questions.to_pylist():
            for language in ("nl", "fol"):
                document = writer.questions(["If A is a tiny cat, it has 12 fins."], [row], language)
                text = text_of(tokenizer, document.ids)
                answer = training_text(row, language, STEP, opening=True) + END
                assert text == f"If A is a tiny cat, it has 12 fins.\n\n{row['question']}\n{answer}"
                ((start, stop, kind),) = document.spans
                assert text_of(tokenizer, document.ids[start:stop]) == answer and kind == row["subtask"]

    def test_an_answer_without_rules_is_trained_on_and_not_measured(self, writer):
        (world,) = fresh_worlds(9, 1, {"single_rule": 1}, n_rules=120)
        document = writer.questions([], world.questions.to_pylist(), "nl")
        assert document.spans == [] and 1.0 in document.weights

    def test_a_block_stays_what_it_was_when_the_bundled_base_was_trained(self, writer):
        """Options that came later draw nothing where they are not used."""
        block = DocumentStream(writer, 7, 20_000).block(3, Mixture(questions=1.0), LEVELS | {"questions": 4})
        ids = json.dumps([document.ids for document in block]).encode()
        assert hashlib.sha256(ids).hexdigest()[:16] == "a2eabbc8ce985f05"

    def test_rules_beside_the_gold_ones_may_be_those_that_a_search_finds_too(self, writer, tokenizer):
        """Counted on the texts: how many of a list's rules begin like another of it."""
        (world,) = fresh_worlds(9, 1, {}, n_rules=120)
        rules = world.rules.to_pylist()
        gold = np.arange(120) % 40 == 3
        near = [
            not gold[i]
            and any(
                rules[g]["premise_fol"] == rule["premise_fol"]
                or (rules[g]["attribute"] is not None and rules[g]["attribute"] == rule["attribute"])
                for g in np.flatnonzero(gold)
            )
            for i, rule in enumerate(rules)
        ]
        assert _near(world.rules, gold).tolist() == near and 0 < sum(near) < 117

        shares = []
        for alike in (0.0, 1.0):
            mixture = Mixture(questions=1.0, fol=0.0, asked=1, alike=alike)
            lists = [
                text_of(tokenizer, document.ids).split("\n\n")[0].split("\n")
                for document in DocumentStream(writer, 7, 20_000).block(1, mixture, LEVELS | {"questions": 4})
            ]
            premises = [[rule.split(",")[0] for rule in rules] for rules in lists]
            shares.append(sum(len(each) - len(set(each)) for each in premises) / sum(map(len, premises)))
        assert shares[1] > 2 * shares[0], shares
        with pytest.raises(ValueError, match="alike must be a share, 0 to 1, got 2"):
            Mixture(questions=1.0, alike=2)

    def test_a_request_says_no_more_than_is_known_and_is_answered_by_what_is_found(self, writer, tokenizer):
        """Read back: what a line asks for is a premise and a thing to have, never what its rule concludes."""
        asked = 0
        for document in DocumentStream(writer, 7, 20_000).block(1, Mixture(requests=1.0), LEVELS):
            lines = [
                tokenizer.decode([token for token, _ in line]).strip()
                for line in by_line(tokenizer, document)
            ]
            weights = [{weight for _, weight in line} for line in by_line(tokenizer, document)]
            assert document.spans == [] and lines[-1].startswith("[Answer]") and weights[-1] == {1.0}
            for number, line in enumerate(lines):
                if line.startswith("[Search] "):
                    words = line.removeprefix("[Search] ").split(", ")
                    known = ", ".join(words[:2]) if words[0].count("(") > words[0].count(")") else words[0]
                    listed = lines[number + 1 : lines.index("", number)]
                    assert any(rule.removeprefix("If ").startswith(known) for rule in listed)
                    assert weights[number] == {1.0} and weights[number + 1] == {0.15}
                    asked += 1
        assert asked > 100

    def test_keys_are_distinct(self):
        pairs = key_value_pairs(random.Random(1), 30, 4, shared=True)
        assert len({key for key, _ in pairs}) == len(pairs) == 30


class TestStream:
    def test_a_block_is_a_function_of_seed_number_and_levels(self, writer):
        block = lambda seed, number: DocumentStream(writer, seed, 3000).block(number, EVERYTHING, LEVELS)  # noqa: E731
        assert block(1, 2) == block(1, 2)
        assert block(1, 2) != block(2, 2) and block(1, 2) != block(1, 3)

    def test_lists_are_as_long_as_the_level_says(self, writer, tokenizer):
        mixture = Mixture(recital=1.0)
        for level in (0, 4):
            found = DocumentStream(writer, 1, 4000).block(
                0, mixture, {"terse": 0, "recital": level, "questions": 0}
            )
            lengths = {text_of(tokenizer, each.ids).split("\n\n")[0].count("\n") + 1 for each in found}
            assert max(lengths) == LADDERS["recital"][level] and min(lengths) >= LADDERS["recital"][0]

    def test_every_recited_premise_has_one_conclusion(self, writer, tokenizer):
        """A premise that two rules of the list share cannot be answered but by luck, and would stall the levels."""
        mixture = Mixture(recital=1.0, fol=1.0)
        found = DocumentStream(writer, 1, 60_000).block(
            0, mixture, {"terse": 0, "recital": 4, "questions": 0}
        )
        for document in found:
            rules = text_of(tokenizer, document.ids).split("\n\n")[0].split("\n")
            premises = [rule.split(" => ")[0] for rule in rules]
            assert len(set(premises)) == len(premises) == len(document.spans)

    def test_no_rule_or_question_is_the_benchmarks(self, writer, tokenizer):
        """Worlds are independent: shared rules are as rare as chance makes them, shared questions do not occur."""
        theirs = set(rule_table(scale="paper").column("nl").to_pylist())
        questions = {
            text
            for subtask in SUBTASKS
            for text in question_table(subtask, "test", scale="tiny").column("question").to_pylist()
        }
        seen = set()
        for number in range(3):
            block = DocumentStream(writer, 0, 8000).block(
                number, Mixture(recital=0.5, questions=0.5, fol=0.0), LEVELS
            )
            seen |= {line for each in block for line in text_of(tokenizer, each.ids).split("\n") if line}
        rules = {line for line in seen if line.startswith("If A ") and line.endswith(".")}
        assert len(rules) > 300
        assert len(rules & theirs) / len(rules) < 0.02
        assert not {line.split(END)[-1] for line in seen} & questions

    def test_sizes_of_worlds_are_possible(self):
        assert len({small_sizes(random.Random(i)) for i in range(40)}) > 10

    def test_shares_must_add_up(self):
        with pytest.raises(ValueError, match="must be 1"):
            Mixture(terse=0.5)


class TestBatches:
    def test_every_short_document_comes_once_and_lookups_are_all_predicted(self, documents):
        found = list(batches(documents, 1024, 400, "k"))
        short = [each for each in documents if len(each) <= 400]
        assert sum(batch.ids.shape[0] for batch in found) == len(short) > 10
        assert sum(len(batch.spans) for batch in found) == sum(len(each.spans) for each in short)
        assert all(batch.ids.numel() <= 1024 or batch.ids.shape[0] == 1 for batch in found)
        asked = sum(weight >= 1 for each in short for weight in each.weights[1:])
        others = sum(len(each) for each in short) - asked
        predicted = sum(batch.predicted.shape[1] for batch in found)
        assert asked + 0.1 * others < predicted < asked + 0.2 * others

    def test_a_span_points_at_its_tokens(self):
        document = Document()
        document.add([5, 6, 7], 0.0)
        document.add([8, 9], 1.0, "kind")
        document.add([10], 0.0)
        batch = collate([Document([1], [0.0]), document], "k")
        ((start, stop, kind),) = batch.spans
        rows, positions = batch.predicted[:, start:stop]
        assert batch.ids[rows, positions].tolist() == [8, 9] and kind == "kind"


class TestTraining:
    def test_killed_and_resumed_ends_with_the_same_weights(self, vocabulary, tmp_path):
        whole = BaseTrainer(small_recipe(), vocabulary, tmp_path / "whole", compiled=False)
        assert not whole.resumed
        assert whole.run(report=lambda line: None)
        parts = 0
        while True:
            trainer = BaseTrainer(small_recipe(), vocabulary, tmp_path / "parts", compiled=False)
            assert trainer.resumed == (parts > 0)
            parts += 1
            if trainer.run(seconds=0, report=lambda line: None):  # one block each
                break
        assert parts > 4
        for (name, ours), theirs in zip(
            trainer.model.state_dict().items(), whole.model.state_dict().values(), strict=True
        ):
            assert torch.equal(ours, theirs), name
        assert trainer.position == whole.position
        logs = [(tmp_path / name / "log.jsonl").read_text().splitlines() for name in ("whole", "parts")]
        assert [json.loads(line)["block"] for line in logs[1]] == list(range(len(logs[0])))

    def test_blocks_after_the_checkpoint_are_logged_once(self, vocabulary, tmp_path):
        trainer = BaseTrainer(small_recipe(), vocabulary, tmp_path, compiled=False)
        trainer.run(seconds=0, report=lambda line: None)
        log = tmp_path / "log.jsonl"
        log.write_text(
            log.read_text() + '{"block": 1, "lost": true}\n{"bl'
        )  # trained, and killed before saving
        again = BaseTrainer(small_recipe(), vocabulary, tmp_path, compiled=False)
        again.run(seconds=0, report=lambda line: None)
        assert [json.loads(line).get("lost", line[0]) for line in log.read_text().splitlines()] == ["{", "{"]

    def test_looking_at_a_training_leaves_its_log_alone(self, vocabulary, tmp_path):
        """Gates and `ship` open the folder of a training that may be running."""
        BaseTrainer(small_recipe(), vocabulary, tmp_path, compiled=False).run(
            seconds=0, report=lambda line: None
        )
        log = tmp_path / "log.jsonl"
        log.write_text(log.read_text() + '{"block": 1}\n')
        before = log.read_bytes()
        trained_base(small_recipe(), vocabulary, tmp_path)
        assert log.read_bytes() == before

    def test_a_checkpoint_survives_a_kill_while_the_next_is_written(self, vocabulary, tmp_path, monkeypatch):
        trainer = BaseTrainer(small_recipe(), vocabulary, tmp_path, compiled=False)
        trainer.run(seconds=0, report=lambda line: None)
        before = dict(trainer.position)

        def killed(*paths):
            raise KeyboardInterrupt  # all but the rename is done

        monkeypatch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            trainer.run(seconds=0, report=lambda line: None)
        assert trainer.position != before
        assert BaseTrainer(small_recipe(), vocabulary, tmp_path, compiled=False).position == before

    def test_two_trainings_cannot_share_a_folder(self, vocabulary, tmp_path):
        trainer = BaseTrainer(small_recipe(), vocabulary, tmp_path, compiled=False)

        def second(line):
            with pytest.raises(ValueError, match="another process"):
                BaseTrainer(small_recipe(), vocabulary, tmp_path, compiled=False).run()

        trainer.run(seconds=0, report=second)

    @pytest.mark.parametrize("body", [b"", b"\xff" * 8, b"\2" + bytes(7) + b"{}", b"cut"])
    def test_a_damaged_checkpoint_is_told_in_a_line(self, vocabulary, tmp_path, body):
        trainer = BaseTrainer(small_recipe(), vocabulary, tmp_path, compiled=False)
        trainer.save()
        state = tmp_path / "state.safetensors"
        state.write_bytes(state.read_bytes()[:-1000] if body == b"cut" else body)
        with pytest.raises(
            ValueError, match=r"state\.safetensors is damaged \(.*\); delete it to begin anew"
        ):
            BaseTrainer(small_recipe(), vocabulary, tmp_path, compiled=False)

    def test_a_training_that_another_went_on_with_meanwhile_goes_on_from_there(self, vocabulary, tmp_path):
        """Made before the lock is taken, it would train from its own, older checkpoint and write that back."""
        trainers = [BaseTrainer(small_recipe(), vocabulary, tmp_path, compiled=False) for _ in range(2)]
        for trainer in (*trainers, trainers[0]):
            trainer.run(seconds=0, report=lambda line: None)
        assert [trainer.position["block"] for trainer in trainers] == [3, 2]
        log = [json.loads(line)["block"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
        assert log == [0, 1, 2]
        through = BaseTrainer(small_recipe(), vocabulary, tmp_path / "through", compiled=False)
        for _ in range(3):
            through.run(seconds=0, report=lambda line: None)
        for (name, ours), theirs in zip(
            trainers[0].model.state_dict().items(), through.model.state_dict().values(), strict=True
        ):
            assert torch.equal(ours, theirs), name

    def test_a_step_without_a_finite_gradient_is_skipped_and_said(self, vocabulary, tmp_path):
        trainer = BaseTrainer(small_recipe(), vocabulary, tmp_path, compiled=False)
        with torch.no_grad():
            trainer.model.model.norm.weight[0] = float("nan")
        before = trainer.model.model.layers[0].mlp.up_proj.weight.clone()
        lines = []
        trainer.run(seconds=0, report=lines.append)
        assert torch.equal(trainer.model.model.layers[0].mlp.up_proj.weight, before)
        assert re.search(r"skipped [1-9]\d* steps: the gradient was not finite", lines[0])

    def test_data_made_ahead_in_other_processes_is_the_same(self, vocabulary, tmp_path):
        found = []
        for processes in (0, 2):
            trainer = BaseTrainer(
                small_recipe(), vocabulary, tmp_path / str(processes), processes=processes, compiled=False
            )
            trainer.run(report=lambda line: None)
            found.append(trainer.model.model.embed_tokens.weight.detach().clone())
        assert torch.equal(*found)

    def test_a_loss_falls(self, vocabulary, tmp_path):
        lines = []
        phases = (Phase("one", 20_000, Mixture(terse=1.0)),)
        recipe = small_recipe(phases=phases, muon_rate=0.01, adam_rate=0.01)
        trainer = BaseTrainer(recipe, vocabulary, tmp_path, compiled=False)
        trainer.run(report=lines.append)
        losses = [float(re.search(r"loss (\S+)", line)[1]) for line in lines]
        assert losses[0] > 7 and losses[-1] < 5

    def test_another_recipe_is_refused(self, vocabulary, tmp_path):
        trainer = BaseTrainer(small_recipe(), vocabulary, tmp_path, compiled=False)
        trainer.run(seconds=0, report=lambda line: None)
        with pytest.raises(ValueError, match="another recipe"):
            BaseTrainer(small_recipe(seed=1), vocabulary, tmp_path, compiled=False)
        with pytest.raises(FileNotFoundError, match="train first"):
            trained_base(small_recipe(), vocabulary, tmp_path / "nothing")

    def test_a_base_is_shipped(self, vocabulary, tmp_path, monkeypatch):
        """What is shipped loads with transformers' own classes, and says what it is."""
        from rwbench.models import base_folder, model_template
        from rwbench.zoo.base.ship import write_base, write_card
        from transformers import AutoModelForCausalLM, AutoTokenizer

        few = functools.partial(gates.run_gates, lengths=(2, 4), distractors=(0, 3))
        monkeypatch.setattr("rwbench.zoo.base.ship.run_gates", few)
        trainer = BaseTrainer(small_recipe(), vocabulary, tmp_path / "run", compiled=False)
        trainer.run(seconds=0, report=lambda line: None)
        to = tmp_path / "model" / "base"
        to.parent.mkdir()
        sizes = write_base(small_recipe(), vocabulary, tmp_path / "run", to, questions=2, lists=1)
        assert {"model.safetensors", "tokenizer.json", "README.md", "prompt.toml", "gates.json"} <= set(sizes)
        with pytest.raises(ValueError, match="would be deleted; give another --to"):
            write_base(small_recipe(), vocabulary, tmp_path / "run", to.parent, questions=2, lists=1)
        model, tokenizer = AutoModelForCausalLM.from_pretrained(to), AutoTokenizer.from_pretrained(to)
        assert model.dtype == torch.bfloat16 and base_folder(str(to.parent)) == to
        card = (to / "README.md").read_text()
        assert "a part of the recipe" in card and "| mean |" in card and "$" not in card
        before = (to / "gates.json").read_text()
        for name in ("gates.json", "README.md"):
            (to / name).unlink()
        write_card(to, questions=2, lists=1)
        assert ((to / "README.md").read_text(), (to / "gates.json").read_text()) == (card, before)
        template = model_template(str(to.parent))
        prompt = template.render("answer", "nl", "How many?", ["If A is a tiny cat, it has 12 fins."])
        assert template.clean(f"[Step 1] x\n{STEP}[Step 2] y") == "[Step 1] x\n[Step 2] y"
        assert prompt.text == "If A is a tiny cat, it has 12 fins.\n\nHow many?\n"
        assert tokenizer.unk_token_id not in tokenizer(prompt.text)["input_ids"]

    def test_levels_rise_with_success_of_every_kind(self):
        curriculum = Curriculum(0.9, 0.75)
        yes, no = torch.tensor([True, True]), torch.tensor([True, False])
        for right in (no, yes):
            for _ in range(MIN_SEEN - 1):
                curriculum.observe([(0, 2, "terse")], right)
            assert curriculum.raise_levels() == []  # too few, then too bad
            curriculum.observe([(0, 2, "terse")], right)
        assert curriculum.raise_levels() == []
        for _ in range(200):
            curriculum.observe([(0, 2, "terse")], yes)
        assert curriculum.raise_levels() == ["terse to 8"]
        assert (
            curriculum.reached({"terse": 1})
            and not curriculum.reached({"terse": 2})
            and not curriculum.reached({})
        )

    @pytest.mark.parametrize(
        "path", sorted((ROOT / "benchmarks" / "base").glob("*.toml")), ids=lambda path: path.stem
    )
    def test_the_recipes_in_the_repository_can_be_read(self, path):
        recipe = read_recipe(path)
        assert recipe.tokens > (1e5 if recipe.lora and recipe.lora.begin else 1e6)

    def test_a_recipe_with_an_unknown_field_names_its_file(self, tmp_path):
        path = tmp_path / "odd.toml"
        path.write_text('colour = 1\n[[phases]]\nname = "a"\ntokens = 1\nmixture = { terse = 1.0 }\n')
        with pytest.raises(ValueError, match=r"odd.toml is no recipe.*colour"):
            read_recipe(path)


def test_no_base_trains_on_the_worlds_of_its_gates():
    with pytest.raises(ValueError, match="names the worlds of the gates"):
        BaseRecipe("mine", (), seed=GATE_SEED)


class TestGates:
    def test_a_model_that_copies_the_right_rule_passes_and_chance_is_what_it_says(
        self, writer, vocabulary, monkeypatch
    ):
        """With states that point at the next token every lookup succeeds; with any others none does."""
        model = new_base(SHAPE, vocabulary, 0)
        weight = model.model.embed_tokens.weight
        follows = lambda ids: torch.cat([ids[:, 1:], ids[:, :1]], 1)  # noqa: E731
        big = torch.nn.functional.normalize(weight.detach(), dim=1)
        for shift, wanted in ((follows, 1.0), (lambda ids: ids, 0.0)):
            monkeypatch.setattr(gates, "last_states", lambda m, ids, dtype, shift=shift: big[shift(ids)])
            with torch.no_grad():
                weight.copy_(big)
            cells = list(
                gates.run_gates(model, writer, lists=2, questions=3, lengths=(2, 4), distractors=(0, 3))
            )
            assert {cell.success for cell in cells} == {wanted}
            assert {cell.gate for cell in cells} == {"lookup", "gold_only", "distractors"}
        lookup = [cell for cell in cells if cell.gate == "lookup"]
        assert len(lookup) == 2 * 7 * 2 and all(1 / cell.rules <= cell.chance < 1 for cell in lookup)
        single = [cell for cell in cells if cell.gate == "gold_only" and cell.kind == "single_rule"]
        assert all(cell.chance == pytest.approx(1.0) for cell in single)
        table = gates.gate_table(cells)
        assert table.count("\n| entity2attr") == 2 and "(goal 0.98)" in table

    def test_success_is_what_greedy_decoding_writes(self, writer, vocabulary):
        model = new_base(SHAPE, vocabulary, 3).eval()
        pairs = [("tiny cat sacred horn", "hungry"), ("tiny cat sacred fin", "numb")]
        document = writer.terse(pairs, [1, 0])
        greedy = 0
        for start, stop, _ in document.spans:
            out = model.generate(
                torch.tensor([document.ids[:start]]), max_new_tokens=stop - start, do_sample=False
            )
            greedy += out[0, start:].tolist() == document.ids[start:stop]
        assert gates.successes(model, [document])["terse"] == greedy


def test_the_commands_train_and_go_on(vocabulary_at_hand, tmp_path):
    from rwbench.cli.app import app
    from typer.testing import CliRunner

    recipe, out = tmp_path / "quick.toml", tmp_path / "run"
    recipe.write_text(
        "block_tokens = 1500\nbatch_tokens = 512\n"
        "[shape]\nhidden = 32\nlayers = 2\nheads = 4\nkv_heads = 2\nfeed_forward = 48\n"
        '[[phases]]\nname = "one"\ntokens = 3000\nmixture = { terse = 1.0 }\n'
    )
    train = ["base", "train", str(recipe), "--out", str(out), "--no-compile"]
    first = CliRunner().invoke(app, [*train, "--minutes", "0.0001"])
    assert first.exit_code == 0 and "stopped" in first.stdout, first.output
    second = CliRunner().invoke(app, train)
    assert second.exit_code == 0 and "finished" in second.stdout and "rwbench base ship" in second.stdout
    for words, message in (
        (["ship", str(recipe), "--out", str(tmp_path / "none"), "--to", str(tmp_path / "to")], "train first"),
        (["gates", str(tmp_path)], "rwbench base ship RECIPE"),
    ):
        wrong = CliRunner().invoke(app, ["base", *words])
        assert wrong.exit_code == 2 and message in wrong.output
