"""A batch made in a browser: a file dropped or chosen, its columns told, some rows tried, all of them run."""

from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.conftest import at_a_desk
from tests.browser.looking import grave_faults, take_picture, width_too_much
from tests.browser.site import Site

# What a hand does that lets go of a file over the page.
DROP = """([name, text]) => {
  const carried = new DataTransfer();
  carried.items.add(new File([text], name, {type: 'text/csv'}));
  const dropped = {dataTransfer: carried, bubbles: true, cancelable: true};
  document.body.dispatchEvent(new DragEvent('drop', dropped));
}"""


def table(site: Site) -> str:
    rows = [f"t{number},{site.pictures_url}/{number}.jpg,mug" for number in range(6)]
    return "\n".join(["sku,photo,title", *rows]) + "\n"


def give(page: Page, name: str, text: str, *, size: str, folder: Path) -> None:
    """Drop it at a desk; on a phone, choose it."""
    if size == "desk":
        page.evaluate(DROP, [name, text])
    else:
        (folder / name).write_text(text)
        page.locator("#file").set_input_files(folder / name)


def test_a_file_becomes_a_batch(page: Page, site: Site, size: str, tmp_path: Path) -> None:
    page.goto(f"{site.url}/new")
    give(page, "shelf.csv", table(site), size=size, folder=tmp_path)
    expect(page.get_by_role("heading", level=1)).to_have_text("shelf.csv")
    page.get_by_label("Image", exact=True).select_option("photo")
    page.get_by_label("Id of the row").select_option("sku")
    page.get_by_label("What to ask").fill("What colour is the ")
    page.get_by_role("button", name="title").click()
    expect(page.get_by_label("What to ask")).to_have_value("What colour is the {title}")
    page.get_by_label("Name", exact=True).fill("colour")
    page.get_by_label("Answers").select_option("choices")
    page.get_by_label("Choices").fill("red\nblue")
    page.get_by_role("button", name="Preview five").click()
    preview = page.locator("#preview")
    expect(preview).to_have_attribute("data-waits", "0")
    expect(preview.locator("tbody tr")).to_have_count(5)
    expect(preview.locator("td.cell", has_text="blue").first).to_be_visible()
    take_picture(page, f"new-preview-{size}", most_px=2400)
    assert grave_faults(page) == []
    assert width_too_much(page) <= 0
    page.get_by_label("Name of the batch").fill(f"Shelf, from a {size}")
    page.get_by_role("button", name="Run all").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Shelf, from a {size}")
    expect(page.locator("#progress")).to_contain_text("6 of 6")


@at_a_desk
def test_a_file_of_another_kind_is_refused_before_it_is_sent(page: Page, site: Site, tmp_path: Path) -> None:
    page.goto(f"{site.url}/new")
    give(page, "letter.docx", "Dear", size="desk", folder=tmp_path)
    expect(page.get_by_role("alert")).to_contain_text("must end in")


@at_a_desk
def test_what_is_missing_is_said_beside_its_field(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/new/{site.ids['file']}")
    page.get_by_role("button", name="Add a question").click()
    expect(page.get_by_role("group", name="Question 2")).to_be_visible()
    page.get_by_role("button", name="Remove question 2").click()
    expect(page.get_by_role("group", name="Question 2")).to_have_count(0)
    page.get_by_role("button", name="Preview five").click()
    asked = page.get_by_label("What to ask")
    expect(asked).to_have_attribute("aria-invalid", "true")
    expect(asked).to_be_focused()
