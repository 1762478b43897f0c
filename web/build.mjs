// Bundles the page into the given folder, with the licences of the packages in it.
import { build } from "esbuild";
import { cp, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

const to = process.argv[2] ?? "../src/veilmap/explore/static";
await rm(to, { recursive: true, force: true });
await mkdir(to, { recursive: true });
const made = await build({
  entryPoints: { app: "src/main.ts" },
  outdir: to,
  bundle: true,
  splitting: true, // the map is loaded only if it can be drawn
  format: "esm",
  target: "es2022",
  minify: true,
  legalComments: "none", // they are in licences.txt
  chunkNames: "[name]-[hash]",
  metafile: true,
  logLevel: "warning",
});
await build({ entryPoints: ["style.css"], outfile: join(to, "app.css"), bundle: true, minify: true });
await build({
  entryPoints: ["node_modules/maplibre-gl/dist/maplibre-gl-worker.mjs"],
  outfile: join(to, "maplibre-worker.js"),
  format: "esm",
  target: "es2022",
  minify: true,
  legalComments: "none",
});
for (const name of ["index.html", "icon.svg"]) await cp(name, join(to, name));

// MapLibre's bundle includes its dependencies, so list the licences of all installed packages.
const inside = (await readdir("node_modules", { withFileTypes: true })).flatMap((entry) => entry.name);
const unused = new Set([".bin", ".package-lock.json", "@esbuild", "@types", "@typescript", "axe-core", "esbuild", "typescript"]);
const texts = [];
for (const name of inside.filter((one) => !unused.has(one))) {
  const folders = name.startsWith("@") ? (await readdir(join("node_modules", name))).map((one) => join(name, one)) : [name];
  for (const folder of folders) {
    const { version, license } = JSON.parse(await readFile(join("node_modules", folder, "package.json"), "utf8"));
    const file = (await readdir(join("node_modules", folder))).find((one) => /^licen[cs]e/i.test(one));
    const text = file ? await readFile(join("node_modules", folder, file), "utf8") : `Licence: ${license}`;
    texts.push(`${folder} ${version}\n\n${text.trim()}\n`);
  }
}
await writeFile(join(to, "licences.txt"), texts.join(`\n${"-".repeat(80)}\n\n`));
const bytes = Object.values(made.metafile.outputs).reduce((sum, one) => sum + one.bytes, 0);
console.log(`built ${to}: ${(bytes / 1e6).toFixed(1)} MB of script`);
