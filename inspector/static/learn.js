const board = element.querySelector("[data-learn]");
const spot = (name) => board.querySelector("[data-" + name + "]");
const kept = new Map();
const course = { lessons: [], now: null, laneB: "", seen: new Set(), strip: "bidirectional", stripUsed: new Set(), start: null };

const ACTIONS = {
  scrub: () => course.seen.has("start") && course.seen.has("end"),
  strip: () => course.stripUsed.size === 2,
  threshold: () => course.seen.has("low") && course.seen.has("high"),
  choices: () => course.now.choices.every(({ name }) => course.seen.has(name)),
  pin: () => inspector.cursor.held && course.seen.has("moved"),
};

function note() {
  const { a } = transport.frames();
  if (a === 0) course.seen.add("start");
  else if (course.seen.has("start") && a === store.lanes.a.rows.length) course.seen.add("end");
  const slider = inspector.panels.counts?.controls.querySelector('input[type="range"]');
  if (slider && slider.value === slider.min) course.seen.add("low");
  if (slider && slider.value === slider.max) course.seen.add("high");
  if (course.start && JSON.stringify(inspector.cursor.pinned) !== course.start) course.seen.add("moved");
  if (!ACTIONS[course.now.action]()) return;
  kept.get(course.now.key).done = true;
  marks();
}

function marks() {
  const place = kept.get(course.now.key);
  spot("lesson-done").hidden = !place.done;
  board.dataset.lesson = course.now.key;
  board.dataset.done = place.done ? "yes" : "";
  for (const key of spot("lessons").children) {
    const { done, right } = kept.get(key.dataset.key);
    key.setAttribute("aria-current", key.dataset.key === course.now.key);
    key.lastChild.textContent = right ? "✓✓" : done ? "✓" : "";
    key.lastChild.setAttribute("aria-label", right ? "answered" : done ? "done" : "");
  }
}

function leave() {
  if (!course.now || !course.start) return; // not shown yet: there is nothing of its own to keep
  Object.assign(kept.get(course.now.key), {
    cursor: { ...inspector.cursor.pinned }, held: inspector.cursor.held, view: inspector.name,
    laneB: course.laneB, seen: course.seen, strip: course.stripUsed,
  });
}

async function enter(lesson) {
  leave();
  const place = kept.get(lesson.key);
  course.now = lesson;
  course.seen = place.seen || new Set();
  course.stripUsed = place.strip || new Set();
  course.start = null;
  for (const part of ["title", "ask"]) spot("lesson-" + part).textContent = lesson[part];
  const linked = new Set();
  for (const part of ["do", "see"]) spot("lesson-" + part).replaceChildren(...termNodes(lesson[part], linked));
  const number = lesson.answer === "number";
  spot("lesson-number").hidden = !number;
  spot("lesson-number").value = "";
  spot("lesson-select").hidden = lesson.answer !== "choice";
  spot("lesson-select").replaceChildren(...lesson.choices.map(option));
  spot("lesson-strip").hidden = lesson.action !== "strip";
  spot("lesson-verdict").textContent = "";
  spot("lesson-link").value = location.origin + location.pathname + "?lesson=" + lesson.key;
  const last = course.lessons.at(-1) === lesson;
  spot("lesson-last").hidden = !last;
  spot("lesson-next").hidden = last;
  spot("lesson-choices").replaceChildren(...lesson.choices.map(choiceKey));
  marks();
  await show(place.laneB || lesson.lane_b, place.cursor || lesson.start, place.held, place.view || lesson.view);
}

function option({ label, name }) {
  const out = make("option", "", label);
  out.value = name;
  return out;
}

function choiceKey({ label, name }) {
  const key = make("button", "ds-play", label);
  key.type = "button";
  key.dataset.choice = name;
  key.addEventListener("click", () => show(name, inspector.cursor.pinned, inspector.cursor.held, inspector.name));
  return key;
}

