"""The theorem widget alone on a page, and what it shows."""

import socket

import pytest

from tests.support.looking import recolour

OPENED = (3, 30, 0.8)


# Moves the sliders that do not stand there, or all of them if none does: each draws all anew.
SLIDE = """given => {
  const fields = Object.entries(given).map(([name, value]) =>
    [document.querySelector(`[data-in-${name}]`), value]);
  const moved = fields.filter(([field, value]) => Number(field.value) !== Number(value));
  for (const [field, value] of moved.length ? moved : fields) {
    field.value = value;
    for (const kind of ['input', 'change'])
      field.dispatchEvent(new Event(kind, { bubbles: true }));
  }
}"""


class Widget:
    """The widget as a person uses it, and its own account of what it shows."""

    def __init__(self, made, url):
        self.page, self.watch = made.page, made.watch
        self.page.goto(url)
        self.page.wait_for_selector("[data-theorem][data-k]")
        self.page.wait_for_selector("svg[data-bars] rect")
        made.settled()

    def slide(self, k, percent, part):
        given = {"k": str(k), "epsilon": str(percent / 100), "strength": str(part)}
        self.page.evaluate(SLIDE, given)

    def press(self, key):
        self.page.locator(f"[data-key={key}]").click()

    @property
    def data(self):
        return self.page.locator("[data-theorem]").evaluate("node => ({ ...node.dataset })")

    @property
    def rows(self):
        """P and Q of every outcome, by its name."""
        rows = self.page.locator("[data-rows] tr").evaluate_all(
            "rows => rows.map(({ dataset: d }) => [d.outcome, Number(d.p), Number(d.q)])"
        )
        return {name: (p, q) for name, p, q in rows}

    @property
    def verdict(self):
        return self.page.locator("[data-verdict]").inner_text()


@pytest.fixture(scope="module")
def url():
    import gradio as gr

    from inspector import static_files
    from inspector.page.theme import theme
    from inspector.page.theorem import build_theorem
    from inspector.server.bundle import bundle_route

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with gr.Blocks(fill_width=True, analytics_enabled=False) as demo:
        build_theorem()
    demo.launch(
        prevent_thread_lock=True, quiet=True, ssr_mode=False, theme=theme(), css=static_files.css(),
        server_name="127.0.0.1", server_port=port, footer_links=["settings"],
        app_kwargs={"routes": [bundle_route()]},
    )  # fmt: skip
    yield f"http://127.0.0.1:{port}/"
    demo.close()


@pytest.fixture(scope="module")
def shared(url, lasting_page):
    return Widget(lasting_page(), f"{url}?__theme=light")


@pytest.fixture
def widget(shared):
    """The one that the tests of a module share, as it is when it is opened."""
    shared.page.set_viewport_size({"width": 1280, "height": 900})
    recolour(shared.page, False)
    shared.slide(*OPENED)
    return shared
