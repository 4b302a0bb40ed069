/** The script of the replay file: a race from the file's data, in the colours of the system. */
import { part } from "./base/dom.ts";
import { race } from "./race/race.ts";
import { replayComponent, type ReplayData } from "./race/replay_source.ts";

function followSystemColours(): void {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const follow = (): void => {
    document.body.classList.toggle("dark", dark.matches);
  };
  dark.addEventListener("change", follow);
  follow();
}

followSystemColours();
const data = JSON.parse(part(document, "#ds-data").textContent) as ReplayData;
race(replayComponent(part(document, "#ds-race"), data));
