"""Arrow schemas of the two tables: rules and questions."""

import pyarrow as pa

from ..spec import PAPER_POINT, Dials

_RULE_TEXTS = (
    "type nl fol premise_nl conclusion_nl premise_fol conclusion_fol entity action role environment state "
    "trigger_attribute trigger_operator attribute operator"
).split()
RULE_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        *((name, pa.string()) for name in _RULE_TEXTS),
        ("amount", pa.int8()),
        ("in_paper", pa.bool_()),
        ("world_id", pa.string()),
    ]
)


def rule_schema(dials: Dials = PAPER_POINT) -> pa.Schema:
    """Return the schema of the rules of a world with these dials: `RULE_SCHEMA`, and columns for what only they bring.

    ``threshold`` is the number of a premise "more than" or "fewer than".
    """
    return RULE_SCHEMA.append(pa.field("threshold", pa.int8())) if dials.thresholds else RULE_SCHEMA


STEP_TYPE = pa.struct(
    [
        ("rule_ids", pa.list_(pa.int32())),
        ("nl", pa.string()),
        ("fol", pa.string()),
        ("state", pa.string()),
    ]
)

QUESTION_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("subtask", pa.string()),
        ("world_id", pa.string()),
        ("question", pa.string()),
        ("answers", pa.list_(pa.string())),
        ("answer_types", pa.list_(pa.string())),
        ("steps", pa.list_(STEP_TYPE)),
        ("gold_rule_ids", pa.list_(pa.int32())),
        ("facts", pa.list_(pa.string())),
        ("queries", pa.list_(pa.string())),
        ("skeleton", pa.string()),
        ("template_id", pa.string()),
        ("n_rules", pa.int8()),
        ("n_hops", pa.int8()),
        ("fold", pa.int8()),
    ]
)


def decode(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Turn dictionary-encoded columns (nested ones too) into the schema's plain types."""
    return table.combine_chunks().cast(schema)
