"""IRCoT and ReAct against traces worked by hand on six rules, with a model that says what the test wrote down."""

import dataclasses
import re

import numpy as np
import pyarrow as pa
import pytest
from ruleworld_data.prompts import Template, parse_template
from rwbench.leaderboard.records import answers_in
from rwbench.methods.conversation import UsageCounter
from rwbench.methods.ircot import IRCoT
from rwbench.methods.iterative import AGGREGATIONS, shipped_template
from rwbench.methods.rag import RAG
from rwbench.methods.react import ReAct
from rwbench.methods.stepwise import Stepwise
from rwbench.retrievers import Hits, Retriever, component
from rwbench.run.data import Question, RuleTable
from rwbench.run.pools import Pool

from ..script import RULES, script

QUESTION = "How many green fins does a calm fox have when an owl chases it?"


KEYWORDS = ["chases bridge", "bridge hungry", "hungry fins", "fox fins", "owl wings", "desert awake"]


@pytest.fixture
def overlap():
    """Ranks by how many of a rule's two keywords the query holds; a rule with none is not found."""

    @component
    class Overlap(Retriever):
        """Shared keywords."""

        name = "keywords"

        def scorer(self, ids, texts):
            words = [set(KEYWORDS[RULES.index(text)].split()) for text in texts]

            def score(query):
                shared = np.array([len(rule & set(re.findall(r"\w+", query))) for rule in words])
                return np.where(shared > 0, shared, -np.inf)

            return score

    yield Overlap()
    Retriever.registry.remove("keywords")


@pytest.fixture
def pool():
    table = pa.table({"id": pa.array(range(6), pa.int32()), "nl": RULES, "fol": RULES})
    row = {
        "id": "q", "subtask": "multi_hop_3", "world_id": "w", "question": QUESTION, "fold": 0, "answers": ["7"],
        "steps": [{"rule_ids": [0]}, {"rule_ids": [1]}, {"rule_ids": [2, 3]}],
    }  # fmt: skip
    return Pool(np.arange(6, dtype=np.int32), RuleTable(table), "nl", (Question.from_row(row, 0),))


def run(method, pool, top_k=2):
    (output,) = method.run([pool], (), top_k)
    return output


def queries(output):
    return [step["query"] for step in output.trace if step["query"]]


@pytest.fixture
def talk(overlap, pool):
    """A function that holds a conversation with a model of given turns: the method, its output, and the prompts."""

    def hold(kind, *turns, top_k=2, **settings):
        rest, prompts = list(turns), []

        def say(prompt):
            prompts.append(prompt)
            return rest.pop(0)

        method = kind(model=script("said", say), retriever=overlap, **settings)
        return method, run(method, pool, top_k), prompts

    return hold


def test_ircot_follows_its_published_course(talk):
    thoughts = ("The owl chases the fox, so it enters the bridge.", "On the bridge it is deeply hungry.")
    end = "So the answer is: \\boxed{7}."
    answer = "[Step 1] All of it.\n[Answer] \\boxed{7}"
    _, out, prompts = talk(IRCoT, f"[Step 1] {thoughts[0]} And more.", thoughts[1], end, answer)
    # Keywords in each query, by rule: best two, ties by id.
    table = {
        QUESTION: [3, 0],  # fox fins: 2; chases, fins, owl: rules 0, 2, 4 have one each
        thoughts[0]: [0, 1],  # chases bridge: 2; then bridge, fox, owl
        thoughts[1]: [1, 0],  # bridge hungry: 2; then bridge, hungry
    }
    assert [tuple(step.values()) for step in out.trace] == [
        row
        for query, text in zip(table, (*thoughts, end), strict=True)
        for row in ((query, table[query], None), (None, [], text))
    ]
    # 1/61 + 2/62 for rule 0, 1/61 + 1/62 for rule 1, 1/61 for rule 3: two in all
    assert out.retrieved == [[0, 1]]
    assert (out.answers, out.outcome) == (["7"], "ok")
    assert prompts[0].endswith("Reasoning: ")
    assert prompts[1].endswith(f"Question: {QUESTION}\nReasoning: {thoughts[0]}")
    assert prompts[2].endswith(f"Reasoning: {thoughts[0]} {thoughts[1]}")
    # The reader starts afresh: the collected rules and the question, none of the thoughts.
    assert thoughts[0] not in prompts[3] and RULES[1] in prompts[3]
    usage = {name: out.usage[name] for name in ("calls", "retrievals", "rounds", "round_budget", "finished")}
    assert usage == {"calls": 4, "retrievals": 3, "rounds": 3, "round_budget": 4, "finished": 1}
    assert out.usage["prompt_tokens"] == sum(len(prompt.split()) for prompt in prompts)


