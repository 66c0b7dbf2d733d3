"""The caller of a request: its tenant, its role and its key."""

from __future__ import annotations

from dataclasses import dataclass

from etude.errors import Forbidden, Unauthorized
from etude.store.base import MAIN
from etude.store.identity import ApiKey, Role


@dataclass(frozen=True)
class ApiCaller:
    """The sender of a request."""

    tenant: str
    role: Role | None
    key: ApiKey | None = None
    cookie: str | None = None

    @property
    def name(self) -> str:
        """The caller's name in limits and logs."""
        return self.key.id if self.key else "nobody"

    def require(self, role: Role) -> None:
        """Raise if the caller does not have the role."""
        if self.role is None:
            raise Unauthorized("This needs a key.", hint="Send it as `Authorization: Bearer ...`.")
        if self.key is not None and not self.key.allows(role):
            raise Forbidden(f"This needs the role `{role}`; the key's is `{self.role}`.", hint="Use another key.")


ANONYMOUS = ApiCaller(MAIN, None)
"""The caller of a public route, without a key."""


OWNER = ApiCaller(MAIN, "admin")
"""The caller if keys are off: the local user."""
