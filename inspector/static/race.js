const store = new Store();
const root = element.querySelector(".ds");
const find = (name) => root.querySelector("[data-" + name + "]");
const transport = new Transport(root, store, () => draw());
const view = { pinned: null, pointed: null, asking: false, queued: false, question: null };
const inspector = new Inspector(
  root.querySelector("[data-inspect]"),
  store,
  (run, lane, name) => server.view(run, lane, name),
  moveTo,
);
const main = Boolean(element.closest("#ds-race"));
const focus = new Focus(root, main ? "#ds-buttons" : null);
const speech = new Speech(find("spoken"), store, () => headline(store, transport.frames()));
const lanes = {};
for (const name of ["a", "b"]) {
  const box = root.querySelector('[data-lane="' + name + '"]');
  const part = (key) => box.querySelector("[data-" + key + "]");
  const grid = new Grid(
    part("grid"),
    (place) => point(name, place),
    (place) => pin(name, place),
  );
  lanes[name] = { box, part, grid };
  part("grid").addEventListener("focus", () => (find("readout").ariaLive = "polite"));
  part("grid").addEventListener("blur", () => (find("readout").ariaLive = "off"));
}

function point(name, place) {
  view.pointed = place < 0 ? null : [name, place];
  readout();
}

function pin(name, place) {
  const same = view.pinned && view.pinned[0] === name && view.pinned[1] === place;
  if (place < 0 || same) return inspector.cursor.release();
  const position = store.lanes[name].start.prompt.length + place;
  inspector.cursor.move({ lane: name, position, ...inspector.follow(name) }, true);
}

function moveTo(cursor) {
  const lane = store.lanes[cursor.lane];
  if (!lane.start || store.live) return inspector.draw();
  const place = cursor.position === null ? -1 : cursor.position - lane.start.prompt.length;
  view.pinned = place < 0 ? null : [cursor.lane, place];
  markPinned();
  if (transport.frames()[cursor.lane] === cursor.step + 1) return inspector.draw();
  transport.show(lane, cursor.step + 1);
}

function markPinned() {
  for (const [key, { grid }] of Object.entries(lanes)) {
    grid.cells.forEach((cell, i) => {
      const held = view.pinned && view.pinned[0] === key && view.pinned[1] === i;
      cell.classList.toggle("ds-pinned", Boolean(held));
    });
  }
  readout();
}

function readout() {
  const target = view.pointed || view.pinned;
  const lane = target && store.lanes[target[0]];
  const text = lane && lane.start
    ? describe(lane, target[1], transport.frames()[target[0]])
    : "Point at a token, or move to it with the arrow keys, to read its id, confidence and step.";
  find("readout").classList.toggle("ds-told", Boolean(target));
  if (find("readout").textContent !== text) find("readout").textContent = text;
}

function drawLane(name, frames) {
  const { box, part, grid } = lanes[name];
  const lane = store.lanes[name];
  const frame = frames[name];
  const other = name === "a" ? "b" : "a";
  box.classList.toggle("ds-absent", !lane.start);
  part("title").textContent = lane.start ? lane.start.title : "Lane " + name.toUpperCase();
  part("pill").textContent = pill(lane, frame);
  const share = lane.start ? (100 * (lane.at.length - lane.masksLeft(frame))) / lane.at.length : 0;
  part("progress").setAttribute("aria-valuenow", Math.round(share));
  part("progress").firstElementChild.style.width = share + "%";
  const rows = lane.start ? stats(lane, frame, store.timed) : [];
  part("stats").replaceChildren(
    ...rows.map(([label, value]) => {
      const pair = make("div");
      pair.append(make("dt", "", label), make("dd", "", value));
      return pair;
    }),
  );
  answer(part("answer"), lane, frame);
  if (!lane.start) return;
  grid.draw(lane, frame, store.lanes[other], frames[other], find("colour").value);
  root.dataset["frame" + name.toUpperCase()] = frame;
  root.dataset["shown" + name.toUpperCase()] = lane.shown[frame];
}

