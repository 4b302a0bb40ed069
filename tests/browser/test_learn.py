"""The lessons in a real headless Chromium: done marks, answers, going back, links."""

import re
from contextlib import contextmanager

import numpy as np
import pytest

from engine.trace.trace import Trace
from tests.support.browser import ROOT
from tests.support.looking import recolour

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser
LESSONS = ROOT / "assets" / "examples" / "lessons"
READY = "document.querySelector('#ds-learn [data-inspect]')?.dataset.ready === '{}'"
DONE = "document.querySelector('#ds-learn [data-learn]').dataset.done === 'yes'"


@pytest.fixture(scope="module")
def course(app, lasting_page):
    """The lessons, opened by a link to one, on a page that may copy to the clipboard."""
    page = lasting_page(permissions=["clipboard-read", "clipboard-write"]).page
    page.goto(f"{app.url}/?lesson=masks")
    page.wait_for_function(READY.format("candidates"))
    assert page.locator("#ds-learn [data-lesson=masks]").count() == 1
    return page


def at_lesson(page, key, view):
    """Open a lesson and wait for its race: until then, the one before keeps its view and cursor."""
    page.evaluate("document.querySelector('[data-lesson-problem]').textContent = ''")
    page.locator(f'[data-lessons] [data-key="{key}"]').click()
    page.locator(f"#ds-learn [data-lesson={key}]").wait_for()
    page.wait_for_function("document.querySelector('[data-lesson-problem]').textContent")
    page.wait_for_function(READY.format(view))
    return page


def answer(page, given):
    page.locator("[data-lesson-number]").fill(given)
    page.locator("[data-lesson-check]").click()
    page.wait_for_function("document.querySelector('[data-lesson-verdict]').textContent")
    said = page.locator("[data-lesson-verdict]").inner_text()
    page.evaluate("document.querySelector('[data-lesson-verdict]').textContent = ''")
    return said


def cursor(page):
    read = "({ dataset: d }) => [d.lane, +d.step, +d.layer, d.position]"
    return page.locator("#ds-learn [data-inspect]").evaluate(read)


def slide(page):
    """Move the threshold of the lesson on drift to both ends."""
    slider = page.locator('#ds-learn .ds-view[data-view="counts"] input[type="range"]').first
    slider.press("Home")
    slider.press("End")


def test_a_link_opens_a_lesson_and_its_question_is_checked(course):
    page = at_lesson(course, "masks", "candidates")
    trace = Trace.load(LESSONS / "plain.npz")
    shown = ~trace.arrays()["prompt_mask"]
    ids = trace.canvas_at(trace.steps)[shown]
    end = np.flatnonzero(np.isin(ids, trace.meta["model"]["stop_ids"]))[0]
    last = int(trace.step_map()[shown][:end].argmax()) + 1
    assert answer(page, str(last + 1)).startswith("Not yet")
    assert answer(page, str(last)).startswith(f"Right. Token {last} was committed last")
    page.locator("[data-lesson-check]").click()
    verdict = page.locator("[data-lesson-verdict]")
    verdict.filter(has_text="Right.").wait_for()
    page.locator("[data-lesson-number]").fill(str(last + 1))
    assert verdict.inner_text() == ""
    assert not page.evaluate(DONE)
    scrub = page.locator("#ds-learn [data-scrub]")
    scrub.focus()
    scrub.press("Home")
    scrub.press("End")
    page.wait_for_function(DONE)


def test_each_action_is_marked_and_back_restores_the_cursor(course):
    page = at_lesson(course, "clocks", "schedule")
    for key in page.locator("[data-choice]").all():
        assert not page.evaluate(DONE)
        key.click()
        name = key.get_attribute("data-choice")
        page.wait_for_function(
            "n => document.querySelector(`[data-choice=${n}]`).ariaPressed === 'true'", arg=name
        )
    page.wait_for_function(DONE)
    page.wait_for_function(READY.format("schedule"))
    page.locator("#ds-learn [data-inspect-layer]").focus()
    page.keyboard.press("ArrowRight")
    before = cursor(page)
    page.locator('[data-lessons] [data-key="drift"]').click()
    page.wait_for_function(READY.format("counts"))
    assert not page.evaluate(DONE)
    slide(page)
    page.wait_for_function(DONE)
    assert cursor(page) != before
    assert page.url.endswith("?lesson=drift")
    page.locator('[data-lessons] [data-key="clocks"]').click()
    page.wait_for_function(READY.format("schedule"))
    page.wait_for_function(DONE)
    assert cursor(page) == before


