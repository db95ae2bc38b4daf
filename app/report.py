"""(ours) The report of a dry run: what a batch would be, cost and save, before anything is spent."""

from pydantic import BaseModel, Field


class BadLines(BaseModel):
    """Lines, or questions of a table's rows, that would fail with a code."""

    code: str
    count: int
    line: int | None = Field(description="the first one's")
    param: str | None
    message: str


class SampleErrors(BaseModel):
    """Sampled images that could not be had."""

    code: str
    count: int
    message: str = Field(description="the first one's")


class ImageSample(BaseModel):
    """Images that were fetched to see whether they can be; what was fetched is kept for the batch."""

    asked: int
    stored: int
    failed: int
    pending: int = Field(description="not there in time; they are still being fetched")
    errors: list[SampleErrors]
    failed_share: float | None = Field(description="of those that were tried; null where none was")


class ReportImages(BaseModel):
    references: int = Field(description="how often requests name an image")
    distinct: int
    inline: int = Field(description="data URLs among the distinct ones, and bytes of tables")
    stored: int = Field(description="distinct ones that were there before, and need not be fetched")
    failed_lately: int = Field(description="distinct ones that could not be fetched in the last 7 days")
    sample: ImageSample


class ReportTokens(BaseModel):
    """Estimates, whose sources docs/checks.md names."""

    visual: int | None = Field(description="of all requests; null where no image's size is known")
    text: int
    cached: int | None = Field(description="of these: visual tokens that follow an earlier question's")
    output_expected: int | None = Field(description="by this model's answers of late; null without any")
    output_most: int = Field(description="by the requests' max_tokens")


class ReportTime(BaseModel):
    seconds: float | None = Field(description="expected; null where nothing is known")
    jobs_per_second: float | None
    based_on_batches: int = Field(description="batches of the model that ended lately")


class ReportCost(BaseModel):
    """By `VQUEUE_PRICES`."""

    currency: str
    expected: float | None
    most: float | None


class Report(BaseModel):
    lines: int = Field(description="that are not blank; of a table: rows times questions")
    requests: int
    bad_lines: int
    errors: list[BadLines] = Field(description="by code, the commonest first")
    models: dict[str, int] = Field(description="requests by model")
    images: ReportImages
    images_per_request: float
    requests_per_image: float = Field(description="how many questions share an image's work")
    tokens: ReportTokens
    time: ReportTime
    cost: ReportCost | None = Field(description="null where the model has no price")
    took_s: float
