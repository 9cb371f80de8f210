"""A letter as HTML for mail programs, from its Markdown: styles on the elements, no script, no picture, nothing that is
loaded from anywhere, and no tag that this module does not write.
"""

from __future__ import annotations

from html import escape

from markdown_it.tree import SyntaxTreeNode

from .markdown import host, target, tree

_FONT = "font-family:system-ui,-apple-system,'Segoe UI',Roboto,Arial,sans-serif"
_STYLES = {
    "body": "margin:0;padding:0;background:#f3f4f6",
    "sheet": f"max-width:640px;margin:0 auto;padding:20px 16px;background:#ffffff;color:#1f2328;{_FONT};"
    "font-size:16px;line-height:1.5;overflow-wrap:anywhere",
    "h1": "font-size:20px;line-height:1.3;margin:0 0 12px",
    "h2": "font-size:13px;letter-spacing:0.06em;text-transform:uppercase;color:#57606a;margin:24px 0 8px",
    "h3": "font-size:16px;margin:16px 0 8px",
    "p": "margin:0 0 12px",
    "list": "margin:0 0 12px;padding-left:22px",
    "pre": "margin:0 0 12px;padding:10px 12px;background:#f6f8fa;border-left:4px solid #8c959f;font-size:14px;"
    "font-family:ui-monospace,Menlo,Consolas,monospace;white-space:pre-wrap;overflow-wrap:anywhere",
    "code": "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:14px;background:#f6f8fa;padding:1px 4px",
    "quote": "margin:0 0 12px;padding-left:12px;border-left:4px solid #d0d7de;color:#57606a",
    "table": "border-collapse:collapse;margin:0 0 12px;width:100%",
    "cell": "border:1px solid #d0d7de;padding:4px 8px;text-align:left;vertical-align:top;overflow-wrap:break-word",
    "name": "padding:3px 12px 3px 0;text-align:left;vertical-align:top;color:#57606a;font-weight:normal;width:104px",
    "fact": "padding:3px 0;vertical-align:top",
    "a": "color:#0969da",
    "host": "color:#57606a;font-size:14px",
}
_INLINE = {"strong": "strong", "em": "em", "s": "s"}


def page(source: str, title: str) -> str:
    """The whole document."""
    blocks = "".join(map(_block, tree(source).children))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1"></head>\n'
        f"<body{_style('body')}><div{_style('sheet')}>\n{blocks}</div></body></html>\n"
    )


def _style(name: str) -> str:
    return f' style="{escape(_STYLES[name])}"'


def _block(node: SyntaxTreeNode) -> str:
    match node.type:
        case "heading":
            level = min(int(node.tag[1:]), 3)
            return f"<h{level}{_style(f'h{level}')}>{_inline(node)}</h{level}>\n"
        case "fence" | "code_block":
            return f"<pre{_style('pre')}>{escape(node.content.removesuffix(chr(10)))}</pre>\n"
        case "bullet_list" | "ordered_list":
            return _list(node)
        case "blockquote":
            return f"<blockquote{_style('quote')}>{''.join(map(_block, node.children))}</blockquote>\n"
        case "table":
            rows = "".join(_row(row) for part in node.children for row in part.children)
            return f"<table{_style('table')}>{rows}</table>\n"
        case "hr":
            return "<hr>\n"
    return f"<p{_style('p')}>{_inline(node)}</p>\n"


def _row(row: SyntaxTreeNode) -> str:
    cells = "".join(f"<{cell.tag}{_style('cell')}>{_inline(cell)}</{cell.tag}>" for cell in row.children)
    return f"<tr>{cells}</tr>"


def _list(node: SyntaxTreeNode) -> str:
    facts = [_fact(item) for item in node.children]
    if node.type == "bullet_list" and all(facts):
        return f'<table role="presentation"{_style("table")}>{"".join(facts)}</table>\n'
    tag = "ol" if node.type == "ordered_list" else "ul"
    start = f' start="{int(node.attrs["start"])}"' if "start" in node.attrs else ""
    items = "".join(f"<li>{''.join(_item(child) for child in item.children)}</li>" for item in node.children)
    return f"<{tag}{start}{_style('list')}>{items}</{tag}>\n"


def _item(node: SyntaxTreeNode) -> str:
    return _inline(node) if node.type == "paragraph" else _block(node)


def _fact(item: SyntaxTreeNode) -> str:
    """The row of an item `**Name:** text`; empty for any other."""
    first = item.children[0] if len(item.children) == 1 else None
    spans = first.children[0].children if first is not None and first.type == "paragraph" else []
    found = [span for span in spans if span.type != "text" or span.content]
    if not found or found[0].type != "strong":
        return ""
    text = "".join(map(_span, found[1:])).strip()
    return f"<tr><th{_style('name')}>{_inline(found[0])}</th><td{_style('fact')}>{text}</td></tr>"


def _inline(node: SyntaxTreeNode) -> str:
    return "".join(_span(child) for child in node.children)


def _span(node: SyntaxTreeNode) -> str:
    match node.type:
        case "text":
            return escape(node.content)
        case "code_inline":
            return f"<code{_style('code')}>{escape(node.content)}</code>"
        case "softbreak" | "hardbreak":
            return "<br>\n"
        case "link":
            return _link(_inline(node), str(node.attrs.get("href", "")))
        case "image":
            return _link(escape(node.content or "picture"), str(node.attrs.get("src", "")))
        case "strong" | "em" | "s":
            return f"<{_INLINE[node.type]}>{_inline(node)}</{_INLINE[node.type]}>"
    return _inline(node)


def _link(label: str, href: str) -> str:
    """A link that shows where it leads; what may not be one is text."""
    address = target(href)
    if address is None:
        return f"{label} ({escape(href)})"
    shown = "" if label == escape(href) else f" <span{_style('host')}>({escape(host(address))})</span>"
    return f'<a href="{escape(address)}" rel="noopener noreferrer"{_style("a")}>{label}</a>{shown}'
