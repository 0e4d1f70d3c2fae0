"""Teaching by LoRA: a pass over a tree is one pass a branch, a killed training goes on, and what comes of it joins."""

import json
import random
import shutil
from dataclasses import asdict

import drills
import gates
import network
import pytest
import teach
import torch
from documents import Document
from drills import Ingredient, draw_trees
from network import LINEAR, Tree, add_lora, answer_losses
from peft import LoraConfig, PeftModel, get_peft_model
from plain import NO_RULE
from ruleworld_data import generate
from ruleworld_data.fresh import fresh_world
from ruleworld_data.questions import training_text
from ruleworld_data.spec import SUBTASKS, Dials, WorldSpec, subtasks_of
from rwbench.backends import Completion
from rwbench.models import model_template
from rwbench.models.added import add_model
from safetensors.torch import load_file, save_file
from teach import Recipe, read_recipe
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

from .conftest import LAB

PARTS = {
    "words": Ingredient(0.3, dials="words=1", rules=(1, 6), asked=3),
    "logic": Ingredient(0.2, dials="", version="1.1", fol=1.0, rules=(1, 4), asked=1),
    "plain": Ingredient(0.3, rules=(4, 30), asked=5),
    "requests": Ingredient(0.1, dials="", requests=True, asked=2),
    "plain requests": Ingredient(0.1, requests=True, asked=2),
    "english": Ingredient(0.1, english=True),
}


def recipe_of(model, **changes):
    quick = {"rank": 4, "first_layer": 1, "tokens": 9000, "step_tokens": 2000, "rate": 1e-2, "warmup": 2}
    return Recipe(str(model), "<step>", {"plain": PARTS["plain"]}, **(quick | changes))


@pytest.mark.parametrize("begin, apart", [(0, ()), (7, ()), (7, (3, 4)), (9, (4, 1, 4))])
def test_a_pass_over_a_tree_is_one_pass_a_branch_by_peft(begin, apart, model, monkeypatch):
    """Losses and gradients, in float32, of branches of unequal length: no list before them, one, rules apart."""
    draw = random.Random(begin)
    branches = [
        Document([draw.randrange(5, 300) for _ in range(n)], [i > 1 for i in range(n)], "") for n in (5, 9, 4)
    ]
    tree = Tree([draw.randrange(5, 300) for _ in range(begin)], branches, "", apart)
    ours = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    changed = add_lora(ours, (1, 2, 3), 4)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=[*LINEAR], layers_to_transform=[1, 2, 3])
    theirs = get_peft_model(AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32), config)
    other = dict(theirs.named_parameters())
    for name, linear in changed.items():
        torch.nn.init.normal_(linear.up, std=0.1)
        with torch.no_grad():
            other[f"{name}.lora_A.default.weight"].copy_(linear.down)
            other[f"{name}.lora_B.default.weight"].copy_(linear.up)
        linear.join()
    monkeypatch.setattr(network, "BLOCK", 4)
    losses, right, branch = answer_losses(ours, tree)
    losses.sum().backward()
    for number, each in enumerate(branches):
        ids = torch.tensor([tree.prefix + each.ids])
        seen = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
        places, start, longest = [*range(ids.shape[1])], 0, max(apart or (begin,))
        for size in apart:  # the last token of each stands at `longest` - 1, and sees its rule alone
            seen[start : start + size, :start] = False
            places[start : start + size] = range(longest - size, longest)
            start += size
        places[begin:] = range(longest, longest + len(each.ids))
        mask = torch.zeros(seen.shape).masked_fill(~seen, -1e9)[None, None]
        output = theirs(input_ids=ids, attention_mask=mask, position_ids=torch.tensor([places]))
        alone = output.logits[0, begin + 1 : -1]
        of_each = cross_entropy(alone, ids[0, begin + 2 :], reduction="none")
        torch.testing.assert_close(losses[branch == number], of_each, rtol=1e-4, atol=1e-4)
        assert torch.equal(right[branch == number], alone.argmax(-1) == ids[0, begin + 2 :])
        of_each.sum().backward()
    for name, linear in changed.items():
        for side, own in (("lora_A", linear.down), ("lora_B", linear.up)):
            its = other[f"{name}.{side}.default.weight"].grad
            torch.testing.assert_close(own.grad, its, rtol=1e-3, atol=1e-4)


