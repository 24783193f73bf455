"""What a browser keeps to itself: a field whose number it cannot send stays as typed, so Run gives way to a sentence.

Only the browser knows of such a field. The server still holds what was there before, and would measure that.
"""

from collections.abc import Iterable
from html import escape

IN_FORM, RUN = '[data-testid="stSidebar"]', ".st-key-run"
BOX = '[data-testid="stElementContainer"]:has(.bs-unsent)'


def unsent_html(labels: Iterable[str]) -> str:
    """For each number field, by its label, a sentence that shows while the browser cannot send what the field shows.

    While one shows, Run is not there. The labels must not hold a quote.
    """
    sentences, rules = [], [f"{BOX}, .bs-unsent {{ display: none }}"]
    for index, label in enumerate(labels):
        name = f"bs-unsent-{index}"
        sentences.append(
            f'<p class="bs-message error bs-unsent {name}">{escape(label)} is not a number of at most 15 digits.</p>'
        )
        # What was typed is invalid at once, also where Streamlit takes it for an empty field.
        field = f'input[aria-label="{label}"]:is(:invalid, [aria-invalid="true"])'
        rules.append(f"{IN_FORM}:has({field}) :is({BOX}, .{name}) {{ display: block }}")
        rules.append(f"{IN_FORM}:has({field}) {RUN} {{ display: none }}")
    # A sanitiser drops a style that nothing comes before.
    return f"{''.join(sentences)}<style>{' '.join(rules)}</style>"