def test_the_strip_counts_what_causal_attention_keeps(course):
    page = at_lesson(course, "attention", "drift")
    trace = Trace.load(LESSONS / "plain.npz")
    codes = trace.arrays()["drift"][12, 7, 1].astype(float)
    moved = np.where(codes == 255, 0, 1e-3 * np.expm1(codes / 254 * np.log1p(2e3))) > 0.001
    fresh, prompt = trace.step_map().tolist().index(11), int(trace.arrays()["prompt_mask"].sum())
    count = int(moved[prompt:fresh].sum())
    for name, value in (("step", 12), ("layer", 7)):
        page.locator(f"#ds-learn [data-inspect-{name}]").fill(str(value))
    words = page.locator("[data-strip-words]")
    words.get_by_text("step 13, layer 8:").wait_for()  # the strip waits for the step's drift
    assert f". {count} answer token" in words.inner_text()
    page.locator("[data-strip=causal]").click()
    assert "0 of them drift" in page.locator("[data-strip-words]").inner_text()
    page.locator("[data-strip=bidirectional]").click()
    page.wait_for_function(DONE)
    assert answer(page, str(count)).startswith("Right")


def test_the_helper_lesson_shows_the_guider_of_each_choice(course):
    page = at_lesson(course, "helper", "guider")
    said = page.locator("#ds-learn .ds-view[data-view=guider] [data-block=said]")
    for name, words in (
        ("freecache_fill_safe", "This run has no guider"),
        ("freecache_guided_digits", "Guider tiny-qwen2-digits ("),
        ("freecache_guided", "Guider tiny-qwen2 ("), ("guided", "Guider tiny-qwen2 ("),
    ):  # fmt: skip
        page.locator(f"[data-choice={name}]").click()
        said.get_by_text(words).wait_for()
    page.wait_for_function(DONE)
    trace = Trace.load(LESSONS / "freecache_guided.npz")
    arrays, ids, wins = trace.arrays(), trace.canvas_at(trace.steps), 0
    for step in np.unique(arrays["draft_step"][~arrays["draft_ok"]]):
        mine, theirs = (np.flatnonzero(arrays[n] == step) for n in ("draft_step", "guider_step"))
        first = int(arrays["draft_ok"][mine].argmin())
        stands = trace.pieces[int(ids[arrays["draft_position"][mine[first]]])]
        wins += stands == trace.guider_pieces[int(arrays["guider_top"][theirs[first]])]
    assert answer(page, str(wins + 1)).startswith("Not yet")
    assert answer(page, str(wins)).startswith(f"Right. At {wins} of")


def choose(page, name):
    """Open a race of the lesson and return the table of Compare: label to the cells beside it."""
    key = page.locator(f"[data-choice={name}]")
    if key.get_attribute("aria-pressed") != "true":  # its race would come again, at any time
        key.click()
        page.locator(f"[data-choice={name}][aria-pressed=true]").wait_for()
    page.locator("#ds-learn [data-tab=compare]").click()
    page.wait_for_function(READY.format("compare"))
    rows = page.locator("#ds-learn [data-block=numbers] tr").all()
    return {
        cells[0]: cells[1:] for cells in (row.locator("th, td").all_inner_texts() for row in rows)
    }


def test_the_lesson_on_reuse_is_answered_from_the_table_of_compare(course):
    page = at_lesson(course, "queries", "queries")
    legend = page.locator("#ds-learn [data-figure=queries-drift] .ds-legend")
    saved = {}
    for name, site in (
        ("dare_kv", "K reused"), ("dare_o", "attention output reused"),
        ("dare_o_from_layer_3", "attention output reused"),
    ):  # fmt: skip
        table = choose(page, name)
        same = table["Tokens before the end that agree"][1] == "100 %"
        saved[name] = 100 * (1 - float(table["GFLOPs"][2].rstrip("×"))), same
        page.locator("#ds-learn [data-tab=queries]").click()
        legend.get_by_text(site, exact=True).wait_for()
    page.wait_for_function(DONE)
    best = max(value for value, same in saved.values() if same)
    for value, _ in saved.values():
        expected = "Right. DARE-KV: " if value == best else "Not yet"
        assert answer(page, f"{value:.1f} %").startswith(expected)


def test_the_lesson_on_equal_terms_is_answered_from_the_forwards_of_its_races(course):
    page = at_lesson(course, "terms", "compare")
    headline = page.locator("#ds-learn [data-headline]")
    forwards = {}
    for name, words in (
        ("plain_fill_safe", "Unequal end-of-text rules: A official, B fill_safe"),
        ("guided", "Unequal end-of-text rules: A official, B fill_safe"),
        ("plain_fill_safe-guided", ""),
    ):
        table = choose(page, name)
        assert headline.inner_text() == words
        assert (len(set(table["End-of-text rule"][:2])) == 1) == (not words)
        forwards[name] = [int(cell) for cell in table["Forwards"][:2]]
    page.wait_for_function(DONE)
    (whole, stopped), (_, guided), equal = forwards.values()
    assert equal == [stopped, guided]
    assert answer(page, f"{whole / guided:.2f}").startswith("Not yet")
    assert answer(page, f"{whole / stopped:.2f}").startswith("Not yet")
    right = answer(page, f"{stopped / guided:.2f}")
    assert right.startswith(f"Right. Plain decoding takes {whole} forwards")
    assert f"{whole / stopped:.1f} is early stopping" in right


