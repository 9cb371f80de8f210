"""Mail that a provider posts: read, judged and matched as every mail is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from triggers.envelope import Verdict
from triggers.problem import Problem
from workers.intake import Intake
from workers.settings import Settings
from workers.store.inbox import Entry

if TYPE_CHECKING:
    from triggers.inbound import Posted


def mails(
    intake: Intake, settings: Settings, ring: Callable[[str, str, str], None]
) -> Callable[[str, Posted], Verdict]:
    """What takes one mail. Raises Problem 413 for one that exceeds a limit."""

    def take(tenant: str, posted: Posted) -> Verdict:
        # reading mail takes libraries that not everybody installs
        from triggers.mail import arrived, read_mail
        from triggers.mail_limits import Excessive
        from workers.mailroom import Mailroom

        room = Mailroom(intake.db, intake.registry, settings, intake.log, ring)
        envelope = posted.envelope
        if posted.once:
            used = Entry(tenant=tenant, source="email", key=f"once:{envelope.mailbox}:{posted.once}", kind="message")
            if intake.ignore(used, "used").outcome == "duplicate":
                return Verdict("duplicate")
        try:
            mail = read_mail(posted.raw, envelope, room.rules)
        except Excessive as error:
            raise Problem(413, "Mail too large", str(error)) from None
        found = arrived(posted.raw, mail, tenant=tenant, mailbox=envelope.mailbox, recipient=envelope.recipient or "")
        return room.take(mail, found)

    return take