def test_ircot_stops_at_its_budget_and_skips_conclusions(talk):
    sentences = ["It enters the bridge.", "Thus it is hungry.", "9 - 2 = 7 green fins are left."]
    for skip, later in ((True, [sentences[0]] * 3), (False, sentences)):
        _, out, _ = talk(IRCoT, *sentences, "no box", skip_conclusions=skip)
        assert queries(out) == [QUESTION, *later]
        assert (out.usage["rounds"], out.usage["calls"], out.usage["finished"]) == (4, 4, 0)
        assert out.outcome == "refused_format"


STEPS = (
    "[Step 1] The owl chases the fox, so the fox is somewhere.",  # a draft: the rule is not there yet
    "[Step 1] The owl chases the fox, so the fox enters the bridge.\n[Step 2] ...",
    "[Step 2] The fox is on the bridge, so it ...",
    "[Step 2] The fox is on the bridge, so it is deeply hungry.",
    "[Answer] \\boxed{0}",
    "[Answer] \\boxed{7}",
)


def test_stepwise_searches_with_the_beginning_of_each_step_and_writes_the_step_anew(talk):
    method, out, prompts = talk(Stepwise, *STEPS)
    assert queries(out) == [QUESTION, "The owl chases the fox", "The fox is on the bridge"]
    first, second = STEPS[1].split("\n")[0], STEPS[3]
    assert out.text == f"{first}\n{second}\n[Answer] \\boxed{{7}}" and out.answers == ["7"]
    # Each call goes on from what is kept; drafts are not.
    assert [prompt.split(QUESTION)[-1].strip().count("[Step") for prompt in prompts] == [0, 0, 1, 1, 2, 2]
    # A search a step, merged with what the question found: [3, 0] with [0, 3] and with [0, 1].
    assert method.stepwise and out.retrieved == [[0, 3], [0, 3]]
    assert (out.usage["calls"], out.usage["retrievals"]) == (6, 3)
    # The question finds 3, 0, 2, the step 0, 1, 3 (a keyword each): 1/62 + 1/61 of 0, 1/61 + 1/63 of 3, 1/62 of 1.
    assert talk(Stepwise, *STEPS, top_k=3)[1].retrieved[1] == [0, 3, 1]


@pytest.mark.parametrize("kind", [IRCoT, ReAct])
def test_prompts_may_hold_fewer_rules_than_are_kept(talk, kind):
    """Two rules a search and in the result, one of them in every prompt; without it, the run id of older versions."""
    turns, rounds = {
        IRCoT: (["It enters the bridge.", "no box"], 2),
        ReAct: ([f"x\nAction 1: search[{QUESTION}]", "no box"], 1),
    }[kind]
    for few in (None, 1):
        method, out, prompts = talk(kind, *turns, rounds=rounds, in_prompt=few)
        assert [len(ids) for ids in out.retrieved] == [2]
        assert sum(rule in prompts[-1] for rule in RULES) == (few or 2)
        assert ("in_prompt" in method.to_dict()) == (", 1 in prompt" in method.label) == (few is not None)
        assert kind.from_dict(method.to_dict()) == method
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        talk(kind, in_prompt=0)