async function show(name, cursor, held, view) {
  const lesson = course.now;
  const answered = await server.lesson(lesson.key, name);
  if (lesson !== course.now) return;
  course.laneB = name;
  course.seen.add(name);
  for (const key of spot("lesson-choices").children) key.setAttribute("aria-pressed", key.dataset.choice === name);
  const wanted = { position: null, ...cursor };
  await take(answered);
  inspector.open(view);
  inspector.cursor.move(wanted, Boolean(held));
  const lane = store.lanes[wanted.lane];
  if (lane.start) transport.show(lane, Math.min(wanted.step + 1, lane.rows.length));
  course.start = JSON.stringify(inspector.cursor.pinned);
  note();
}

function strip() {
  if (spot("lesson-strip").hidden) return;
  const drift = inspector.given("a", "drift");
  const frame = inspector.frames.a;
  const { step, layer } = inspector.cursor.pinned;
  if (!drift || drift.missing || !frame) return;
  const fresh = frame.revealed.values.indexOf(step - 1);
  const quantity = drift.quantities.indexOf("v");
  let [left, right] = [0, 0];
  for (let x = frame.prompt; x < frame.positions; x++) {
    const code = at(drift.drift, Math.min(step, frame.steps - 1), Math.min(layer, frame.layers - 1), quantity, x);
    if (code === NO_DATA || DRIFT[code] <= 0.001) continue;
    if (x < fresh) left++;
    else right++;
  }
  const where = "Step " + (step + 1) + ", layer " + (layer + 1) + ": ";
  const causal = course.strip === "causal";
  spot("strip-words").textContent = fresh < 0
    ? where + "no token was unmasked in the previous step."
    : where + "answer token " + (fresh - frame.prompt + 1) + " had just been unmasked. " +
      (causal
        ? "Causal attention: K and V of the tokens before it do not change, so 0 of them drift."
        : plural(left, "answer token") + " before it and " + right + " from it on drifted by more than 0.001.");
}

function turnTo(lesson) {
  const entered = enter(lesson);
  spot("lesson-title").focus({ preventScroll: true });
  board.querySelector("[data-lesson-box]").scrollIntoView({ block: "nearest" });
  return entered;
}

async function judge(event) {
  event.preventDefault();
  const lesson = course.now;
  const given = lesson.answer === "choice" ? spot("lesson-select").value : spot("lesson-number").value;
  const found = JSON.parse(await server.check(lesson.key, course.laneB, given, { ...inspector.cursor.pinned }));
  if (lesson !== course.now) return;
  spot("lesson-verdict").dataset.right = found.right ? "yes" : "no";
  const hide = !found.right && lesson.answer !== "pin";
  spot("lesson-verdict").textContent = found.right ? "Right. " + found.said : "Not yet. " + (hide ? "Look again." : found.said);
  if (found.right) kept.get(lesson.key).right = true;
  marks();
}

async function openCourse() {
  course.lessons = JSON.parse(await server.titles()).lessons;
  course.lessons.forEach((lesson, i) => {
    kept.set(lesson.key, {});
    const key = make("button", "", i + 1 + ". " + lesson.title);
    key.type = "button";
    key.dataset.key = lesson.key;
    key.append(make("span", "ds-tick"));
    key.addEventListener("click", () => turnTo(lesson));
    spot("lessons").append(key);
  });
  const wanted = new URLSearchParams(location.search).get("lesson");
  enter(course.lessons.find((lesson) => lesson.key === wanted) || course.lessons[0]);
}

for (const key of board.querySelectorAll("[data-strip]")) {
  key.addEventListener("click", () => {
    course.strip = key.dataset.strip;
    course.stripUsed.add(course.strip);
    for (const other of board.querySelectorAll("[data-strip]")) other.setAttribute("aria-pressed", other === key);
    strip();
    note();
  });
}
spot("lesson-form").addEventListener("submit", judge);
spot("lesson-next").addEventListener("click", () => turnTo(course.lessons[course.lessons.indexOf(course.now) + 1]));
inspector.watchers.push(() => {
  if (!course.now) return;
  strip();
  note();
});
openCourse();
