import { defineConfig } from "vitest/config";
import { answerFixtures } from "./dev/plugin";

/** `PLAIT_SERVER=http://127.0.0.1:7117 npm run dev` works against a server; else fixtures answer. */
const server = process.env["PLAIT_SERVER"];

export default defineConfig(({ command }) => ({
  esbuild: { jsx: "automatic", jsxImportSource: "preact" },
  plugins: command === "serve" && !server ? [answerFixtures()] : [],
  test: { environment: "node", setupFiles: ["./test/setup.ts"], include: ["test/*.test.ts"] },
  build: {
    outDir: "../src/plait/view/dist",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // the policy allows no inline scripts, and data: for images alone
    modulePreload: { polyfill: false },
    sourcemap: false,
  },
  server: {
    host: "127.0.0.1",
    port: 7118,
    ...(server ? { proxy: { "/api": { target: server, changeOrigin: true } } } : {}),
  },
}));
