"""A letter as plain text, from its Markdown: headings in capitals, somebody else's text quoted line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markdown_it.tree import SyntaxTreeNode

from .markdown import target, tree

WIDTH = 72
NAME = 12
_HEAD = re.compile(r"^[^(]*")


def plain(source: str) -> str:
    """The text; ends with a line end."""
    return "\n\n".join(filter(None, _grouped(tree(source)))).strip("\n") + "\n"


def quoted(text: str) -> Iterator[str]:
    """The lines of a text as `| ` quotes, broken at the width; `: ` goes on with the line above."""
    for line in text.removesuffix("\n").split("\n"):
        pieces = [line[at : at + WIDTH] for at in range(0, len(line), WIDTH)] or [""]
        yield f"| {pieces[0]}"
        yield from (f": {piece}" for piece in pieces[1:])


def _grouped(root: SyntaxTreeNode) -> Iterator[str]:
    """Blocks as paragraphs; a heading and what it is about stay together."""
    held = ""
    for node in root.children:
        text = _block(node)
        if node.type == "heading":
            if held:
                yield held
            held = text
        elif held and node.type in ("fence", "bullet_list", "table"):
            held = f"{held}\n{text}"
        else:
            if held:
                yield held
            held = text if _names(node) else ""
            if not held:
                yield text
    yield held


def _names(node: SyntaxTreeNode) -> bool:
    """Whether the block is nothing but a name in bold, of what comes next."""
    inline = node.children[0].children if node.type == "paragraph" and node.children else []
    return [child.type for child in inline if child.content or child.children] == ["strong"]


def _block(node: SyntaxTreeNode, depth: int = 0) -> str:
    match node.type:
        case "heading":
            return _HEAD.sub(lambda found: found[0].upper(), _inline(node)) if node.tag == "h2" else _inline(node)
        case "fence" | "code_block":
            return "\n".join(quoted(node.content))
        case "bullet_list" | "ordered_list":
            return "\n".join(_items(node, depth))
        case "blockquote":
            inner = "\n\n".join(_block(child) for child in node.children)
            return "\n".join(f"> {line}" for line in inner.split("\n"))
        case "table":
            rows = [row for part in node.children for row in part.children]
            return "\n".join("  ".join(_inline(cell) for cell in row.children) for row in rows)
        case "hr":
            return "-" * NAME
    return _inline(node)


def _items(node: SyntaxTreeNode, depth: int) -> Iterator[str]:
    for number, item in enumerate(node.children, int(node.attrs.get("start", 1)) if node.type == "ordered_list" else 1):
        name, fact = _fact(item)
        if name and not depth:
            yield f"{name:<{NAME}}{fact}"
            continue
        mark = f"{number}. " if node.type == "ordered_list" else "- "
        text = "\n".join(_block(child, depth + 1) for child in item.children)
        yield mark + text.replace("\n", "\n  ")


def _fact(item: SyntaxTreeNode) -> tuple[str, str]:
    """Name and text of an item `**Name:** text`; two empty texts for any other."""
    first = item.children[0] if item.children else None
    inline = first.children[0].children if first is not None and first.type == "paragraph" else []
    found = [child for child in inline if child.type != "text" or child.content]
    if len(item.children) != 1 or not found or found[0].type != "strong":
        return "", ""
    name = _inline(found[0])
    return (name, "".join(map(_span, found[1:])).strip()) if name.endswith(":") else ("", "")


def _inline(node: SyntaxTreeNode) -> str:
    return "".join(_span(child) for child in node.children)


def _span(node: SyntaxTreeNode) -> str:
    match node.type:
        case "text" | "code_inline":
            return node.content
        case "softbreak" | "hardbreak":
            return "\n"
        case "link":
            return _link(_inline(node), str(node.attrs.get("href", "")))
        case "image":
            return _link(node.content or "picture", str(node.attrs.get("src", "")))
    return _inline(node)


def _link(label: str, href: str) -> str:
    return href if label in ("", href) or (target(href) is None and not label) else f"{label}:\n{href}"
