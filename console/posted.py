"""Mail that a provider posts: read and judged as every mail is, then handed to the intake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from triggers.envelope import Arrived, Verdict
from triggers.problem import Problem
from workers.intake import Intake
from workers.settings import Settings
from workers.store.inbox import Entry

if TYPE_CHECKING:
    from triggers.inbound import Posted


def mails(intake: Intake, settings: Settings, accept: Callable[[Arrived], Verdict]) -> Callable[[str, Posted], Verdict]:
    """What takes one mail. Raises Problem 413 for one that exceeds a limit."""

    def take(tenant: str, posted: Posted) -> Verdict:
        # reading mail takes libraries that not everybody installs
        from triggers.mail import arrived, read_mail
        from triggers.mail_judge import Rules
        from triggers.mail_limits import Excessive

        envelope = posted.envelope
        if posted.once:
            used = Entry(tenant=tenant, source="email", key=f"once:{envelope.mailbox}:{posted.once}", kind="message")
            if intake.ignore(used, "used").outcome == "duplicate":
                return Verdict("duplicate")
        try:
            mail = read_mail(posted.raw, envelope, Rules(domains=frozenset({settings.mail_domain})))
        except Excessive as error:
            raise Problem(413, "Mail too large", str(error)) from None
        found = arrived(posted.raw, mail, tenant=tenant, mailbox=envelope.mailbox, recipient=envelope.recipient or "")
        return accept(replace(found, ignore=mail.ignored))

    return take
