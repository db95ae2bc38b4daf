"""Rows about an object store, acted out on a real one."""

import boto3
from pydantic import SecretStr

from app.config import Settings
from app.download import make_downloader
from app.errors import WorkError
from app.ids import file_key, image_key
from app.states import GiveUp, RetryPolicy, after_error
from tests.desk import PIXEL, Desk, image, line
from tests.fieldcases.cases import Case, Did, Outcome, Refused
from tests.fieldcases.pictures import serve_s3
from tests.fieldcases.services import Services
from tests.waiting import eventually


def serve_stored(case: Case, services: Services) -> Outcome:
    match case.id:
        case "s3-missing":
            return _missing(services)
        case "s3-content-type":
            return _content_type(services)
        case "s3-presigned-expiry":
            return _presigned(services)
        case _:
            return serve_s3(case)


def _missing(services: Services) -> Outcome:
    try:
        services.objects.get("none.jpg", max_bytes=1000, bucket="shop-images")
    except WorkError as error:
        return _given_up(error)
    return Did("read", {})


def _content_type(services: Services) -> Outcome:
    desk = services.desk()
    batch_id = desk.submit([line("a", [image(PIXEL), {"type": "text", "text": "?"}])])
    services.read()
    desk.answer(batch_id)
    services.end()
    output = desk.batch(batch_id).output_file_id or ""
    types = {
        "result": _head(services, file_key(desk.tenant, output)),
        "image": _head(services, image_key(desk.tenant, desk.content_hash(PIXEL))),
    }
    page = _uploaded_page(services, desk)
    wanted = {"result": "application/jsonl; charset=utf-8", "image": "image/png"}
    return Did("behaviour" if types == wanted and page.startswith("attachment") else "other types", types)


def _presigned(services: Services) -> Outcome:
    """The link is asked until its time is over; what it says then is final."""
    settings = services.settings
    s3 = boto3.client(
        "s3",
        endpoint_url=settings.s3_endpoint_url,
        region_name=settings.s3_region,
        aws_access_key_id=_secret(settings.s3_access_key_id),
        aws_secret_access_key=_secret(settings.s3_secret_access_key),
    )
    services.objects.put("linked.png", b"x", content_type="image/png")
    wish = {"Bucket": settings.s3_bucket, "Key": "linked.png"}
    url = s3.generate_presigned_url("get_object", Params=wish, ExpiresIn=2)
    downloader = make_downloader(Settings(fetch_allow_hosts=(url.split("/")[2],)))

    def refusals() -> list[WorkError]:
        try:
            downloader.fetch(url)
        except WorkError as error:
            return [error]
        return []

    if refusals():
        return Did("refused before its time", {})
    outcome = _given_up(eventually(refusals)[0])
    is_told = isinstance(outcome, Refused) and "403" in outcome.code + outcome.message
    return Did("behaviour", {}) if is_told else outcome


def _given_up(error: WorkError) -> Outcome:
    decision = after_error(error, attempt=1, policy=RetryPolicy(attempts=5), spread=0.5)
    if isinstance(decision, GiveUp):
        return Refused(decision.code, decision.message)
    return Did("tried again", {"code": error.code})


def _head(services: Services, key: str) -> str | None:
    found = services.objects.head(key)
    return found.content_type if found else None


def _uploaded_page(services: Services, desk: Desk) -> str:
    """The disposition of a page that a client keeps here."""
    client = services.client(desk)
    file = client.files.create(file=("page.html", b"<script>alert(1)</script>"), purpose="user_data")
    return client.files.content(file.id).response.headers["content-disposition"]


def _secret(value: SecretStr | None) -> str | None:
    return value.get_secret_value() if value else None
