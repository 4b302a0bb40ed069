"""Fields: the untrusted parameters of a slice's request, each checked when it is read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl

WHOLE = re.compile(r"[0-9]{1,9}")
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MAX_SIDE = 4_096
MAX_SETTINGS = 32


class SliceError(ValueError):
    """A request that cannot be answered.

    The message names the remedy, and the field unless something is not there (404); `status` is
    the HTTP status.
    """

    def __init__(self, field: str, message: str, status: int = 422) -> None:
        super().__init__(message if status == 404 else f"{field}: {message}")
        self.field, self.status = field, status


class Fields:
    """The parameters of a request as text by name. Every reading method raises SliceError."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = dict(given)
        self._read: list[str] = []

    def has(self, name: str) -> bool:
        """Whether a parameter was given."""
        self._read.append(name)
        return name in self._given

    def reads(self, name: str) -> bool:
        """Whether the slice looked for a parameter, given or not."""
        return name in self._read

    def whole(self, name: str, low: int, end: int, default: int | None = None) -> int:
        """A whole number in [low, end); a parameter without a default is required."""
        if not self.has(name) and default is not None:
            return default
        text = self._given.get(name, "")
        if not (WHOLE.fullmatch(text) and low <= int(text) < end):
            raise SliceError(name, f"expected a whole number from {low} to {end - 1}")
        return int(text)

    def name(self, name: str) -> str:
        """A required id or version."""
        self.has(name)
        text = self._given.get(name, "")
        if not NAME.fullmatch(text):
            raise SliceError(name, "expected 1 to 64 letters, digits, - or _")
        return text

    def settings(self, name: str) -> dict[str, str]:
        """Settings by name, from a query as in a link; none if the parameter was not given."""
        text = self._given.get(name, "") if self.has(name) else ""
        try:
            return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_SETTINGS))
        except ValueError:
            raise SliceError(name, f"at most {MAX_SETTINGS} settings expected") from None

    def choice(self, name: str, options: Sequence[str], default: str = "") -> str:
        """One of `options`; a parameter without a default is required."""
        text = self._given.get(name, "") if self.has(name) else default
        if text not in options:
            raise SliceError(name, f"choose from {', '.join(options)}")
        return text

    def window(self, name: str, count: int) -> slice:
        """A range within [0, count): `NAME_from`, by default 0, to `NAME_to`, by default count."""
        low = self.whole(f"{name}_from", 0, max(count, 1), 0)
        return slice(low, self.whole(f"{name}_to", min(low + 1, count), count + 1, count))

    def sides(self) -> tuple[int, int]:
        """`height` and `width`, the largest number of rows and columns of a heat map."""
        height, width = (
            self.whole(name, 1, MAX_SIDE + 1, MAX_SIDE) for name in ("height", "width")
        )
        return height, width

    def finish(self) -> None:
        """Refuse parameters that were not read."""
        for name in self._given:
            if name not in self._read:
                known = ", ".join(dict.fromkeys(self._read)) or "none"
                raise SliceError(name[:50], f"unknown; this slice has {known}")
