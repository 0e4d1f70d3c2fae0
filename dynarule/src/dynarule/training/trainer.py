"""Two-stage training on transformers' Trainer.

>>> adapter = RuleAdapter(model, dynarule_config(bank.encoder_dim))  # doctest: +SKIP
>>> train(model, tokenizer, adapter, rows, bank, paper_recipe(stage=1), "stage1")  # doctest: +SKIP
>>> adapter.config.confidence_layer = measured  # doctest: +SKIP
>>> train(model, tokenizer, adapter, rows, bank, paper_recipe(stage=2), "stage2")  # doctest: +SKIP
"""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Sampler, SequentialSampler
from transformers import PrinterCallback, Trainer, TrainingArguments

from .._files import disk_errors, exclusive, write_whole
from ..adapter import RuleAdapter
from ..bank.bank import RuleBank
from ..model_card import model_card
from ..search_token import SEARCH_TOKEN, search_id
from .data import Collator, Encoder, encoder_for
from .optimizers import muon_optimizer
from .pools import Rows, RulePools, TrainingStream, families
from .recipe import Recipe, recipe_steps
from .rule_model import RuleModel
from .run_folder import claim, run_settings

PARTS = ("lm", "retrieval", "hits", "steps")
MEASUREMENTS = 10  # of held-out questions in a run


class RuleTrainer(Trainer):
    """A Trainer that keeps the stream's order and logs each part of the loss.

    Beside the Trainer's own, logs have ``lm_loss``, ``retrieval_loss`` and ``recall_at_1``: in training among a batch's
    kept rules, in evaluation (``eval_...``) among all rules of its pool, gold rules not forced.
    """

    loss_is_scaled_for_ga = False  # losses are means of a batch: divide by the number of accumulated batches

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.model_accepts_loss_kwargs = False
        self._parts: dict[str, list[Tensor]] = {"": [], "eval_": []}

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> Sampler:
        return SequentialSampler(self.train_dataset if train_dataset is None else train_dataset)  # type: ignore[arg-type]

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return the loss, and note its parts."""
        out = model(**inputs)
        parts = torch.stack([out[name].detach().float() for name in PARTS])
        self._parts["" if model.training else "eval_"].append(parts)
        return (out["loss"], out) if return_outputs else out["loss"]

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the parts of the loss since the last log of the kind."""
        for prefix, noted in self._parts.items():
            if f"{prefix}loss" in logs and noted:
                means = self.accelerator.gather(torch.stack(noted).mean(0)[None]).mean(0)
                lm, retrieval, hits, steps = means.tolist()
                logs = logs | {f"{prefix}lm_loss": lm, f"{prefix}retrieval_loss": retrieval}
                if steps:
                    logs[f"{prefix}recall_at_1"] = hits / steps
                noted.clear()
        super().log(logs, start_time)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """Return the recipe's optimizer; ValueError for Muon under DeepSpeed, whose ZeRO shards one flat optimizer."""
        assert isinstance(self.model, RuleModel)
        muon = self.model.recipe.additions.get("muon")
        if self.optimizer is None and muon is not None:
            if self.is_deepspeed_enabled:
                raise ValueError("Muon does not run under DeepSpeed; leave the addition muon out")
            self.optimizer = muon_optimizer(self.model, muon["value_rate"])
        return super().create_optimizer(*args, **kwargs)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Decay the adapter's matrices, never an embedding row."""
        return [name for name in super().get_decay_parameter_names(model) if "adapter." in name]


def training_arguments(recipe: Recipe, folder: str | Path, steps: int, **more: Any) -> TrainingArguments:
    """Return the Trainer's arguments for a recipe; anything of ``TrainingArguments`` may be given or changed."""
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": steps,
        "per_device_train_batch_size": recipe.batch_size,
        "per_device_eval_batch_size": recipe.batch_size,
        "gradient_accumulation_steps": recipe.accumulation,
        "learning_rate": recipe.learning_rate,
        "lr_scheduler_type": recipe.schedule,
        "warmup_steps": recipe.warmup_ratio,  # below one the Trainer reads it as a ratio
        "weight_decay": recipe.weight_decay,
        "max_grad_norm": recipe.max_grad_norm,
        "seed": recipe.seed,
        "save_steps": 150,
        "save_total_limit": 2,
        "logging_steps": 10,
        "remove_unused_columns": False,
        "report_to": "none",
        "label_names": ["labels"],
        "disable_tqdm": True,
        "dataloader_pin_memory": torch.cuda.is_available(),
    }
    return TrainingArguments(**(settings | more))


