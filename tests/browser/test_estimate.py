"""The plan's estimate on another model and device: both lanes, and another number of tokens."""

import pytest

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser


@pytest.fixture
def page(viewer):
    """A page with the plan of the small race and its estimate open; it is closed in the end."""
    summary = viewer.page.locator("[data-estimate] summary")
    summary.click()
    yield viewer.page
    summary.click()


def test_the_plan_tells_what_the_race_would_be_elsewhere(page):
    result = page.locator("[data-estimate-result]")
    result.locator("table").wait_for()
    assert "On H100 SXM lane A would take" in result.inner_text()
    row = result.locator("tbody tr", has_text="Run, predicted")
    assert row.locator("td").nth(0).inner_text().endswith("32 forwards")
    page.locator("[data-estimate-device]").select_option("rtx4090")
    result.get_by_text("On RTX 4090").wait_for()
    page.locator("[data-estimate-tokens]").fill("4")
    page.locator("[data-estimate-tokens]").blur()
    page.wait_for_function(
        "() => document.querySelector('[data-estimate-result]').innerText.includes(', 8 forwards')"
    )
    page.locator("[data-estimate-tokens]").fill("0")
    page.locator("[data-estimate-tokens]").blur()
    result.locator("[role=alert]").wait_for()
    assert "tokens_per_forward" in result.inner_text()