def taught(*args):
    training = teach.Teaching(*args, "cpu")
    training.run()
    return training


def test_a_teaching_that_was_killed_goes_on(model, tmp_path, monkeypatch):
    """From its last checkpoint with a rising rate, in its folder or where that was copied to."""
    recipe, step = recipe_of(model), teach.Teaching.step
    monkeypatch.setattr(teach, "SAVE_SECONDS", 0.0)

    def killed(self):
        if self.at["step"] == 2:
            raise KeyboardInterrupt
        return step(self)

    monkeypatch.setattr(teach.Teaching, "step", killed)
    with pytest.raises(KeyboardInterrupt):
        taught(recipe, tmp_path / "here")
    monkeypatch.setattr(teach.Teaching, "step", step)
    last = tmp_path / "here/last"
    saved = {name: value.float() for name, value in load_file(last / teach.WEIGHTS).items()}
    shutil.copytree(last, tmp_path / "there/last")
    for place in ("here", "there"):
        training = teach.Teaching(recipe, tmp_path / place, "cpu")
        assert training.at["step"] == training.at["warm"] == 2 and 0 < training.done < 1
        assert all(torch.equal(weight, saved[name]) for name, weight in training.weights.items())
    assert taught(recipe, tmp_path / "here").at["step"] > 2
    line = json.loads((tmp_path / "here/log.jsonl").read_text().split("\n")[-2])
    assert line["tokens"] >= 9000 and line["hours_left"] <= 0 and set(line["loss"]) <= set(PARTS)
    with pytest.raises(ValueError, match="last is of another recipe"):
        teach.Teaching(recipe_of(model, first_layer=2), tmp_path / "there", "cpu")


def test_a_question_is_the_prompt_as_it_is_asked_and_its_answer(writer):
    world = fresh_world(9, 0, dict.fromkeys(SUBTASKS, 1))
    template, rule = model_template("tiny"), "If A is a tiny cat, it has 12 fins."
    rules, decode = writer.rules([rule]), writer.tokenizer.decode
    for row in (row for table in world.questions.values() for row in table.to_pylist()):
        document = writer.answer(row, "nl")
        start = document.wanted.index(True)
        prompt, answer = (decode(ids) for ids in (rules.ids + document.ids[:start], document.ids[start:]))
        assert prompt == template.render("answer", "nl", row["question"], [rule]).text
        assert answer == training_text(row, "nl", None, mark="<step>") + "<end>"
        assert not any(rules.wanted) and all(document.wanted[start:])


def test_a_request_says_no_more_than_is_known_and_brings_its_rule_and_no_question_is_the_benchmarks(writer):
    """Read back: what a line asks for is a premise and a thing to have, never what its rule concludes.

    Worlds are independent: shared rules are as rare as chance makes them, shared questions do not occur.
    """
    tables = [generate.table(subtask, WorldSpec("tiny", "test")) for subtask in SUBTASKS]
    questions = {text for table in tables for text in table.column("question").to_pylist()}
    trees = draw_trees(writer, "7", 1, {"": Ingredient(1.0, dials="", version="1.1", requests=True)}, 20_000)
    texts = [writer.tokenizer.decode(branch.ids) for tree in trees for branch in tree.branches]
    requests, rules = 0, set()
    for text in texts:
        lines = text.split("\n")
        assert lines[0] not in questions and lines[-1].startswith("[Answer]") and "<unknown>" not in text
        for number, line in enumerate(lines):
            if line.startswith("[Search] "):
                words = line.removeprefix("[Search] ").split(", ")
                known = ", ".join(words[:2]) if words[0].count("(") > words[0].count(")") else words[0]
                brought = lines[number + 1 : lines.index("", number)]
                assert any(rule.removeprefix("If ").startswith(known) for rule in brought)
                requests += 1
                rules |= {*brought}
    assert requests > 100 and len(rules) > 100
    assert len(rules & {*generate.table("rules", WorldSpec()).column("nl").to_pylist()}) < 0.02 * len(rules)


