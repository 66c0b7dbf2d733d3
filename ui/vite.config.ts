import { defineConfig } from "vite";

// The page is served by `etude serve` from the wheel: hashed assets, no source maps, no inline code (a strict
// content security policy), no external request.
export default defineConfig({
  base: "/",
  build: {
    outDir: "../src/etude/web",
    emptyOutDir: true,
    sourcemap: false,
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    target: "es2022",
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  server: { proxy: { "/api": "http://127.0.0.1:8000" } },
});
