"""The `datasets` builder: generates RuleWorld on the user's machine, without files and without a network.

``load_dataset("ruleworld", "multi_hop_3", scale="tiny", seed=0, form="nl")`` ends here.
"""

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import datasets
import datasets.builder
import pyarrow as pa

from ruleworld_data.io.schema import QUESTION_SCHEMA, rule_schema
from ruleworld_data.spec import (
    ALL_SUBTASKS,
    FORMS,
    PAPER_POINT,
    RULE_SPLITS,
    SUBTASKS,
    VERSION,
    Dials,
    WorldSpec,
    check_name,
    data_version,
    splits_of,
)

MIN_SHARD_ROWS = 16
MAX_SHARD_ROWS = 20_000
SHARDS = 32
"""Shards a split is cut into where their size allows: what num_proc and streaming workers can share."""


@dataclass
class RuleWorldConfig(datasets.BuilderConfig):
    """What a user may choose; every choice is part of the cache key.

    Attributes
    ----------
    version : str
        Version of the data, a name of `ruleworld_data.spec.VERSIONS`.
    scale : str
        ``"paper"``, ``"full"`` or ``"tiny"``.
    seed : int
        Seed of the world. The published benchmark is seed 0.
    form : str
        ``"nl"`` or ``"fol"`` leaves out the rule and step texts of the other form. Facts, queries and the state
        after a step are annotations in FOL and always stay.
    hops, parts, crowd, conjunction, thresholds, exceptions, unknown, words
        Where the world departs from the paper's; see `ruleworld_data.spec.Dials`. A configuration beyond the paper's
        turns the dial that it needs.
    """

    version: datasets.Version | str | None = VERSION
    scale: str = "paper"
    seed: int = 0
    form: str = "both"
    hops: int = PAPER_POINT.hops
    parts: int = PAPER_POINT.parts
    crowd: int | None = PAPER_POINT.crowd
    conjunction: int = PAPER_POINT.conjunction
    thresholds: bool = PAPER_POINT.thresholds
    compare: bool = PAPER_POINT.compare
    exceptions: int = PAPER_POINT.exceptions
    unknown: bool = PAPER_POINT.unknown
    words: float = PAPER_POINT.words

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "version":  # "1.1" as well as "1.1.0", which is what the library wants
            value = datasets.Version(f"{data_version(value)}.0")
        super().__setattr__(name, value)

    def create_config_id(self, config_kwargs: dict[str, Any], custom_features: Any = None) -> str:
        """Check the options, and name the cache entry after those that differ from their defaults."""
        spec = self.spec
        check_name("form", self.form, ("both", *FORMS))
        values = {"scale": self.scale, "seed": self.seed, "form": self.form, "data": spec.version}
        defaults = {"scale": "paper", "seed": 0, "form": "both", "data": VERSION}
        values |= spec.dials.to_dict()
        defaults |= PAPER_POINT.reaching(self.name).to_dict()
        options = {k: v for k, v in config_kwargs.items() if v is not None and k not in _OPTIONS}
        options |= {name: value for name, value in values.items() if value != defaults.get(name)}
        return super().create_config_id(options, custom_features=custom_features)

    @property
    def spec(self) -> WorldSpec:
        """The world whose tables these are."""
        dials = Dials(**{item.name: getattr(self, item.name) for item in fields(Dials)})
        return WorldSpec(self.scale, seed=self.seed, version=data_version(self.version), dials=dials)

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows in the chosen form."""
        full = rule_schema(self.spec.dials) if self.name == "rules" else QUESTION_SCHEMA
        return pa.schema(self._columns(full))

    def _columns(self, fields: Iterable[pa.Field]) -> list[pa.Field]:
        """Leave out the texts of the other form, in lists of structs too."""
        other = {"nl": "fol", "fol": "nl"}.get(self.form)
        columns = []
        for column in fields:
            if column.name.rpartition("_")[2] == other:
                continue
            if pa.types.is_list(column.type) and pa.types.is_struct(column.type.value_type):
                column = column.with_type(pa.list_(pa.struct(self._columns(column.type.value_type))))
            columns.append(column)
        return columns


_OPTIONS = ("version", "scale", "seed", "form", *(item.name for item in fields(Dials)))
_NAMES = tuple(dict.fromkeys((*SUBTASKS, "rules", *ALL_SUBTASKS)))


class RuleWorld(datasets.ArrowBasedBuilder):
    """RuleWorld as a dataset: one configuration per sub-task, and ``rules``."""

    BUILDER_CONFIG_CLASS = RuleWorldConfig
    BUILDER_CONFIGS = [  # noqa: RUF012
        RuleWorldConfig(name=name, **PAPER_POINT.reaching(name).to_dict()) for name in _NAMES
    ]

    def __init__(self, *args: Any, config_name: str | None = None, **kwargs: Any) -> None:
        # The library's own messages name neither near matches nor options, and without a name it makes up a
        # configuration called "default".
        if config_name is None:
            raise ValueError(
                "RuleWorld has one configuration per sub-task and one of rules; name one, as in "
                f"load_dataset('ruleworld', 'multi_hop_3'). Known: {', '.join(_NAMES)}."
            )
        check_name("configuration", config_name, _NAMES)
        for name in set(kwargs) - set(inspect.signature(datasets.DatasetBuilder.__init__).parameters):
            check_name("option", name, (*_OPTIONS, "description"))
        super().__init__(*args, config_name=config_name, **kwargs)

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo(
            description="RuleWorld: an abstract rule benchmark whose every answer is provable.",
            features=datasets.Features.from_arrow_schema(self.config.schema()),
            license="apache-2.0",
        )

    def _split_generators(self, dl_manager: Any) -> list[datasets.SplitGenerator]:
        splits = RULE_SPLITS if self.config.name == "rules" else splits_of(self.config.spec.version)
        generators = []
        for split in splits:
            rows = replace(self.config.spec, split=split).num_rows(self.config.name)
            generator = datasets.SplitGenerator(
                name=split, gen_kwargs={"split": split, "ranges": shard_ranges(rows)}
            )
            generator.split_info.num_examples = rows  # the total of the progress bar
            generators.append(generator)
        return generators

    def _generate_tables(self, split: str, ranges: list[tuple[int, int]]) -> Iterator[tuple[Any, pa.Table]]:
        from ruleworld_data.generate import table

        spec, schema = replace(self.config.spec, split=split), self.config.schema()
        for shard, (start, stop) in enumerate(ranges):
            rows = table(self.config.name, spec, start, stop)
            yield datasets.builder.Key(shard, start), rows.select(schema.names).cast(schema)


def shard_ranges(rows: int) -> list[tuple[int, int]]:
    """Cut ``range(rows)`` into shards of equal size: `SHARDS` of them, but none tiny and none huge."""
    size = min(max(-(-rows // SHARDS), MIN_SHARD_ROWS), MAX_SHARD_ROWS)
    return [(start, min(start + size, rows)) for start in range(0, rows, size)]
