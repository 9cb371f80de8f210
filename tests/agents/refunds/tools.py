"""Paying money back through a service that can be slow, fail, or lose its answer."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field

from twelvefold import AUTO, Ctx, Effect, Free, Task, ToolError, Verdict, ask

from .tables import RefundRow

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

SERVICE = "http://127.0.0.1:{port}/effects"


class Refund(BaseModel):
    """What the service says it did."""

    key: str
    amount: Decimal


class _Pays(BaseModel):
    port: int = Field(ge=1, le=65535, examples=[8080])
    order_id: Annotated[str, Free] = Field(examples=["ord_81f2"])  # tests make payments up out of nothing
    amount: Decimal = Field(gt=0, examples=["12.50"])


def _pay(call: _Pays, ctx: Ctx) -> Refund:
    body = {"order": call.order_id, "amount": str(call.amount)}
    answer = ctx.http.post(SERVICE.format(port=call.port), json=body, headers={"Idempotency-Key": ctx.key})
    if answer.status_code == 409:
        raise ToolError("The order is not delivered yet.", affected=("order_id",))
    answer.raise_for_status()
    return Refund(key=ctx.key, amount=call.amount)


def _look(call: _Pays, ctx: Ctx) -> Refund | None:
    answer = ctx.http.get(f"{SERVICE.format(port=call.port)}/{ctx.key}")
    if answer.status_code == 404:
        return None
    answer.raise_for_status()
    return Refund(key=ctx.key, amount=call.amount)


def _keep(call: _Pays, result: Refund, db: Session) -> None:
    db.add(RefundRow(key=result.key, order_id=call.order_id, amount=result.amount))


class Pay(_Pays, Effect[Refund], timeout=5):
    """Pay money back and ask a person when the answer is lost. Use once for an order."""

    def approval(self, task: Task) -> Verdict:
        """Over 100 a person decides."""
        return ask("#refunds", f"{self.amount} is over 100") if self.amount > 100 else AUTO

    def run(self, ctx: Ctx) -> Refund:
        """Pay."""
        return _pay(self, ctx)

    def record(self, result: Refund, db: Session) -> None:
        """Keep what was paid."""
        _keep(self, result, db)


class PayAgain(_Pays, Effect[Refund], timeout=5, doubt="same_key"):
    """Pay money back through a service that honours the key. Use once for an order."""

    def run(self, ctx: Ctx) -> Refund:
        """Pay."""
        return _pay(self, ctx)

    def record(self, result: Refund, db: Session) -> None:
        """Keep what was paid."""
        _keep(self, result, db)


class PayIfAllowed(PayAgain, doubt="same_key", timeout=5):
    """Pay money back once somebody allows it. Use once for an order."""

    def approval(self, task: Task) -> Verdict:
        """One of two people decides."""
        return ask("ann@shop.example, ben@shop.example", "somebody has to look at it", risk="low")


class PayAndLook(_Pays, Effect[Refund], timeout=5, doubt="find", settle_after=1):
    """Pay money back through a service that can be asked. Use once for an order."""

    def run(self, ctx: Ctx) -> Refund:
        """Pay."""
        return _pay(self, ctx)

    def find(self, ctx: Ctx) -> Refund | None:
        """Ask the service whether it did."""
        return _look(self, ctx)

    def record(self, result: Refund, db: Session) -> None:
        """Keep what was paid."""
        _keep(self, result, db)
