"""Law 2 for a whole model: its logits are those of equation 2 written out, in float64, from the weights alone."""

import torch

from dynarule import RuleAdapter, RuleMemory, attach, dynarule_config

SEARCH, WIDTH, LAYER = 7, 20, 2


def rms(x, weight, eps):
    return weight.double() * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def linear(x, layer):
    out = x @ layer.weight.double().T
    return out if layer.bias is None else out + layer.bias.double()


def rotated(x_THD, places_T, theta):
    """RoPE: halves of a head turned by an angle that grows with the place."""
    half = x_THD.shape[-1] // 2
    angle = places_T.double()[:, None, None] * theta ** -(torch.arange(half).double() / half)
    first, second = x_THD[..., :half], x_THD[..., half:]
    return torch.cat(
        [first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], -1
    )


def kept_by_token(config, key_MHD, query_THD, layer, ids, prompt):
    """For each token, the rules it sees: the best K for the mean query of the prompt, then for each <search>."""

    def best(query_HD):
        return torch.einsum("hd,mhd->m", query_HD, key_MHD).topk(config.top_k).indices.tolist()

    now, sets = best(query_THD[:prompt].mean(0)), []
    for place, token in enumerate(ids.tolist()):
        if place >= prompt and token == SEARCH and layer == LAYER:
            now = best(query_THD[place])
        sets.append(now)
    return sets


def reference(model, adapter, bank, ids, prompt):
    """Return the logits of one text without padding."""
    config, length = model.config, len(ids)
    theta = float(config.rope_parameters["rope_theta"])
    dim, heads = model.model.layers[0].self_attn.head_dim, config.num_attention_heads
    groups, places = heads // config.num_key_value_heads, torch.arange(length)
    ago = places[:, None] - places
    sees = ago >= 0
    if config.model_type == "mistral":
        sees &= ago < config.sliding_window
    x = model.model.embed_tokens.weight[ids].double()
    for number, layer in enumerate(model.model.layers):
        attention, eps = layer.self_attn, config.rms_norm_eps
        h = rms(x, layer.input_layernorm.weight, eps)

        def split(flat):
            return flat.unflatten(-1, (-1, dim))

        def normed(x_THD, name, attention=attention, eps=eps):
            norm = getattr(attention, name, None)
            return x_THD if norm is None else rms(x_THD, norm.weight, eps)

        query = rotated(normed(split(linear(h, attention.q_proj)), "q_norm"), places, theta)
        key = rotated(normed(split(linear(h, attention.k_proj)), "k_norm"), places, theta)
        value = split(linear(h, attention.v_proj))
        projection = adapter[number]
        rule_key = linear(bank.keys_MP.double(), projection.k)
        rule_key = rule_key - rule_key.mean(-1, keepdim=True)
        rule_key = rule_key * torch.rsqrt(rule_key.square().mean(-1, keepdim=True) + 1e-5)
        rule_key, rule_value = split(rule_key), split(linear(bank.values_MP.double(), projection.v))
        rule_query = normed(split(linear(h, projection.q)), "q_norm")
        sets = kept_by_token(adapter.config, rule_key, rule_query, number, ids, prompt)
        read = torch.zeros(length, heads, dim, dtype=torch.float64)
        for t in range(length):
            rows, past = sets[t], places[sees[t]]
            for head in range(heads):
                of = head // groups
                scores = [rule_key[rows, head] @ rule_query[t, head], key[past, of] @ query[t, head]]
                values = torch.cat([rule_value[rows, head], value[past, of]])
                weights = (torch.cat(scores) * dim**-0.5).softmax(0)
                read[t, head] = weights @ values
        x = x + linear(read.flatten(1), attention.o_proj)
        h, mlp = rms(x, layer.post_attention_layernorm.weight, eps), layer.mlp
        gate = torch.nn.functional.silu(linear(h, mlp.gate_proj))
        x = x + linear(gate * linear(h, mlp.up_proj), mlp.down_proj)
    return linear(rms(x, model.model.norm.weight, config.rms_norm_eps), model.lm_head)


def ready(family, tiny_model):
    """A model, an adapter whose queries have left those of the base, and a text with two <search>."""
    model = tiny_model(family)
    adapter = RuleAdapter(model, dynarule_config(WIDTH, confidence_layer=LAYER, top_k=5))
    generator = torch.Generator().manual_seed(8)
    for projection in adapter.layers.values():
        noise = torch.randn(projection.q.weight.shape, generator=generator) * 0.25
        projection.q.weight.add_(noise)
        for bias in (projection.k.bias, projection.v.bias):
            bias.add_(torch.randn(bias.shape, generator=generator) * 0.25)
    ids = torch.randint(10, 90, (19,), generator=generator)
    ids[[11, 15]] = SEARCH
    return model, adapter, ids


def forward(model, adapter, bank, ids, prompt):
    """The same of the package, and the steps of its searches."""
    memory = RuleMemory(adapter, bank, SEARCH)
    memory.question_mask_BT = torch.arange(len(ids))[None] < prompt
    with attach(model, memory):
        return model(ids[None]).logits[0], [(each.step, each.layer) for each in memory.trace]


WAYS = {
    "plain": ("UNFUSED_MAX_SCORES", 1 << 17),
    "fused": ("UNFUSED_MAX_SCORES", 0),
    "merged": ("MERGE_MIN_TOKENS", 1),
}


@torch.no_grad()
def test_a_forward_is_equation_2_to_the_last_digits_of_fp32(family, bank, tiny_model, monkeypatch, near):
    model, adapter, ids = ready(family, tiny_model)
    expected = reference(model, adapter, bank, ids, prompt=9)
    for name, value in WAYS.values():
        with monkeypatch.context() as patch:
            patch.setattr(f"dynarule.kernels.{name}", value)
            for attention in ("sdpa", "eager"):
                model.set_attn_implementation(attention)
                assert near(forward(model, adapter, bank, ids, 9)[0], expected)


@torch.no_grad()
def test_a_search_inside_the_question_is_text(bank, tiny_model, near):
    """Only the model asks for rules again: whoever writes ``<search>`` into a question changes no rules by it."""
    model, adapter, ids = ready("qwen2", tiny_model)
    ids[[2, 7]] = SEARCH
    found, searches = forward(model, adapter, bank, ids, 9)
    assert near(found, reference(model, adapter, bank, ids, 9))
    assert {step for step, _ in searches} == {0, 1, 2}
    assert {layer for step, layer in searches if step} == {LAYER}