def test_the_theorem_is_drawn_in_the_colours_of_the_theme(course):
    drawn = "document.querySelector('svg[data-bars]').outerHTML"
    light = course.evaluate(drawn)
    recolour(course, dark=True)
    assert course.evaluate(drawn) != light
    recolour(course, dark=False)
    assert course.evaluate(drawn) == light


def test_a_lesson_left_before_it_was_shown_opens_with_its_own_view(course):
    page = at_lesson(course, "masks", "candidates")
    page.evaluate("""() => {
        const key = (name) => document.querySelector(`[data-lessons] [data-key=${name}]`);
        for (const name of ["thresholds", "masks", "thresholds"]) key(name).click();
    }""")
    page.wait_for_function(READY.format("compare"))
    assert page.locator("#ds-learn [data-lesson=thresholds]").count() == 1


@contextmanager
def late(page, asked="lesson"):
    """Hold back the races (or what is `asked`) that the page asks for; they come at the end."""
    held, over = [], []

    def route(one):
        if over or f'"{asked}"' not in one.request.post_data:
            one.continue_()
        else:
            held.append(one)

    page.route("**/component_server/**", route)
    yield
    while not held:
        page.wait_for_timeout(20)
    over.append(True)
    for one in held:
        one.continue_()
    page.unroute_all()


def test_a_late_race_is_waited_for_and_comes_where_the_reader_is(course):
    page = at_lesson(course, "clocks", "schedule")
    other = page.locator("[data-choice][aria-pressed=false]").last
    name = other.get_attribute("data-choice")
    with late(page):
        other.click()
        page.locator("#ds-learn [data-tab=compare]").click()
    page.locator(f"[data-choice={name}][aria-pressed=true]").wait_for()
    page.wait_for_function(READY.format("compare"))
    page.locator("#ds-learn [data-tab=schedule]").click()  # as the other tests find the lesson
    with late(page):
        page.locator('[data-lessons] [data-key="masks"]').click()
        assert answer(page, "1").startswith("The race of this lesson is not here yet.")
    at_lesson(page, "masks", "candidates")
    assert answer(page, "2").startswith("Not yet.")


def test_a_late_verdict_is_not_said_of_another_answer(course):
    page = at_lesson(course, "masks", "candidates")
    number = page.locator("[data-lesson-number]")
    with (
        page.expect_response(lambda one: '"check"' in (one.request.post_data or "")),
        late(page, "check"),
    ):
        number.fill("1")
        page.locator("[data-lesson-check]").click()
        number.fill("2")
    page.evaluate("() => new Promise((done) => setTimeout(done, 100))")
    assert page.locator("[data-lesson-verdict]").inner_text() == ""


def test_no_race_is_shown_before_the_first_one_comes_and_the_reader_is_told_when(app, new_page):
    page = new_page().page
    race, said = page.locator("#ds-learn .ds").first, page.locator("[data-lesson-verdict]")
    with late(page):
        page.goto(f"{app.url}/?lesson=masks")
        page.locator("#ds-learn [data-lesson=masks]").wait_for()  # a click before that is lost
        page.locator("[data-lesson-number]").fill("1")
        page.locator("[data-lesson-check]").click()
        said.get_by_text("is not here yet").wait_for()
        assert not race.is_visible()
    said.get_by_text("is here now").wait_for()
    assert race.is_visible()


def test_the_embedded_models_are_described(course):
    course.locator("#ds-suite > button").click()
    course.locator("#ds-suite-curve .js-plotly-plot").wait_for()
    text = course.locator("#ds-suite").inner_text()
    assert "Short word problems" in text
    assert "So the answer is" in text or "The answer is" in text
    assert "tiny-dream" in text
    assert "no world knowledge" in text
    for width in (1280, 390):
        course.set_viewport_size({"width": width, "height": 900})
        course.wait_for_function(
            "width => document.documentElement.scrollWidth <= width", arg=width
        )
    course.set_viewport_size({"width": 1280, "height": 900})