def train(
    model: nn.Module,
    tokenizer: Any,
    adapter: RuleAdapter,
    rows: Rows,
    bank: RuleBank,
    recipe: Recipe,
    folder: str | Path,
    *,
    held_out: Rows | None = None,
    encoder: Encoder | None = None,
    resume: bool = False,
    curve: dict[str, Any] | None = None,
    callbacks: Sequence[Any] = (),
    **arguments: Any,
) -> list[dict[str, float]]:
    """Train one stage; the adapter and the row of ``<search>`` in the model are changed in place, and saved.

    Parameters
    ----------
    model : PreTrainedModel
        The base model. Its parameters are frozen, also afterwards.
    tokenizer : PreTrainedTokenizerBase
        Knows ``<search>`` (`dynarule.prepare_search`) unless the recipe does without.
    adapter : RuleAdapter
        Starts from what it is: pass stage 1's to stage 2.
    rows, held_out : datasets.Dataset or sequence of dict
        Questions, see `dynarule.training.data`. Held-out ones are measured ten times, or as ``eval_strategy`` says.
    bank : RuleBank
        The rule table that the questions' rule ids name; rules with a gold rule's premise are hard negatives.
    recipe : Recipe
        Hyper-parameters.
    folder : path
        Checkpoints, ``recipe.json``, and at the end ``log.json`` and the adapter with its model card ``README.md``.
    encoder : Encoder or None
        Rows to tokens, if prompt or target differ from the defaults.
    resume : bool
        Go on from the newest whole checkpoint in the folder, or begin; the recipe must be the one of the start.
    curve : dict or None
        The entropies from which the confidence layer was chosen, to be saved with the adapter.
    callbacks : sequence
        Of transformers; `dynarule.training.LogLines` writes logs to stderr.
    **arguments
        Of ``TrainingArguments``, such as ``report_to``, ``bf16``, ``deepspeed``, ``gradient_checkpointing``.

    Returns
    -------
    list of dict
        The log.

    Raises
    ------
    FileExistsError
        If the folder has checkpoints of another run.
    ValueError
        If rows, rules, adapter and recipe do not fit each other, or another process trains in the folder.
    """
    folder = Path(folder)
    trained_rows: list[nn.Parameter] = []
    config = adapter.config
    own_row = recipe.searches and not config.own_mark
    if recipe.searches:
        row = search_id(tokenizer, config.search_token or SEARCH_TOKEN)
        rows_of_search = adapter.train_search(row) if own_row else []
        trained_rows = rows_of_search if recipe.steps is None else []  # else finding's row stays as it is
    encoder = encoder_for(config, tokenizer, bank.ids, rows, encoder, recipe.searches)
    for number in range(len(held_out or ())):
        encoder.check(held_out[number])  # type: ignore[index]
    if arguments.pop("gradient_checkpointing", False):
        # The older name goes with transformers 6.
        newer = getattr(model, "activation_checkpointing_enable", None)
        (newer or model.gradient_checkpointing_enable)()  # type: ignore[operator]
    first = next(model.parameters())
    dtype = first.dtype
    # Beside a bf16 base the adapter stays fp32 and is used in bf16. Without use_cpu, processes on a CPU do not find
    # each other: each would train, and save, alone.
    arguments = {"bf16": dtype == torch.bfloat16, "use_cpu": first.device.type == "cpu"} | arguments
    processes = training_arguments(recipe, folder, 1, **arguments).world_size
    steps = recipe_steps(recipe, len(rows), processes)
    if held_out is not None:
        arguments = {"eval_strategy": "steps", "eval_steps": -(-steps // MEASUREMENTS)} | arguments
    settings = training_arguments(recipe, folder, steps, **arguments)
    if first.device != settings.device:  # of this process; the Trainer moves the module alone
        model.to(settings.device)
    module = RuleModel(model, adapter, bank, recipe, trained_rows)
    premises = [bank.parts_of(text)[0] for text in bank.texts]
    pools = RulePools(len(bank), premises, recipe.hard_share, recipe.seed)
    per_step = recipe.batch_size * recipe.accumulation * processes
    by_length = "sorted_batches" in recipe.additions
    block = per_step if by_length else recipe.batch_size
    stream = TrainingStream(rows, steps * per_step, recipe.mix, block, recipe.seed, by_length)
    held = None
    if held_out is not None:
        held = TrainingStream(held_out, len(held_out), None, len(held_out), recipe.seed, by_length)
    frozen = [parameter for parameter in adapter.parameters() if not parameter.requires_grad]
    fixed = run_settings(recipe, config, bank, [rows], encoder, frozen)
    # One process writes; the others of a run must not be refused.
    with exclusive(folder) if settings.process_index == 0 else nullcontext():
        checkpoint = claim(folder, fixed, resume, write=settings.process_index == 0)
        trainer = RuleTrainer(
            module,
            settings,
            data_collator=Collator(encoder, pools, recipe.pool_size),
            train_dataset=stream,
            eval_dataset=held,
            callbacks=list(callbacks),
        )
        trainer.remove_callback(PrinterCallback)  # stdout is not the library's
        with module.attached(), disk_errors(folder):
            trainer.train(resume_from_checkpoint=checkpoint)
        model.requires_grad_(False)
        adapter.check_finite()
        lines = [entry for entry in trainer.state.log_history if {"lm_loss", "eval_lm_loss"} & entry.keys()]
        history = [
            {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in entry.items()} for entry in lines
        ]
        adapter.config.encoder = bank.encoder
        if trainer.is_world_process_zero():
            write_whole(folder / "log.json", "[\n" + ",\n".join(map(json.dumps, history)) + "\n]\n")
            adapter.config.curve = curve
            if own_row:
                adapter.train_search(row)  # whatever trained it, the row goes with the adapter
            adapter.save(folder, tokenizer if own_row else None)
            facts = {
                "steps": steps,
                "processes": processes,
                "questions": len(rows),
                "held_out": 0 if held_out is None else len(held_out),
                "families": {} if recipe.mix is None else Counter(families(rows)),
                "rules": len(bank),
                "dtype": str(dtype).removeprefix("torch."),
            }
            write_whole(folder / "README.md", model_card(adapter.config, recipe, facts, history))
    for rows_NC in trained_rows:
        rows_NC.data = rows_NC.data.to(dtype)
    adapter.to(dtype)  # as serving reads it; the file keeps fp32
    with torch.no_grad():
        for parameter in adapter.parameters():
            parameter.mul_(1)  # a bank drops its 1 / sigma by the version, which a fused optimizer leaves
    return history
