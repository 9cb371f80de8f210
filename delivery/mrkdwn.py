"""A letter in Slack's own markup, from its Markdown. Mentions and links exist in `<…>` alone there, and every text is
escaped, so no text becomes a mention; links are written from parsed addresses, with the host to be seen.
"""

from __future__ import annotations

from collections.abc import Iterator

from markdown_it.tree import SyntaxTreeNode

from twelvefold.text import clean

from .markdown import host, target, tree

_MARKS = {"strong": "*", "em": "_", "s": "~"}
_NARROW = "\u200a"


def escaped(text: str) -> str:
    """Any text as Slack shows it: the three characters that mean something are written out, once."""
    return clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def blocks(source: str) -> Iterator[tuple[str, str]]:
    """The letter as blocks: what each is (`head`, `text`, or `code` of lines shown as they are) and its text."""
    for node in tree(source).children:
        match node.type:
            case "heading":
                yield "head", _uncoded(f"*{_inline(node)}*")
            case "fence" | "code_block":
                yield "code", _uncoded(escaped(node.content.removesuffix("\n")))
            case _:
                yield "text", _uncoded(_block(node))


def _uncoded(text: str) -> str:
    """The text without what would begin or end code."""
    return text.replace("```", f"``{_NARROW}`")


def mrkdwn(source: str) -> str:
    """All of it as one text."""
    found = (f"```\n{text}\n```" if kind == "code" else text for kind, text in blocks(source))
    return "\n\n".join(filter(None, found))


def _block(node: SyntaxTreeNode, depth: int = 0) -> str:
    match node.type:
        case "bullet_list" | "ordered_list":
            return "\n".join(_items(node, depth))
        case "blockquote":
            inner = "\n".join(_block(child) for child in node.children)
            return "\n".join(f"&gt; {line}" for line in inner.split("\n"))
        case "fence" | "code_block":
            return "\n".join(f"| {escaped(line)}" for line in node.content.removesuffix("\n").split("\n"))
        case "table":
            rows = [row for part in node.children for row in part.children]
            return "\n".join(" | ".join(_inline(cell) for cell in row.children) for row in rows)
        case "hr":
            return "\u2014" * 3
        case "heading":
            return f"*{_inline(node)}*"
    return _inline(node)


def _items(node: SyntaxTreeNode, depth: int) -> Iterator[str]:
    start = int(node.attrs.get("start", 1))
    for number, item in enumerate(node.children, start):
        mark = f"{number}." if node.type == "ordered_list" else "\u2022"
        text = "\n".join(_block(child, depth + 1) for child in item.children)
        yield f"{'    ' * depth}{mark} {text}"


def _inline(node: SyntaxTreeNode) -> str:
    return "".join(_span(child) for child in node.children)


def _span(node: SyntaxTreeNode) -> str:
    match node.type:
        case "text":
            return escaped(node.content)
        case "code_inline":
            return f"`{escaped(node.content).replace('`', _NARROW)}`"
        case "softbreak" | "hardbreak":
            return "\n"
        case "link":
            return _link(_text(node), str(node.attrs.get("href", "")))
        case "image":
            return _link(node.content or "picture", str(node.attrs.get("src", "")))
        case "strong" | "em" | "s":
            inner = _inline(node)
            return f"{_MARKS[node.type]}{inner}{_MARKS[node.type]}" if inner.strip() else inner
    return _inline(node)


def _text(node: SyntaxTreeNode) -> str:
    """The bare text of a label."""
    return "".join(child.content if not child.children else _text(child) for child in node.children)


def _link(label: str, href: str) -> str:
    address = target(href)
    if address is None:
        return escaped(f"{label} ({href})")
    where = address.replace("&", "&amp;")
    if label in ("", href):
        return f"<{where}>"
    return f"<{where}|{escaped(' '.join(label.split())).replace('|', '/')}> ({escaped(host(address))})"
