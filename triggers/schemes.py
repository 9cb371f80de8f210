"""How well-known senders sign, as data."""

from __future__ import annotations

from .signature import Scheme

GITHUB = Scheme(header="X-Hub-Signature-256", prefix="sha256=")
"""Lower-case hex over the body, no timestamp; a replay is caught by the delivery id."""

STRIPE = Scheme(header="Stripe-Signature", prefix="v1=", layout="pairs", signed="{timestamp}.{body}")
"""The key is the whole `whsec_…` text. Several `v1` stand there while a rolled secret is still valid; `v0` is none."""

SLACK = Scheme(
    header="X-Slack-Signature", prefix="v0=", timestamp_header="X-Slack-Request-Timestamp",
    signed="v0:{timestamp}:{body}",
)  # fmt: skip


def _standard(name: str) -> Scheme:
    return Scheme(
        header=f"{name}-signature", prefix="v1,", encoding="base64", timestamp_header=f"{name}-timestamp",
        id_header=f"{name}-id", signed="{id}.{timestamp}.{body}", layout="list", decoded=True,
    )  # fmt: skip


STANDARD = _standard("webhook")
"""Standard Webhooks 1.0, as OpenAI and GitLab's signing tokens follow it too."""
SVIX = _standard("svix")
"""The same under Svix' older names."""

SENDGRID = Scheme(
    header="X-Twilio-Email-Event-Webhook-Signature", algorithm="ecdsa", encoding="base64",
    timestamp_header="X-Twilio-Email-Event-Webhook-Timestamp", signed="{timestamp}{body}",
)  # fmt: skip
"""The secret is the public key that SendGrid shows."""