def test_a_tree_holds_the_prompt_as_it_is_asked_and_its_answers(writer):
    template, seen = model_template("tiny"), set()
    trees = [tree for step in range(6) for tree in draw_trees(writer, "5", step, PARTS, 6000)]
    assert draw_trees(writer, "5", 1, PARTS, 6000) == draw_trees(writer, "5", 1, PARTS, 6000)
    for tree in trees:
        seen.add(tree.ingredient)
        if tree.ingredient == "english":
            (text,) = tree.branches
            assert not tree.prefix and text.wanted == [False] + [True] * (len(text.ids) - 1)
            continue
        assert tree.branches and bool(tree.prefix) == ("requests" not in tree.ingredient)
        rules = writer.tokenizer.decode(tree.prefix).strip().split("\n")
        for branch in tree.branches:
            start = branch.wanted.index(True)
            question, proof = (
                writer.tokenizer.decode(ids) for ids in (branch.ids[:start], branch.ids[start:])
            )
            assert proof.endswith("<end>")
            if tree.prefix:
                asked = template.render("answer", "nl", question.strip(), rules).text
                assert asked == writer.tokenizer.decode(tree.prefix) + question and all(branch.wanted[start:])
                assert (NO_RULE in proof) == ("{unknown}" in proof)
    assert seen == set(PARTS)


def test_lists_are_as_long_as_asked_for(writer):
    draw = random.Random(0)
    gold = Ingredient(1, dials="", rules=(1, 1), asked=1)
    for plan, sizes in ((gold, range(1, 17)), (Ingredient(1, rules=(40, 40)), [40])):
        for number in range(6):
            tree = drills.draw_tree(writer, draw, f"9/{number // 6}", "", plan)
            assert len(writer.tokenizer.decode(tree.prefix).strip().split("\n")) in sizes


def test_gates_score_what_the_model_writes(model, monkeypatch):
    monkeypatch.setattr(gates, "GATES", {"logic": (PARTS["logic"], 0.9), "plain": (PARTS["plain"], 0.9)})
    asked = []

    def generate(self, prompts, decoding):
        asked.extend(prompts)
        return [Completion("so \\boxed{unknown}") for _ in prompts]

    monkeypatch.setattr(gates.Local, "generate", generate)
    gates.main(str(model), 40, "", str(model))
    logic, plain, english = json.loads((model / "gates.json").read_text())
    (model / "gates.json").unlink()
    assert logic["right"] == 0 < plain["right"] < 1 and english["ratio"] == 1 and len(asked) == 80


