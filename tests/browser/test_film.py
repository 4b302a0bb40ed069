"""A race as a video and as a film strip, in a real headless Chromium, from the replay file."""

import base64
import xml.etree.ElementTree as ET

import pytest

from engine.core.files import ASSETS
from engine.trace.trace import Trace
from inspector.files.replay import replay_page
from inspector.run_store import RaceRecord
from tests.support.chromium import Watch

pytest_plugins = ["tests.support.chromium"]
pytestmark = pytest.mark.browser

SECONDS = 5
# The length of a video, and how far its pictures are from white and from each other.
PLAYED = """async (text) => {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const video = document.createElement("video");
  video.muted = true;
  video.src = URL.createObjectURL(new Blob([bytes], { type: "video/webm" }));
  const came = (name) => new Promise((done, fail) => {
    video.addEventListener(name, done, { once: true });
    video.addEventListener("error", () => fail(new Error(video.error.message)), { once: true });
  });
  await came("loadeddata");
  const shots = [];
  for (const time of [0.1, video.duration - 0.2]) {
    video.currentTime = time;
    await came("seeked");
    await new Promise((done) => setTimeout(done, 300)); // the picture may follow the event
    const canvas = new OffscreenCanvas(video.videoWidth, video.videoHeight);
    const pen = canvas.getContext("2d");
    pen.drawImage(video, 0, 0);
    shots.push(pen.getImageData(0, 0, canvas.width, canvas.height).data);
  }
  const corner = [...shots[0].slice(0, 3)];
  let apart = 0;
  shots[0].forEach((value, i) => (apart += Math.abs(value - shots[1][i]) > 40 ? 1 : 0));
  return { duration: video.duration, size: [video.videoWidth, video.videoHeight], corner, apart };
}"""


@pytest.fixture(scope="module")
def open_replay(browser, tmp_path_factory):
    """Open the replay file of the bundled race in the dark theme, with scripts run before it."""
    record = RaceRecord(state="done")
    for lane in "ab":
        record.traces[lane] = Trace.load(ASSETS / "examples" / f"{lane}.npz")
    path = tmp_path_factory.mktemp("film") / "replay.html"
    path.write_text(replay_page(record, lambda spec: "A method"), "utf-8")
    context = browser.new_context(color_scheme="dark", viewport={"width": 1280, "height": 900})
    watch = Watch()

    def make(script=""):
        page = context.new_page()
        watch.attach(page)
        page.add_init_script(script)
        page.goto(path.as_uri())
        page.locator("[data-film] summary").click()
        return page

    yield make
    context.close()
    assert watch.errors == []


@pytest.fixture(scope="module")
def page(open_replay):
    """The file as it opens in this browser."""
    return open_replay()


def saved(page, button):
    with page.expect_download(timeout=60_000) as waiting:
        page.get_by_role("button", name=button, exact=True).click()
    return waiting.value


def test_the_video_plays_and_has_the_chosen_length(page, browser, tmp_path):
    page.locator("[data-film-seconds]").select_option(str(SECONDS))
    download = saved(page, "Record the video")
    assert download.suggested_filename.endswith("-race.webm")
    path = tmp_path / "race.webm"
    download.save_as(path)
    page.locator("[data-film-said]", has_text="The video is saved.").wait_for()
    data = path.read_bytes()
    assert len(data) > 20_000
    blank = browser.new_page()
    played = blank.evaluate(PLAYED, base64.b64encode(data).decode())
    blank.close()
    assert SECONDS - 0.2 <= played["duration"] < SECONDS + 3
    assert played["size"] == [1280, 720]
    assert min(played["corner"]) > 240  # light, although the page is dark
    assert played["apart"] > 5_000


def test_a_recording_can_be_stopped(page):
    page.get_by_role("button", name="Record the video").click()
    page.get_by_role("button", name="Stop recording").click()
    page.locator("[data-film-said]", has_text="Stopped: no video is saved.").wait_for()
    assert page.get_by_role("button", name="Record the video").is_enabled()


def test_where_no_video_can_be_recorded_the_button_says_so(open_replay):
    page = open_replay("delete window.MediaRecorder;")
    button = page.get_by_role("button", name="This browser cannot record a video.")
    assert button.is_disabled()
    assert page.get_by_role("button", name="Save the film strip").is_enabled()
    page.close()  # a page behind another one draws once a second


def test_the_film_strip_shows_the_chosen_moments(page):
    page.locator("[data-align]").select_option("step")
    page.locator("[data-scrub]").focus()
    page.keyboard.press("Home")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
        page.get_by_role("button", name="Add the moment shown").click()
        page.locator("[data-scrub]").focus()
    page.keyboard.press("End")
    page.get_by_role("button", name="Add the moment shown").click()
    assert page.locator("[data-film-moments] li").count() == 3
    root = ET.parse(saved(page, "Save the film strip").path()).getroot()
    words = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    captions = [text for text in words if text.startswith("step ")]
    assert [text.split(" · ")[0] for text in captions[:3]] == ["step 1", "step 2", "step 64"]
    assert len(captions) == 6
    assert words.count("A method") == 2
    assert next(root.iter("{http://www.w3.org/2000/svg}rect")).get("fill") == "#ffffff"


def test_the_key_that_saves_has_the_focus_when_no_more_moments_fit(open_replay):
    page = open_replay()
    page.locator("[data-align]").select_option("step")
    page.locator("[data-scrub]").press("Home")
    for _ in range(8):
        page.locator("[data-scrub]").press("ArrowRight")
        page.locator("[data-film-add]").press("Enter")
    assert page.locator("[data-film-add]").is_disabled()
    assert page.evaluate("document.activeElement.matches('[data-film-strip]')")