@pytest.mark.parametrize(
    ("share", "above"), [(0.0, [3, 0, 2, 4]), (0.5, [3, 0, 2, 4]), (0.6, [3]), (1.0, [3])]
)
def test_a_prompt_may_hold_what_scores_nearly_as_much_as_the_best(talk, share, above):
    """The question has two keywords of rule 3 and one of three others. What was found is reported whole."""
    method, out, prompts = talk(RAG, "\\boxed{7}", top_k=6, in_prompt=4, score_share=share)
    assert out.retrieved == [[3, 0, 2, 4]]
    assert [rule for rule in range(6) if RULES[rule] in prompts[0]] == sorted(above)
    assert ("score_share" in method.to_dict()) == ("of the best score" in method.label) == bool(share)
    turns = ("It is hungry, so it ", "It is hungry, so it loses 2 fins.", "\\boxed{7}")
    steps = talk(Stepwise, *turns, top_k=6, rounds=1, score_share=share)[1].retrieved
    assert steps == ([[2, 1, 3, 0, 4]] if share <= 0.5 else [[1, 3, 2]])
    for wrong in (-0.1, 1.1):
        with pytest.raises(ValueError, match=r"or equal to [01]"):
            talk(RAG, score_share=wrong)


def test_ircot_tells_a_search_that_looks_ahead_the_question(overlap, talk, monkeypatch):
    """The question alone first, then the question and the sentence; other searches get the sentence alone."""
    sentence = "It enters the bridge."
    for plans, later in ((False, sentence), (True, f"{QUESTION}\n{sentence}")):
        monkeypatch.setattr(type(overlap), "plans", plans)
        assert queries(talk(IRCoT, sentence, "\\boxed{7}", rounds=2)[1]) == [QUESTION, later]


REACT = (
    " I need what a chase does.\nAction 1: search[chases enter the bridge]",
    " Now the bridge.\nAction 2: search[hungry without fins]",
    " 9 - 2 = 7.\nAction 3: finish[7]",
)


def test_react_follows_its_published_course(talk):
    _, out, prompts = talk(ReAct, *REACT, final="agent")
    assert [tuple(step.values()) for step in out.trace] == [
        (None, [], "I need what a chase does.\nsearch[chases enter the bridge]"),
        ("chases enter the bridge", [0, 1], None),
        (None, [], "Now the bridge.\nsearch[hungry without fins]"),
        ("hungry without fins", [2, 1], None),
        (None, [], "9 - 2 = 7.\nfinish[7]"),
    ]
    # 1/62 + 1/62 for rule 1, 1/61 for rules 0 and 2: two are kept, the tie goes by id.
    assert out.retrieved == [[1, 0]]
    assert (out.answers, out.outcome, out.text) == (["7"], "ok", "\\boxed{7}")
    assert prompts[2].endswith(
        f"Question: {QUESTION}\n"
        "Thought 1: I need what a chase does.\nAction 1: search[chases enter the bridge]\n"
        f"Observation 1: {RULES[0]}\n{RULES[1]}\n"
        "Thought 2: Now the bridge.\nAction 2: search[hungry without fins]\n"
        f"Observation 2: {RULES[2]}\n{RULES[1]}\n"
        "Thought 3:"
    )
    assert (out.usage["calls"], out.usage["retrievals"], out.usage["bad_actions"]) == (3, 2, 0)


@pytest.fixture
def own_language(monkeypatch):
    """A model that was trained to ask for rules, and whose answers are lines."""
    section = {"nl": "{rules}\n\n{question}\n", "fol": ""}
    template = Template("own", "1", "0" * 64, chat=False, remove=("<step>",), request="[Search] ", sections={
        "answer": section, "answer_without_rules": {"nl": "{question}\n", "fol": ""},
    })  # fmt: skip
    monkeypatch.setattr(type(script("own", str)), "template", template)


