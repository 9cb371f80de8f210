"""One HTML page without scripts, without anything from elsewhere, and with headers that let a browser do no more."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape

from starlette.responses import HTMLResponse

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a }
section { border: 1px solid #bbb; border-radius: 6px; padding: 0 1rem 1rem; margin: 1rem 0 }
.says { border-style: dashed; background: #f6f6f6 } .small { color: #666; font-size: 85% }
.notice { border-left: 4px solid #06c; padding: .5rem 1rem; background: #eef4fb }
dt { float: left; clear: left; width: 8rem; color: #666 } dd { margin-left: 8rem; overflow-wrap: anywhere }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f6f6f6; padding: .5rem }
label { margin-right: 1.5rem } button, input { font: inherit; padding: .2rem .6rem }
"""
POLICY = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex, nofollow",
}


def page(title: str, body: str, status: int = 200) -> HTMLResponse:
    """A page; `title` is plain text, `body` is HTML whose data is escaped already."""
    return HTMLResponse(
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{body}</body></html>",
        status,
        HEADERS,
    )