function drawHead() {
  const refused = store.refusal;
  root.dataset.state = refused ? "refused" : store.state;
  root.dataset.held = store.held ? "yes" : "no";
  root.classList.toggle("ds-stale", store.pending);
  const state = view.queued ? "queued" : store.state;
  const label = refused && !view.queued ? "Not started" : STATES[state] || state;
  const where = store.started.length ? store.started[0].start.environment : "";
  const finished = ["example", "done"].includes(store.state) && where && store.timed ? " · measured on " + where : "";
  find("state").textContent = label + finished;
  find("headline").textContent = headline(store, transport.frames());
  drawFetch(find("fetch"), find("fetch-bar"), find("fetch-words"), store.wait);
  find("chips").replaceChildren(...chips(store).map((text) => make("li", "", text)));
  const failures = store.started.filter((lane) => lane.end && lane.end.message);
  const said = store.message || failures.map((lane) => lane.end.message)[0] || "";
  find("note").hidden = !said;
  find("note").textContent = said;
  find("parent").hidden = !store.parent;
  find("back").disabled = store.busy;
  const elsewhere = view.question && store.question && store.question !== view.question;
  find("other").hidden = !elsewhere || store.live;
  find("other").textContent = elsewhere ? "The lanes below show another problem: " + store.question : "";
}

function draw() {
  for (const lane of store.started) {
    const { grid } = lanes[lane.name];
    if (grid.lane !== lane) {
      grid.build(lane);
      grid.lane = lane;
    }
  }
  transport.refresh();
  const frames = transport.frames();
  drawHead();
  drawLane("a", frames);
  drawLane("b", frames);
  readout();
  drawCharts(frames);
  drawInspector(frames);
}

function drawInspector(frames) {
  const { pinned } = inspector.cursor;
  pinned.step = Math.max(frames[pinned.lane] - 1, 0);
  for (const key of root.querySelectorAll("[data-record]")) key.disabled = store.busy || !store.started.length;
  if (!store.live && store.state !== "recording") inspector.refresh(store.version);
  inspector.draw();
  focus.check();
}

function hold(held) {
  store.held = main && held;
  drawHead();
  drawInspector(transport.frames());
}

function ask(name, wish) {
  trigger(name, wish);
  hold(true);
}

function drawCharts(frames) {
  const most = Math.max(1, ...store.started.map((lane) => lane.rows.length));
  const chart = (name) => root.querySelector('[data-chart="' + name + '"]');
  drawRace(chart("race"), store, frames);
  for (const name of ["a", "b"]) drawMap(chart(name), store.lanes[name], frames[name], most);
}

function reach() {
  for (const box of root.querySelectorAll("[data-answer], [data-note]")) reachable(box);
}

function details() {
  reach();
  table(find("table"), store);
  const lane = store.started[0];
  find("env").textContent = lane
    ? "Model " + lane.start.model + ". " + (store.timed ? "Measured by the engine's own clock on " : "Recorded, not timed, on ") + lane.start.environment + (store.timed ? ", without drawing." : ".") + (lane.start.memory ? " " + lane.start.memory + "." : "")
    : "";
  if (find("prompt-box").open) promptView(find("prompt"), store);
  if (find("numbers").open) cardText(inspector).then((text) => (find("run-card").textContent = text));
}

function come() {
  const lanes = root.querySelector(".ds-lanes").getBoundingClientRect();
  if (lanes.top < window.innerHeight * 0.4) return;
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const keys = document.querySelector("#ds-buttons");
  if (keys) keys.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
}

async function take(text) {
  let news;
  try {
    news = JSON.parse(text);
  } catch {
    return;
  }
  const fresh = news.reset;
  view.queued = false;
  if (news.state === "starting") come();
  const whole = store.take(news);
  if (fresh) {
    transport.reset(store.timed);
    view.pinned = view.pointed = null;
    if (store.live) store.question = view.question;
  }
  draw();
  speech.announce();
  if (!store.live) details();
  if (whole || view.asking) return;
  view.asking = true;
  const answered = await server.replay(store.run);
  view.asking = false;
  if (JSON.parse(answered).run === store.run && store.live) take(answered);
}

find("colour").addEventListener("change", draw);
for (const key of root.querySelectorAll("[data-record]")) {
  key.addEventListener("click", () => ask("record", { level: key.dataset.record }));
}
find("back").addEventListener("click", () => ask("branch", { back: store.parent }));
document.addEventListener("click", (event) => {
  if (!main || !event.target.closest?.("#ds-run:not([disabled])")) return;
  view.queued = true;
  hold(true);
});
document.addEventListener("driftscope-over", () => {
  view.queued = false;
  hold(false);
});
find("prompt-box").addEventListener("toggle", details);
find("numbers").addEventListener("toggle", details);
document.addEventListener("driftscope-question", (event) => {
  if (main) view.question = event.detail;
  drawHead();
});
inspector.watchers.push(() => focus.check());
new ResizeObserver(() => {
  drawCharts(transport.frames());
  reach();
}).observe(root);
new MutationObserver(() => drawCharts(transport.frames())).observe(document.body, { attributeFilter: ["class"] });
if (main) new Link(inspector);
watch("value", () => take(props.value));
take(props.value);
draw();
