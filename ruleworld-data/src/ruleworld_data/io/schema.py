"""Arrow schemas of the two tables: rules and questions."""

from __future__ import annotations

import pyarrow as pa

RULE_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("type", pa.string()),
        pa.field("nl", pa.string()),
        pa.field("fol", pa.string()),
        pa.field("premise_nl", pa.string()),
        pa.field("conclusion_nl", pa.string()),
        pa.field("premise_fol", pa.string()),
        pa.field("conclusion_fol", pa.string()),
        pa.field("entity", pa.string()),
        pa.field("action", pa.string()),
        pa.field("role", pa.string()),
        pa.field("environment", pa.string()),
        pa.field("state", pa.string()),
        pa.field("trigger_attribute", pa.string()),
        pa.field("trigger_operator", pa.string()),
        pa.field("attribute", pa.string()),
        pa.field("operator", pa.string()),
        pa.field("amount", pa.int8()),
        pa.field("in_paper", pa.bool_()),
        pa.field("world_id", pa.string()),
    ]
)

STEP_TYPE = pa.struct(
    [
        pa.field("rule_ids", pa.list_(pa.int32())),
        pa.field("nl", pa.string()),
        pa.field("fol", pa.string()),
        pa.field("state", pa.string()),
    ]
)

QUESTION_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("subtask", pa.string()),
        pa.field("world_id", pa.string()),
        pa.field("question", pa.string()),
        pa.field("answers", pa.list_(pa.string())),
        pa.field("answer_types", pa.list_(pa.string())),
        pa.field("steps", pa.list_(STEP_TYPE)),
        pa.field("gold_rule_ids", pa.list_(pa.int32())),
        pa.field("facts", pa.list_(pa.string())),
        pa.field("queries", pa.list_(pa.string())),
        pa.field("skeleton", pa.string()),
        pa.field("template_id", pa.string()),
        pa.field("n_rules", pa.int8()),
        pa.field("n_hops", pa.int8()),
        pa.field("fold", pa.int8()),
    ]
)


def decode(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Turn dictionary-encoded columns (nested ones too) into the schema's plain types."""
    columns = [_plain(table.column(f.name).combine_chunks(), f.type) for f in schema]
    return pa.Table.from_arrays([pa.chunked_array([c], type=c.type) for c in columns], schema=schema)


def _plain(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        chunks = [_plain(chunk, wanted) for chunk in array.chunks]
        return pa.concat_arrays(chunks) if chunks else pa.array([], type=wanted)
    if array.type == wanted:
        return array
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode().cast(wanted)
    if pa.types.is_list(array.type):
        return pa.ListArray.from_arrays(array.offsets, _plain(array.values, wanted.value_type))
    if pa.types.is_struct(array.type):
        fields = [_plain(array.field(i), f.type) for i, f in enumerate(wanted)]
        return pa.StructArray.from_arrays(fields, fields=list(wanted))
    return array.cast(wanted)