def test_what_was_taught_is_joined_and_goes_on(model, tmp_path):
    """As PEFT opens it, and to the last bit on every CPU; another training begins with it."""
    taught(recipe_of(model, tokens=3000), tmp_path)
    folder = tmp_path / "model"
    assert str(tmp_path) not in (folder / "adapter_config.json").read_text()
    ids = torch.randint(10, 400, (1, 12))
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    before = plain(ids).logits
    changed = PeftModel.from_pretrained(plain, folder).eval()(ids).logits
    assert not torch.allclose(changed, before, atol=1e-2)
    (folder / "mine-nl").mkdir()
    (folder / "mine-nl" / "adapter_config.json").write_text("{}")
    base = add_model(str(folder), "knows-rules") / "base"
    assert (base.parent / "mine-nl" / "adapter_config.json").is_file()  # an adapter that was trained on it
    assert AutoTokenizer.from_pretrained(base).chat_template is None  # it was taught plain text
    # whether it was loaded offline is no part of a model, nor of its fingerprint
    assert not json.loads((base / "tokenizer_config.json").read_text())["local_files_only"]
    joined = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)(ids).logits
    assert torch.allclose(joined, changed, atol=5e-2)

    changes = {name: each.float() for name, each in load_file(folder / "adapter_model.safetensors").items()}
    again = teach.Teaching(recipe_of(model, begin=str(folder)), tmp_path / "again", "cpu")
    own = again.weights
    assert own.keys() == changes.keys() and all(torch.equal(own[n], w) for n, w in changes.items())

    down, up = (
        next(n for n in sorted(changes) if n.endswith(f"q_proj.{side}.weight"))
        for side in ("lora_A", "lora_B")
    )
    changes[down][:, 0], changes[up][0] = 1.0, 0.0
    # float32 keeps what its order of summing lets it
    changes[up][0, :3] = torch.tensor([2.0**20, 2.0**-7, -(2.0**20)])
    save_file(changes, folder / "adapter_model.safetensors", {"format": "pt"})
    name = down.removeprefix("base_model.model.").replace("lora_A.", "")
    weight = load_file(add_model(str(folder), "summed") / "base/model.safetensors")[name][0, 0]
    first = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64).state_dict()[name][0, 0]
    assert weight == (first + 2.0**-6).to(torch.bfloat16)  # alpha is twice the rank, so it counts twice

    record = folder / "training.json"
    record.write_text(record.read_text().replace(json.loads(record.read_text())["base"], "0" * 12))
    for use in (
        lambda: add_model(str(folder), "x"),
        lambda: teach.Teaching(again.recipe, tmp_path / "again", "cpu"),
    ):
        with pytest.raises(ValueError, match="was taught to a model with fingerprint 000000000000"):
            use()
    # pickled weights are not looked at, nor is a hub asked for those that are not there
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(FileNotFoundError, match=r"has no adapter_model\.safetensors"):
        add_model(str(folder), "pickled")


def test_a_mark_that_the_model_cannot_tell_from_another(model):
    base, tokenizer = AutoModelForCausalLM.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    rows = base.get_output_embeddings().weight
    with torch.no_grad():
        rows[3] = 1.01 * rows[len(rows) // 2]
    twin = tokenizer.convert_ids_to_tokens(3)
    teach.check_mark(rows, "<step>", tokenizer)
    for odd in (twin, "[Step"):
        with pytest.raises(ValueError, match=r"one of .*<step>.*, got"):
            teach.check_mark(rows, odd, tokenizer)


def test_the_recipe_in_the_repository_can_be_read_and_is_that_of_its_checkpoint():
    recipe = read_recipe(LAB.parent / "base/smollm2-next.toml")
    said = json.loads((LAB.parent / "base/smollm2-next/training.json").read_text())
    assert said["recipe"] == json.loads(json.dumps(asdict(recipe))) and said["tokens"] >= recipe.tokens
    assert sum(part.share for part in recipe.ingredients.values()) == pytest.approx(1)
    assert recipe.seed != gates.SEED
    for part in (*recipe.ingredients.values(), *(plan for plan, _ in gates.GATES.values())):
        subtasks = subtasks_of(Dials.parse(part.dials)) if part.dials is not None else ()
        assert part.dials is None or any(each.startswith(part.only or "") for each in subtasks)
    with pytest.raises(ValueError, match="colour"):
        Ingredient(1.0, colour=1)


@pytest.mark.parametrize("dials", ["unknown=true", "exceptions=2"])
def test_a_world_is_as_large_as_its_dials_need(dials):
    """Of a key whose first sizes are too small: for exceptions, or for the rules that unknown leaves out."""
    assert drills._sizes_with(Dials.parse(dials), "sizes/9/7/0") is None
    subtasks = tuple(s for s in subtasks_of(Dials.parse(dials)) if s.startswith(dials[:7]))
    assert len(drills._world("9/7", dials, "1.2", subtasks).rules) >= drills.RULES
