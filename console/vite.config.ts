import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The built files are committed as data of the Python package; `tools/console.py` proves that they are of these sources.
// Nothing is inlined: the Content-Security-Policy of the console allows no inline script, style or font.
export default defineConfig({
  base: "/console/",
  plugins: [react()],
  build: {
    outDir: "../src/syncpoint/watch/console/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 900, // a test weighs what a browser loads
    sourcemap: false,
  },
  server: { proxy: { "^/(v1|admin|iam|console/api)/": "http://127.0.0.1:8085" } },
});
