const given = JSON.parse(document.querySelector("#ds-data").textContent);
const element = document.querySelector("#ds-race");
const props = { value: JSON.stringify(given.race), offline: true };
const server = {
  replay: async () => props.value,
  view: async (run, lane, name) =>
    JSON.stringify(given.views[lane]?.[name] || { missing: "This file holds no such view; see the note at its head." }),
};
const watch = () => {};
const trigger = () => {};
const darkness = matchMedia("(prefers-color-scheme: dark)");
const dress = () => document.body.classList.toggle("dark", darkness.matches);
darkness.addEventListener("change", dress);
dress();
