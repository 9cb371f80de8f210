"""Marks of fields, written as `Annotated[str, Known]`: where a value that a model writes has to come from."""

from __future__ import annotations


class Known:
    """The value must stand in an earlier event of the task. Ids of an Effect (`id`, `order_id`, `key`, `ref`,
    `order_number` and the like) are known without this mark.
    """


class Free:
    """The value may be new: in a tool's arguments no earlier event has to hold it, in an outcome no result."""