def test_a_lesson_shows_its_problem_and_moves_the_cursor(course):
    page = at_lesson(course, "attention", "drift")
    problem = page.locator("[data-lesson-problem]").inner_text()
    assert problem.endswith("?")
    keys = page.locator("[data-lesson-cursor]")
    before = cursor(page)
    keys.get_by_role("button", name="Next step").click()
    keys.get_by_role("button", name="Previous layer").click()
    assert cursor(page)[1:3] == [before[1] + 1, before[2] - 1]
    page.locator("[data-lesson-step]").fill("12")
    assert cursor(page)[1] == 12
    assert page.locator("[data-lesson-cursor] output").first.inner_text().startswith("13 of ")
    page.locator("[data-lesson-step]").press("End")
    for key in ("Previous step", "Next step"):
        keys.get_by_role("button", name=key).press("Enter")
    assert page.evaluate("document.activeElement.matches('[data-lesson-step]')"), "it is not lost"


def test_the_strip_has_a_cell_for_every_answer_token(course):
    page = at_lesson(course, "attention", "drift")
    page.locator("[data-lesson-step]").fill("12")
    page.locator("[data-lesson-layer]").fill("7")
    page.locator("[data-strip=bidirectional]").click()
    words = page.locator("[data-strip-words]")
    words.get_by_text("step 13, layer 8:").wait_for()  # the strip waits for the step's drift
    trace = Trace.load(LESSONS / "plain.npz")
    cells = page.locator("[data-strip-cells] .ds-strip-cell")
    assert cells.count() == (~trace.arrays()["prompt_mask"]).sum()
    marked = page.locator("[data-strip-cells] .ds-strip-moved")
    counts = re.search(r"(\d+) answer tokens? .* (\d+) from", words.inner_text())
    before, after = map(int, counts.groups())
    assert marked.count() == before + after
    page.locator("[data-strip=causal]").click()
    assert marked.count() == after
    assert page.locator("[data-strip-cells] .ds-strip-kept").count() > 0


def test_an_empty_answer_is_asked_for_and_a_wrong_one_gets_its_own_hint(course):
    page = at_lesson(course, "masks", "candidates")
    assert answer(page, "") == "Type a number first."
    assert answer(page, "seven").endswith("Give a number, such as 12 or 3.5.")
    assert "was committed at step" in answer(page, "2")
    page = at_lesson(course, "clocks", "schedule")
    assert page.locator("[data-lesson-select]").input_value() == ""
    page.locator("[data-lesson-check]").click()
    verdict = page.locator("[data-lesson-verdict]")
    assert verdict.inner_text() == "Choose a setting first."
    page.locator("[data-lesson-select]").select_option("dllm_25_50")
    page.locator("[data-lesson-check]").click()
    verdict.get_by_text("Not yet.").wait_for()


def test_ticks_are_kept_and_can_be_cleared(app, course):
    page = at_lesson(course, "masks", "candidates")
    page.locator("[data-lesson-step]").press("Home")
    page.locator("[data-lesson-step]").press("End")
    page.wait_for_function(DONE)
    ticks = "[data-lessons] [data-key={}] .ds-tick"
    cleared, kept = (page.locator(ticks.format(key)) for key in ("masks", "drift"))
    marks = page.locator('[data-lessons] [data-key="masks"] [role="img"]')
    said = {"✓": "done", "✓✓": "answered"}  # a test before may have answered its question
    assert marks.get_attribute("aria-label") == said[cleared.inner_text()]
    page.locator('[data-lessons] [data-key="teachers"]').click()
    page.locator("[data-forget]").click()
    assert (cleared.inner_text(), marks.count()) == ("", 0)
    slide(at_lesson(page, "drift", "counts"))
    page.wait_for_function(DONE)
    page.goto(f"{app.url}/?lesson=teachers")
    page.locator("[data-teachers-table] tr").first.wait_for()
    assert [tick.inner_text() for tick in (cleared, kept)] == ["", "✓"]


def test_the_page_for_teachers_lists_the_lessons_with_their_links(app, course):
    page, rows = course, course.locator("[data-teachers-table] tr")
    page.locator('[data-lessons] [data-key="teachers"]').click()
    rows.first.wait_for()
    assert rows.count() == 12
    told = page.locator("[data-teachers-table] td:has(button) > [role=status]")
    assert told.count() == 11  # one for each copy key, to say that the link is copied
    links = page.locator("[data-teachers-table] input").evaluate_all("a => a.map((i) => i.value)")
    assert links[0] == f"{app.url}/?lesson=masks"
    page.locator("[data-teachers-table] .ds-lesson-open").nth(1).click()
    page.wait_for_function(READY.format("drift"))
    assert page.locator("[data-lesson-box]").is_visible()
    assert page.locator("[data-teachers]").is_hidden()


def test_the_link_to_a_lesson_has_a_copy_button(app, course):
    page = at_lesson(course, "drift", "counts")
    page.locator("[data-lesson-copy]").click()
    page.locator("[data-lesson-copy]", has_text="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == f"{app.url}/?lesson=drift"
