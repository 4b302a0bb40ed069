// Bundle the page: `page.js` for the app, `replay.js` for the replay file.
//
//   node build.mjs          write both bundles into inspector/static
//   node build.mjs --check  fail if the bundles there differ from the sources
//   node build.mjs --tests  bundle the unit tests into build/
import { readFileSync, readdirSync } from "node:fs";
import { basename } from "node:path";
import { build } from "esbuild";

const STATIC = new URL("../static/", import.meta.url).pathname;
const ROOT = new URL("./", import.meta.url).pathname;
const SHARED = {
  absWorkingDir: ROOT,
  bundle: true,
  charset: "utf8",
  target: "es2022",
  logLevel: "warning",
};
const BUNDLES = [
  { entryPoints: ["src/main.ts"], format: "esm", outfile: STATIC + "page.js" },
  { entryPoints: ["src/replay.ts"], format: "iife", outfile: STATIC + "replay.js" },
];

async function bundle(check) {
  const stale = [];
  for (const one of BUNDLES) {
    const built = await build({ ...SHARED, ...one, minify: true, write: !check });
    if (check && built.outputFiles[0].text !== readFileSync(one.outfile, "utf8"))
      stale.push(basename(one.outfile));
  }
  if (stale.length) {
    console.error(
      `stale: ${stale.join(", ")}; run \`npm run build\` in inspector/web and commit the result`,
    );
    process.exit(1);
  }
}

if (process.argv.includes("--tests")) {
  const entryPoints = readdirSync(ROOT + "tests")
    .filter((name) => name.endsWith(".test.ts"))
    .map((name) => "tests/" + name);
  await build({
    ...SHARED,
    entryPoints,
    format: "esm",
    platform: "node",
    outdir: "build",
    sourcemap: "inline",
  });
} else {
  await bundle(process.argv.includes("--check"));
}