def test_react_asks_in_the_models_own_language(talk, pool, own_language):
    """What was found stands under the line that asked for it, a blank line after it, and the model goes on."""
    lines = [
        "[Search] chases bridge\nmore",
        "<step>[Step 1] It enters the bridge.",
        "[Search] fox fins",
        "\\boxed{7}",
    ]
    method, out, prompts = talk(ReAct, *lines, final="agent", rounds=4)
    for kind in (ReAct, Stepwise):  # who answers no requests leaves it out
        asking = kind(model=method.model, retriever=method.retriever)
        call = next(asking.converse(pool, pool.questions[0], 10, UsageCounter()))
        assert call.decoding.requests == (kind is ReAct)
    assert prompts[0] == f"{QUESTION}\n" and prompts[-1] == (
        f"{QUESTION}\n[Search] chases bridge\n{RULES[0]}\n{RULES[1]}\n\n"
        f"<step>[Step 1] It enters the bridge.\n[Search] fox fins\n{RULES[3]}\n{RULES[2]}\n\n"
    )
    assert out.text == "[Search] chases bridge\n[Step 1] It enters the bridge.\n[Search] fox fins\n\\boxed{7}"
    assert (out.answers, out.outcome, out.usage["rounds"]) == (["7"], "ok", 2)
    assert out.retrieved == [[0, 3]]  # the rounds as one list, two in all
    # Searches without end, and a model that says nothing, end as an agent that did not finish.
    for turns in (["[Search] fox fins"] * 3, [""]):
        _, out, _ = talk(ReAct, *turns, final="agent", rounds=2)
        assert (out.answers, out.outcome) == ([], "budget_exhausted") and len(out.retrieved) <= 2
    assert talk(ReAct, "", "\\boxed{5}")[1].answers == ["5"]  # the reader's, over what the question finds


def test_rules_under_a_request_are_text(talk, own_language, monkeypatch):
    monkeypatch.setattr(type(script("own", str)), "as_text", lambda self, text: f"({text})")
    _, _, prompts = talk(ReAct, "[Search] fox fins", "\\boxed{7}", final="agent", rounds=2)
    assert prompts[-1] == f"{QUESTION}\n[Search] fox fins\n({RULES[3]})\n({RULES[2]})\n\n"


def test_a_first_request_is_reworded_as_a_rule_that_it_found(talk, own_language):
    """The premise that shares most words with it stands for the first request and for no other; what was said stays."""
    settings = {"final": "agent", "rounds": 4, "in_prompt": 2, "reworded": True}
    lines = ["<step>[Step 1] So.", "[Search] deeply hungry, fins, bridge", "[Search] fox fins", "\\boxed{7}"]
    method, out, prompts = talk(ReAct, *lines, **settings)
    # Found first is rule 1, of the bridge, where one is hungry; the premise of rule 2 is what was asked for.
    assert prompts[-1] == (
        f"{QUESTION}\n<step>[Step 1] So.\n[Search] A is deeply hungry\n{RULES[1]}\n{RULES[2]}\n\n"
        f"[Search] fox fins\n{RULES[3]}\n{RULES[2]}\n\n"
    )
    assert out.text == "[Step 1] So.\n[Search] deeply hungry, fins, bridge\n[Search] fox fins\n\\boxed{7}"
    assert queries(out) == ["deeply hungry, fins, bridge", "fox fins"]
    assert "first request reworded" in method.label
    # A request that no found rule is about, or that finds nothing, is shown as it was written.
    for request in ("wings", "nothing of the kind"):
        _, _, prompts = talk(ReAct, f"[Search] {request}", "\\boxed{7}", **settings)
        assert prompts[-1].startswith(f"{QUESTION}\n[Search] {request}\n")


