"""Templates of questions: `{column}` stands for a row's value, `{{` and `}}` for braces. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from app.checks import is_unicode, shown, wrong

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]+)\}|[{}]")


@dataclass(frozen=True)
class Template:
    """Texts and the columns between them: `texts[0]`, the value of `columns[0]`, `texts[1]`, ..."""

    texts: Sequence[str]
    columns: Sequence[str]

    def fill(self, values: Iterable[str]) -> str:
        """The text with the value of each of its columns."""
        return self._form % tuple(values)

    @cached_property
    def _form(self) -> str:
        """For the fastest of the ways to fill it, since each job does."""
        return "%s".join(text.replace("%", "%%") for text in self.texts)


def parse_template(param: str, template: str) -> Template:
    """RequestError for a brace that is neither doubled nor around a column's name."""
    if not is_unicode(template):
        raise wrong(param, f"{param} holds half of a UTF-16 pair, which is no character.")
    texts, columns, end = [""], list[str](), 0
    for found in _TOKEN.finditer(template):
        texts[-1] += template[end : found.start()]
        end = found.end()
        if found[1] is not None:
            columns.append(found[1])
            texts.append("")
        elif len(found[0]) == 2:
            texts[-1] += found[0][0]
        else:
            around = template[max(0, found.start() - 20) : found.end() + 20]
            raise wrong(
                param,
                f"{param} has a single {found[0]!r} in {shown(around)}: write a column's name in braces, "
                f"{{column}}, and {found[0] * 2!r} for the brace itself.",
                "invalid_template",
            )
    texts[-1] += template[end:]
    return Template(texts, columns)
