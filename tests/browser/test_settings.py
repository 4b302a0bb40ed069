"""What a visitor sets, links, exports, imports, and what hostile text does: nothing."""

import re

import pytest

from engine.trace.trace import Trace
from tests.support.looking import open_files, take_back

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser
HOSTILE = "<img src=x onerror=window.hit=1>${window.hit=2}`{{value}}` שלום \u202eabc 😀 How many?"


@pytest.fixture(scope="module")
def own(app, lasting_page):
    """A page with the settings of a short race; its tests change them."""
    return lasting_page().open(app.link(gen_length="16", **{"a.steps": "16"}))


@pytest.fixture(scope="module")
def other(app, lasting_page):
    """A page with the files open, to bring some in."""
    race = lasting_page().open(app.url)
    open_files(race)
    return race


@pytest.fixture(scope="module")
def paths(own, tmp_path_factory):
    """What a finished race gives to take away."""
    own.finish()
    return exported(own, tmp_path_factory.mktemp("exported"))


def test_a_link_brings_the_settings_back(other, new_page):
    other.settings()
    prompt = other.page.locator("#ds-prompt textarea").input_value()
    for field, value in (("seed", "9"), ("gen_length", "32"), ("b-threshold-threshold", "0.7")):
        given = other.page.locator(f"#ds-{field} input[type=number]").first
        given.fill(value)
        given.press("Tab")
    other.page.wait_for_function(
        "['seed=9', 'gen_length=32', 'threshold=0.7'].every((one) =>"
        " document.querySelector('#ds-link-field')?.value.includes(one))"
    )
    other.settled()
    link = other.page.locator("#ds-link-field").input_value()
    second = new_page().open(link)
    page = second.page
    page.wait_for_function(
        "link => document.querySelector('#ds-link-field')?.value === link", arg=link
    )
    second.settings()
    for field, value in (("ds-seed", "9"), ("ds-gen_length", "32")):
        page.wait_for_function(
            "([id, value]) => document.querySelector('#' + id + ' input')?.value === value",
            arg=[field, value],
        )
    assert page.locator("#ds-b-threshold-threshold input").first.input_value() == "0.7"
    assert page.locator("#ds-prompt textarea").input_value() == prompt
    assert page.locator("#ds-b-steps input").is_disabled()
    assert page.locator("#ds-a-steps input").is_enabled()


def test_a_block_model_brings_settings_that_it_can_run_and_the_next_model_its_own(other):
    race = other
    race.settings()
    for model, method in (("Tiny block diffusion", "Frozen blocks"), ("Tiny LLaDA", "dual cache")):
        race.page.locator("#ds-model input").click()
        race.page.get_by_role("option", name=f"{model} · on this machine").click()
        race.planned(method)


def test_a_broken_link_is_said_and_harmless(app, new_page):
    race = new_page().open(app.url + "/?gen_length=-4&b.unmasker=magic")
    assert "Answer length" in race.text("[data-note]")
    race.ready()


def exported(race, tmp_path, part="."):
    """Export a race, and save its files that have `part` in their names."""
    race.page.locator("#ds-files > button").click()
    race.page.locator("#ds-export").click()
    race.page.locator("#ds-files a[download*=replay]").wait_for()
    paths = []
    for link in race.page.locator(f"#ds-files a[download*='{part}']").all():
        with race.page.expect_download() as waiting:
            link.click()
        path = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(path)
        paths.append(path)
        race.page.wait_for_timeout(150)  # Chromium drops more than 10 downloads in a second
    return sorted(paths)


def test_export_and_import_show_the_same(own, other, paths):
    """The files of the timed runs; those of their recordings lie beside them."""
    traces = [path for path in paths if re.search(r"-[ab]\.npz$", path.name)]
    recorded = [path for path in paths if path.name.endswith("-recorded.npz")]
    assert (len(traces), len(recorded)) == (2, 2)
    other.page.locator("#ds-import input[type=file]").set_input_files(traces)
    cells = "[...document.querySelectorAll('.ds-cell')].map(c => c.className + c.textContent)"
    want = own.page.evaluate(cells)
    other.page.wait_for_function(f"want => {cells}.join() === want.join()", arg=want)
    assert other.state == "imported"
    assert other.text("[data-headline]") == own.text("[data-headline]")
    take_back(other)


def test_a_run_card_runs_its_race(own, other, paths):
    (card,) = [path for path in paths if path.name.endswith("run-card.json")]
    other.page.locator("#ds-import input[type=file]").set_input_files(card)
    other.wait_state("done")
    other.over()
    texts = "[...document.querySelectorAll('.ds-cell')].map(c => c.textContent).join()"
    assert other.page.evaluate(texts) == own.page.evaluate(texts)
    assert "run card" in other.page.locator("#ds-import-note").inner_text()
    take_back(other)