def test_ircot_reasons_in_the_models_own_language(talk, own_language):
    turns = ("<step>[Step 1] It is on the bridge.\nx", "[Answer] \\boxed{7}", "\\boxed{7}")
    _, out, prompts = talk(IRCoT, *turns)
    assert prompts[1] == f"{RULES[0]}\n{RULES[3]}\n\n{QUESTION}\n<step>[Step 1] It is on the bridge.\n"
    assert queries(out) == [QUESTION, "It is on the bridge."]
    assert (out.answers, out.usage["finished"]) == (["7"], 1)


def test_react_repairs_a_missing_action_and_says_what_is_none(talk):
    turns = (" I only think.\nAnd go on thinking.", " search[desert]", " Hm.\nAction 2: lookup[fox]")
    _, out, prompts = talk(ReAct, *turns, " Enough.\nAction 3: finish[7, bridge]", "\\boxed{7}")
    assert prompts[1].endswith("Thought 1: I only think.\nAction 1:")
    assert "Action 2: lookup[fox]\nObservation 2: This is no action. Use search[words]" in prompts[3]
    assert (out.usage["bad_actions"], out.usage["finished"], out.usage["calls"]) == (2, 1, 5)
    assert RULES[5] in prompts[4] and "finish[" not in prompts[4]  # the reader
    assert out.answers == ["7"]  # the reader's, not the agent's


@pytest.mark.parametrize(
    ("action", "answers"),
    [
        ("finish[5,,]", ["5", ""]),
        ("FINISH[ 7 , the bridge ]", ["7", "the bridge"]),
        ("finish[]", []),
        ("finish[7}, 8]", ["7"]),
    ],
)
def test_react_keeps_what_the_agent_wrote(talk, action, answers):
    """Whoever judges the output again reads the same answers."""
    _, out, _ = talk(ReAct, f" So.\nAction 1: {action}", final="agent")
    assert (out.answers, out.outcome, answers_in(out.text)) == (answers, "ok", answers)


def test_a_context_that_fills_up_is_an_outcome(overlap, pool):
    model = script("full", lambda prompt: " Go on.\nAction 1: search[fox]")
    small = dataclasses.replace(model, context=20)
    out = run(ReAct(model=small, retriever=overlap), pool)
    assert (out.outcome, out.answers, out.usage["calls"]) == ("context_exceeded", [], 0)


def test_aggregation_rules_differ_as_said():
    """Rounds vote, or take turns."""
    one = Hits(np.array([1, 2, 3], np.int32), np.array([9.0, 8.0, 1.0]))
    two = Hits(np.array([4, 3, 5], np.int32), np.array([8.5, 7.0, 6.0]))
    assert {name: rule([one, two], 3).tolist() for name, rule in AGGREGATIONS.items()} == {
        "rrf_rounds": [3, 1, 4],  # 1/63 + 1/62, then 1/61 twice, by id
        "in_turn": [4, 1, 3],  # the last round's first, the one before's, the last round's second
    }


def test_a_model_s_own_template_replaces_those_of_the_rounds(talk, pool, monkeypatch):
    """Section by section: a template with `reason` alone leaves ReAct's rounds as they are."""
    lines = ('name = "own"', 'version = "1"', 'answer = "READ {rules} {question}"')
    text = "\n".join([*lines, 'reason = "THINK {rules} | {question} | {thoughts}"'])
    own = parse_template(text.encode(), "prompt.toml")
    monkeypatch.setattr(type(script("said", str)), "template", own)
    ircot, _, prompts = talk(IRCoT, "It enters the bridge.", "So the answer is: \\boxed{7}.", "\\boxed{7}")
    assert ircot.prompt == own.id and prompts[2].startswith("READ ")
    assert prompts[1].startswith("THINK ") and prompts[1].endswith("| It enters the bridge.")
    react, _, prompts = talk(ReAct, " I know.\nAction 1: finish[7]", "\\boxed{7}")
    assert react.prompt == shipped_template("react").id and prompts[0].startswith("Answer a question")
    with pytest.raises(ValueError, match="the run was made for prompt template"):
        dataclasses.replace(ircot, prompt="other").prepare([pool])
