"""Where a review stands, as a static table and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rein_nb.compare.safe import escape

if TYPE_CHECKING:
    from rein_nb.compare.review import Review

_HEADS = ("", "rating", "95% interval", "won", "lost", "tied", "both bad")
_LINE = "border-bottom:1px solid var(--jp-border-color2,#8884)"
_CELL = f"padding:4px 12px;text-align:right;font-variant-numeric:tabular-nums;{_LINE}"
_FIRST = f"padding:4px 12px;text-align:left;overflow-wrap:anywhere;{_LINE}"


def _table(review: Review) -> list[list[str]]:
    """A row a label, the strongest first; without ratings where there are none yet."""
    try:
        rows = review.standing("bradley_terry", prior=0.1, k=32.0, confidence=0.95, samples=1000, seed=review.seed)
    except ValueError:  # nothing connects the columns yet: the counts say what there is
        none = dict.fromkeys(("rating", "low", "high"))
        rows = [{"label": label, **none, **review.counts(label)} for label in review.labels]
        rows.sort(key=lambda row: row["wins"], reverse=True)
    return [
        [
            row["label"],
            _whole(row["rating"]),
            "–" if row["low"] is None else f"{_whole(row['low'])} to {_whole(row['high'])}",
            *(str(row[name]) for name in ("wins", "losses", "ties", "both_bad")),
        ]
        for row in rows
    ]


def _whole(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def _facts(review: Review) -> str:
    judged, total = review.progress
    facts = [f"{judged} of {total} pairs judged{f' by {review.voter}' if review.voter else ''}"]
    voters = review.voters
    if len(voters) > 1:
        agreed = review.agreement(samples=0)
        name = "Cohen's kappa" if agreed.method == "cohen_kappa" else "Krippendorff's alpha"
        value = "not defined" if agreed.value is None else f"{agreed.value:.2f}"
        facts.append(f"{len(voters)} voters, {name} {value} on {agreed.items} pairs")
    facts.append("ratings after Bradley and Terry, ties after Davidson")
    return "; ".join(facts)


def standing(review: Review) -> str:
    """The table as HTML that stands on its own. Labels are text."""
    head = "".join(
        f'<th scope="col" style="{_FIRST if n == 0 else _CELL};font-weight:600">{escape(name)}</th>'
        for n, name in enumerate(_HEADS)
    )
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{_FIRST if n == 0 else _CELL}">{escape(value)}</td>' for n, value in enumerate(row))
        + "</tr>"
        for row in _table(review)
    )
    return (
        '<div class="mathjax_ignore tex2jax_ignore" style="font-size:13px">'
        f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        f'<div style="opacity:.75;margin-top:6px;font-size:12px">{escape(_facts(review))}</div></div>'
    )


def standing_text(review: Review) -> str:
    """The table as text."""
    rows = [list(_HEADS), *_table(review)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(_HEADS))]
    lines = [
        "  ".join(cell.ljust(widths[n]) if n == 0 else cell.rjust(widths[n]) for n, cell in enumerate(row)).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, _facts(review)])