def test_impossible_settings_are_refused_in_place(own):
    page = own.page
    own.settings()
    length = page.locator("#ds-gen_length input")
    for bad in ("30", "0", "-5", "99999"):
        length.fill(bad)
        length.press("Tab")
        page.wait_for_function("!document.querySelector('#ds-plan [data-error]').hidden")
        page.wait_for_function("document.querySelector('#ds-run').disabled")
    length.fill("30")
    length.press("Tab")
    page.wait_for_function(
        "/Block length.*nearest valid: 10 or 15/.test("
        "document.querySelector('#ds-plan [data-error]').textContent)"
    )
    length.fill("32")
    length.press("Tab")
    own.ready()
    assert page.locator("#ds-plan [data-error]").is_hidden()


def test_only_the_chosen_knobs_are_shown(own):
    page = own.page
    own.settings()
    page.locator("#ds-a-threshold-threshold").wait_for(state="hidden")
    page.locator("#ds-b-threshold-threshold").wait_for(state="visible")
    box = page.locator("#ds-a-unmasker input")
    box.click()
    page.get_by_role("option", name="Threshold", exact=True).click()
    page.locator("#ds-a-threshold-threshold").wait_for(state="visible")
    page.wait_for_function("document.querySelector('#ds-a-steps input').disabled")
    own.planned("A")


def test_dice(own):
    page = own.page
    before = page.locator("[data-question]").inner_text()
    page.locator("[data-dice]").click()
    page.wait_for_function(
        "old => document.querySelector('[data-question]').textContent !== old", arg=before
    )
    assert page.locator("[data-before]").inner_text() == "after 2 worked examples"
    own.planned("rounded up to blocks of")
    tokens = int(re.search(r"worked answer has (\d+)", page.locator("#ds-plan").inner_text())[1])
    own.settings()
    length = int(page.locator("#ds-gen_length input").input_value())
    assert tokens <= length < tokens + int(page.locator("#ds-block_length input").input_value())
    assert page.locator("#ds-a-steps input").input_value() == str(length)
    page.locator("#ds-shots input[type=number]").fill("0")
    page.locator("[data-dice]").click()
    page.wait_for_function("!document.querySelector('[data-before]').textContent")


def test_hostile_text_is_shown_as_text(app, new_page):
    race = new_page().open(app.link(prompt=HOSTILE, gen_length="16", **{"a.steps": "8"}))
    shown = "text => document.querySelector('[data-question]').textContent === text"
    race.page.wait_for_function(shown, arg=HOSTILE.replace("\u202e", "⟨U+202E⟩"))
    race.finish()
    race.page.locator("[data-prompt-box] summary").click()
    race.page.wait_for_function(
        "document.querySelector('#ds-race [data-prompt]').innerText.includes('onerror')"
    )
    long = "<b>${x}</b>`\u202e😀" * 350
    race.settings()
    race.page.locator("#ds-prompt textarea").fill(long)
    race.page.wait_for_function("document.querySelector('#ds-run').disabled")
    assert "Prompt" in race.page.locator("#ds-plan [data-error]").inner_text()
    assert race.page.evaluate("window.hit") is None
    assert race.page.locator(".ds img, .ds-plan img").count() == 0
    assert race.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_hostile_tokens_and_files(other, paths, tmp_path):
    good = next(path for path in paths if path.name.endswith("a.npz"))
    trace = Trace.load(good)
    trace._pieces = {i: b"<img src=x onerror=window.hit=1>${window.hit=2}" for i in trace.pieces}
    trace.save(tmp_path / "hostile.npz")
    (tmp_path / "broken.npz").write_bytes(good.read_bytes()[:300])
    chooser = other.page.locator("#ds-import input[type=file]")
    before = other.state
    chooser.set_input_files(tmp_path / "broken.npz")
    other.page.wait_for_function(
        "document.querySelector('#ds-import-note')?.textContent.includes('damaged')"
    )
    assert other.state == before
    take_back(other)
    chooser.set_input_files(tmp_path / "hostile.npz")
    other.page.wait_for_function(
        "document.querySelector('[data-lane=a] .ds-cell').textContent.startsWith('<img')"
    )
    assert other.state == "imported"
    assert other.page.evaluate("window.hit") is None
    assert other.page.locator(".ds img").count() == 0
    take_back(other)
