"""YAML that someone else wrote: parsed into maps, lists, texts and nulls, within limits."""

from __future__ import annotations

from typing import Any

from etude.errors import Invalid

BYTES = 1 << 20
"""The largest text that is parsed."""
DEPTH = 20
"""How deep maps and lists may be nested."""
_TAGS = frozenset({"map", "seq", "str", "null", "int", "float", "bool", "timestamp", "value", "merge"})


def parse_yaml(data: bytes, place: str, hint: str) -> Any:
    """Parse YAML. `place` names it in errors, `hint` says what to write.

    An alias can make a few lines stand for gigabytes, and a number of many digits takes minutes to convert. So aliases
    are refused, and every scalar except null stays a text.
    """
    import yaml  # type: ignore[import-untyped]

    if len(data) > BYTES:
        raise Invalid(f"{place} is larger than {BYTES:,} bytes.", hint=hint)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    try:
        # Events come one by one, so what is refused here was never built.
        for event in yaml.parse(data, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            where = f"{place}, line {event.start_mark.line + 1}"
            if isinstance(event, yaml.AliasEvent):
                raise Invalid(f"{where} has the alias `*{event.anchor[:80]}`.", hint="Write the value out.")
            if depth > DEPTH:
                raise Invalid(f"{where} is nested more than {DEPTH} levels deep.", hint=hint)
        node = yaml.compose(data, Loader=loader)
        return None if node is None else _build(node, place)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split())[:200]
        raise Invalid(f"{place} is not valid YAML: {why}.", hint=hint) from None


def _build(node: Any, place: str) -> Any:
    import yaml

    tag = node.tag.removeprefix("tag:yaml.org,2002:")
    if tag not in _TAGS:
        where = f"{place}, line {node.start_mark.line + 1}"
        raise Invalid(f"{where} has the tag `{node.tag[:80]}`.", hint="Write plain YAML.")
    if isinstance(node, yaml.MappingNode):
        return {str(_build(key, place)): _build(value, place) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, place) for item in node.value]
    return None if tag == "null" else node.value
